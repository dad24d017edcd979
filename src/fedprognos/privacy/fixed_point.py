"""Numbers as integers modulo 2^128 or wider, so that sums are exact, do not depend on their order, and can be masked.

A number is several 64-bit limbs, the lowest first, in two's complement. Its unit is so small that statistics keep
far more than nine digits, its range so large that sums of them cannot overflow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import MessageError

Limbs = NDArray[np.uint64]
"""(N, limbs)."""
WHOLE_BITS = 71
"""Bits before the point."""
LIMBS, FINE_LIMBS = 2, 3
"""128 bits with a unit of 2^-56 for statistics of scaled columns; 192 with 2^-120 for moments of raw ones."""
WORD = 64
MOST = 2.0**60
"""The largest number a client may have: so many of them, up to a thousand clients, cannot overflow."""


def to_fixed(values: FloatArray, limbs: int = LIMBS) -> Limbs:
    """Numbers (N,) as integers of the unit.

    >>> from_fixed(to_fixed(np.array([1.5, -2.25, 0.0]))).tolist()
    [1.5, -2.25, 0.0]
    """
    if not (np.abs(values) < MOST).all():
        raise MessageError(f"holds a number of {MOST:g} or more, which is too large to be added")
    rest = np.abs(np.ldexp(values, WORD * limbs - 1 - WHOLE_BITS))
    words = np.zeros((len(values), limbs), dtype=np.uint64)
    for k in reversed(range(limbs)):
        unit = 2.0 ** (WORD * k)
        whole = np.floor(rest / unit) if k else np.rint(rest)
        # Rounding can give 2^64, which does not fit into a word: use the largest float64 below it.
        words[:, k] = np.minimum(whole, 2.0**WORD - 2**11).astype(np.uint64)
        rest = rest - whole * unit
    return np.asarray(np.where((values < 0)[:, None], negated(words), words))


def from_fixed(fixed: Limbs) -> FloatArray:
    """Integers of the unit as numbers (N,)."""
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
