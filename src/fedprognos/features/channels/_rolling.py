"""Sums over the last rows, from running sums: the same additions in the same order, all at once or row by row."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.features.channels import Channel


def rolling(rows: FloatArray, span: int) -> FloatArray:
    """Sums (T, C) over the last `span` rows, or as many as there are."""
    sums = np.cumsum(rows, axis=0, dtype=np.float64)
    before = np.zeros_like(sums)
    before[span:] = sums[:-span]
    return sums - before


class Rolling(Channel):
    """Remembers the running sum and what it was after each of the last rows."""

    __slots__ = ("count", "ring", "total")
    scalars = ("count",)
    arrays = ("total", "ring")

    def __init__(self, columns: int, span: int) -> None:
        self.count, self.total, self.ring = 0, np.zeros(columns), np.zeros((span, columns))

    def recent(self, row: FloatArray) -> FloatArray:
        """Sums (columns,) over the last rows, this one included."""
        self.total = self.total + row
        at = self.count % len(self.ring)
        found: FloatArray = self.total - self.ring[at]
        self.ring[at] = self.total
        self.count += 1
        return found
