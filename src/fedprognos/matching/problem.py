"""The clients' neurons as the algorithm wants them: checked, in canonical order, turned to float64 when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import ConfigError, DataError
from fedprognos.matching.arrays import AnyArray, Floats, Indices
from fedprognos.matching.result import Anchor, Matching


@dataclass(frozen=True, eq=False)
class Side:
    """The neurons of one client, or of the anchor.

    ``vectors`` is ``(L_j, len(dims))``. ``dims`` says which of the D dimensions they have; ``None`` means all of
    them.
    """

    name: str
    vectors: AnyArray
    dims: Indices | None = None

    @property
    def width(self) -> int:
        return len(self.vectors)

    @property
    def where(self) -> Indices | slice:
        """The dimensions as an index."""
        return slice(None) if self.dims is None else self.dims

    def centred(self, centre: Floats) -> Floats:
        """``(L_j, len(dims))`` in float64, made anew each time: J copies of the inputs are never held."""
        return np.subtract(self.vectors, centre[self.where], dtype=np.float64)

    def squares(self, dimensions: int) -> Floats:
        """``(D,)`` the sum of squares in each dimension."""
        total = np.zeros(dimensions)
        total[self.where] = np.einsum("ld,ld->d", self.vectors, self.vectors, dtype=np.float64, casting="same_kind")
        return total


@dataclass(frozen=True, eq=False)
class Problem:
    """Clients in canonical order, the anchor and its counts, and the moments of all neurons.

    ``centre``, ``variance`` and ``scale`` are the clients' pooled mean and variance, for each dimension and overall.
    ``squares`` and ``observed`` are ``(D,)``: the sum of squares about the centre and the number N of neurons, where
    an anchor's neuron is one observation however large its count (its mean is known, the scatter behind it is not).
    ``raw_squares`` are the clients' alone, about zero.
    """

    clients: tuple[Side, ...]
    dimensions: int
    anchor: Side | None
    anchor_counts: Indices
    centre: Floats
    variance: Floats
    scale: float
    squares: Floats
    observed: Floats
    raw_squares: Floats

    @property
    def masked(self) -> bool:
        return any(side.dims is not None for side in self.clients)

    @property
    def anchored(self) -> int:
        """How many global neurons the anchor holds in place."""
        return len(self.anchor_counts)

    @property
    def population(self) -> int:
        """J: the clients, and as many more as the anchor claims to stand for."""
        return len(self.clients) + int(self.anchor_counts.max(initial=0))

    @property
    def widest(self) -> int:
        return max(self.anchored, *(side.width for side in self.clients))


def checked(name: str, vectors: ArrayLike) -> AnyArray:
    """The vectors as a two-dimensional array of finite real numbers, or an error naming whose they are."""
    try:
        array = np.asarray(vectors)
    except ValueError as error:
        raise DataError(f"neuron vectors are not an array: {error}", where=name) from error
    if array.dtype.kind not in "fiu":
        raise DataError(f"neuron vectors have dtype {array.dtype}, not a real number type", where=name)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(
            f"neuron vectors have shape {array.shape}",
            where=name,
            hint="pass (neurons, dimensions), at least one of each",
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise DataError(f"neuron {row} has the value {array[row, column]} in dimension {column}", where=name)
    return array


def sides(clients: Mapping[str, ArrayLike], sizes: Mapping[str, float] | None) -> tuple[Side, ...]:
    """Check the clients and put them in canonical order: widest first, then most data, then by id."""
    if not clients:
        raise DataError("no clients to match", hint="pass a mapping from client id to neuron vectors (L_j, D)")
    found = [Side(name, checked(f"client '{name}'", vectors)) for name, vectors in clients.items()]
    found = canonical(found, sizes)
    for side in found:
        if side.vectors.shape[1] != found[0].vectors.shape[1]:
            raise DataError(
                f"neurons have {side.vectors.shape[1]} dimensions, those of '{found[0].name}' have "
                f"{found[0].vectors.shape[1]}",
                where=f"client '{side.name}'",
            )
    return tuple(found)


def canonical(found: Iterable[Side], sizes: Mapping[str, float] | None) -> list[Side]:
    """Sort by width, data size and id, so that the order of arrival changes nothing."""
    found = list(found)
    missing = [side.name for side in found if sizes is not None and side.name not in sizes]
    if missing:
        raise ConfigError(f"no data size for client '{missing[0]}'", hint="give sizes for every client, or none")
    data = dict.fromkeys((side.name for side in found), 0.0) if sizes is None else sizes
    return sorted(found, key=lambda side: (-side.width, -data[side.name], str(side.name)))


def anchor_side(
    anchor: Anchor | Matching | tuple[ArrayLike, ArrayLike] | ArrayLike | None, dimensions: int
) -> tuple[Side | None, Indices]:
    """Check the anchor: means of the clients' dimension, whole counts of at least one."""
    if anchor is None:
        return None, np.empty(0, np.intp)
    if isinstance(anchor, tuple):
        anchor = Anchor(*anchor)
    if not isinstance(anchor, Anchor | Matching):
        anchor = Anchor(anchor)
    means = checked("anchor", anchor.means)
    if means.shape[1] != dimensions:
        raise DataError(f"neurons have {means.shape[1]} dimensions, the clients' have {dimensions}", where="anchor")
    return Side("anchor", means), checked_counts(anchor.counts, len(means))


def checked_counts(counts: ArrayLike | None, width: int) -> Indices:
    """``(width,)`` whole numbers >= 1; ones when not given."""
    given = np.ones(width) if counts is None else np.asarray(counts)
    if given.shape != (width,) or given.dtype.kind not in "fiu" or not (given >= 1).all() or (given % 1).any():
        raise DataError(f"counts must be {width} whole numbers of at least 1", where="anchor")
    return given.astype(np.intp)


def pose(clients: Sequence[Side], dimensions: int, anchor: Side | None, anchor_counts: Indices) -> Problem:
    """Add the moments."""
    total, observed, squares = np.zeros(dimensions), np.zeros(dimensions), np.zeros(dimensions)
    for side in clients:
        total[side.where] += side.vectors.sum(axis=0, dtype=np.float64)
        observed[side.where] += side.width
    centre = total / np.maximum(observed, 1)
    for side in clients:
        squares[side.where] += np.square(side.centred(centre)).sum(axis=0)
    scale, size = float(squares.sum() / observed.sum()), float(np.mean(np.square(centre)))
    if not np.isfinite(scale + size):
        raise DataError("the neuron vectors are too large to square in float64", hint="scale the weights down")
    if scale <= 1e-28 * size or scale == 0:
        # Nothing varies but the last digit: the weights' own size is the only scale there is.
        scale = size or 1.0
    variance = np.maximum(squares / np.maximum(observed, 1), 1e-12 * scale)
    raw = squares + observed * np.square(centre)
    if anchor is not None:
        squares[anchor.where] += (anchor_counts[:, None] * np.square(anchor.centred(centre))).sum(axis=0)
        observed[anchor.where] += anchor.width
    return Problem(tuple(clients), dimensions, anchor, anchor_counts, centre, variance, scale, squares, observed, raw)
