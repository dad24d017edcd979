"""Replies as vectors of whole numbers, so that they can be added without being seen.

The length of a vector follows from the request alone. Each part that a client may lack has a place that counts who has
it. Scores that only some clients have would be theirs alone in the sum: a client that lacks them fills their place with
random numbers, so that they can be read only if all clients have them.

A number becomes an integer modulo 2^128 or more: sums of integers are exact, do not depend on their order, and can be
masked. The integer counts steps that are so small that statistics keep far more than nine digits, and its range is so
large that sums cannot overflow. It consists of 64-bit limbs, the lowest first, in two's complement.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.errors import MessageError
from fedprognos.evaluation import ScoreSums

SYMMETRIC = frozenset({"hh", "S"})
"""Fields that hold symmetric matrices; their upper triangle is enough."""

ALL_OR_NONE = ScoreSums
"""Parts of this kind are read only where every client has them."""

Limbs = NDArray[np.uint64]
"""(N, limbs)."""
WHOLE_BITS = 71
"""Bits before the point."""
LIMBS, FINE_LIMBS = 2, 3
"""128 bits with steps of 2^-56 for statistics of scaled columns; 192 with 2^-120 for moments of raw ones."""
WORD = 64
MOST = 2.0**60
"""A client's numbers are smaller than this: even the sum of a thousand clients cannot overflow."""


def to_vector(reply: Any, template: Any) -> FloatArray:
    """The numbers of a reply in the order of the template, zeros for what it lacks."""
    return np.concatenate([np.atleast_1d(part) for part, _ in _parts(reply, template, "")] or [np.zeros(0)])


def unreadable(reply: Any, template: Any) -> BoolArray:
    """Which of these numbers a client must make unreadable, because it lacks a part that all or none have."""
    masks = [np.full(np.size(part), lacks) for part, lacks in _parts(reply, template, "")]
    return np.concatenate([*masks, np.zeros(0, dtype=bool)])


def from_vector(vector: FloatArray, template: Any, members: int = 1) -> Any:
    """A reply of numbers summed over so many members.

    A part that nobody had is None. An entry of a table that some members lacked is left out.
    """
    reader = _Reader(vector, members)
    reply = reader.read(template, "", 1)
    if reader.at != len(vector):
        raise MessageError(f"{len(vector)} numbers instead of {reader.at}")
    if _lacks_a_part(reply, type(template)):
        raise MessageError("holds too few parts of a reply")  # a member can make a count of parts whatever it likes
    return reply


def _lacks_a_part(value: Any, kind: Any) -> bool:
    """Whether a part is missing that every reply of this type has."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    if value is None:
        return types.NoneType not in kinds
    parts = typing.get_args(next(k for k in kinds if k is not types.NoneType))
    if dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        return any(_lacks_a_part(getattr(value, f.name), hints[f.name]) for f in dataclasses.fields(value))
    if isinstance(value, tuple):
        return any(_lacks_a_part(entry, parts[0]) for entry in value)
    return isinstance(value, Mapping) and any(_lacks_a_part(entry, parts[1]) for entry in value.values())


def _parts(value: Any, template: Any, name: str, lacks: bool = False) -> Iterator[tuple[Any, bool]]:
    """Numbers, and whether they are in a part that this client lacks and that all or none have."""
    if template is None:
        if value is not None:
            raise MessageError(f"the reply has a part that was not asked for: {name}")
    elif dataclasses.is_dataclass(template):
        if name:
            yield float(value is not None), lacks
        lacks = lacks or (value is None and isinstance(template, ALL_OR_NONE))
        for field in dataclasses.fields(template):
            yield from _parts(getattr(value, field.name, None), getattr(template, field.name), field.name, lacks)
    elif isinstance(template, tuple):
        if value is not None and len(value) != len(template):
            raise MessageError(f"{len(value)} parts instead of {len(template)}: {name}")
        for k, part in enumerate(template):
            yield from _parts(None if value is None else value[k], part, f"{name}.{k}", lacks)
    elif isinstance(template, Mapping):
        for key, part in template.items():
            entry = None if value is None else value.get(key)
            yield float(entry is not None), lacks
            yield from _parts(entry, part, str(key), lacks or (entry is None and name == "sums"))
    elif isinstance(template, np.ndarray):
        array = np.zeros(template.shape) if value is None else np.asarray(value, np.float64)
        if array.shape != template.shape:
            raise MessageError(f"{name} has shape {array.shape}, expected {template.shape}")
        yield array[np.triu_indices(len(array))] if name in SYMMETRIC else array.reshape(-1), lacks
    else:
        yield float(value or 0), lacks


class _Reader:
    """Goes through a vector as the template says."""

    def __init__(self, vector: FloatArray, members: int) -> None:
        self.vector, self.at, self.members = vector, 0, members

    def take(self, count: int) -> FloatArray:
        self.at += count
        return self.vector[self.at - count : self.at]

    def number(self) -> float:
        return float(self.take(1)[0])

    def read(self, template: Any, name: str, holders: int) -> Any:
        """The part at this place; `holders` is how many clients have what it belongs to."""
        if template is None:
            return None
        if dataclasses.is_dataclass(template) and not isinstance(template, type):
            have = round(self.number()) if name else holders
            have = 0 if isinstance(template, ALL_OR_NONE) and have < self.members else have
            fields = dataclasses.fields(template)
            values = {f.name: self.read(getattr(template, f.name), f.name, have) for f in fields}
            return type(template)(**values) if have else None
        if isinstance(template, tuple):
            return tuple(self.read(part, f"{name}.{k}", holders) for k, part in enumerate(template))
        if isinstance(template, Mapping):
            entries = {
                key: (round(self.number()), self.read(part, str(key), holders)) for key, part in template.items()
            }
            return {key: value for key, (have, value) in entries.items() if have and have >= holders}
        if isinstance(template, np.ndarray):
            return self._array(template, name)
        value = self.number()
        return round(value) if isinstance(template, int) else value

    def _array(self, template: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        if name in SYMMETRIC:
            upper = np.zeros(template.shape)
            upper[np.triu_indices(len(upper))] = self.take(len(upper) * (len(upper) + 1) // 2)
            return upper + np.triu(upper, 1).T
        array = self.take(template.size).reshape(template.shape)
        return np.rint(array).astype(np.int64) if template.dtype.kind == "i" else array.copy()


def to_fixed(values: FloatArray, limbs: int = LIMBS) -> Limbs:
    """Numbers (N,) as whole numbers of steps.

    >>> from_fixed(to_fixed(np.array([1.5, -2.25, 0.0]))).tolist()
    [1.5, -2.25, 0.0]
    """
    if not (np.abs(values) < MOST).all():
        raise MessageError(f"holds a number of {MOST:g} or more, which is too large for a masked sum")
    rest = np.abs(np.ldexp(values, WORD * limbs - 1 - WHOLE_BITS))
    words = np.zeros((len(values), limbs), dtype=np.uint64)
    for k in reversed(range(limbs)):
        limb = 2.0 ** (WORD * k)
        whole = np.floor(rest / limb) if k else np.rint(rest)
        # Rounding can give 2^64, which does not fit into a word: use the largest float64 below it.
        words[:, k] = np.minimum(whole, 2.0**WORD - 2**11).astype(np.uint64)
        rest = rest - whole * limb
    return np.asarray(np.where((values < 0)[:, None], negated(words), words))


def from_fixed(fixed: Limbs) -> FloatArray:
    """Whole numbers of steps as numbers (N,)."""
    limbs = fixed.shape[1]
    negative = fixed[:, -1] >> np.uint64(WORD - 1) == 1
    size = np.where(negative[:, None], negated(fixed), fixed)
    total = np.zeros(len(fixed))
    for k in reversed(range(limbs)):
        total += np.ldexp(size[:, k].astype(np.float64), WORD * k)
    scaled = np.ldexp(total, 1 + WHOLE_BITS - WORD * limbs)
    return np.asarray(np.where(negative, -scaled, scaled))


def add(left: Limbs, right: Limbs) -> Limbs:
    """Their sum, limb by limb with carries; what overflows is dropped."""
    total, carry = np.empty_like(left), np.zeros(len(left), dtype=np.uint64)
    for k in range(left.shape[1]):
        part = left[:, k] + right[:, k]
        total[:, k] = part + carry
        carry = ((part < left[:, k]) | (total[:, k] < part)).astype(np.uint64)
    return total


def negated(fixed: Limbs) -> Limbs:
    """The two's complement: added to the number it gives zero."""
    smallest = np.zeros_like(fixed)
    smallest[:, 0] = 1
    return add(~fixed, smallest)
