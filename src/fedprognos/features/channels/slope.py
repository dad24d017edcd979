"""Slope: how much each sensor rises over a span, by the straight line through the last rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.arrays import FloatArray, Rows
from fedprognos.features.channels import ChannelKind, channels
from fedprognos.features.channels._rolling import Rolling, rolling


def batch(rows: Rows, span: int) -> Rows:
    """0 at the first row, before there is a line."""
    at = np.arange(len(rows), dtype=np.float64)
    wide = rows.astype(np.float64)
    sums, moments = rolling(wide, span), rolling(at[:, None] * wide, span)
    return _slopes(at[:, None], np.minimum(at + 1, span)[:, None], sums, moments, span).astype(np.float32)


def _slopes(at: ArrayLike, count: ArrayLike, sums: FloatArray, moments: FloatArray, span: int) -> FloatArray:
    """From the sums of x and of (row number) x over the last `count` rows up to row `at`."""
    at, count = np.asarray(at), np.asarray(count)
    middle = at - (count - 1) / 2
    spread = np.maximum(count * (count * count - 1) / 12, 0.5)  # of two rows 0.5; a single one has no moment either
    return np.asarray(span * (moments - middle * sums) / spread)


class Slope(Rolling):
    """The same, row by row."""

    __slots__ = ()

    def __init__(self, sensors: int, span: int) -> None:
        super().__init__(2 * sensors, span)

    def push(self, row: Rows) -> Rows:
        at, wide = np.float64(self.count), row.astype(np.float64)
        sums, moments = np.split(self.recent(np.concatenate([wide, at * wide])), 2)
        count = np.float64(min(self.count, len(self.ring)))
        return _slopes(at, count, sums, moments, len(self.ring)).astype(np.float32)


channels.add(ChannelKind("slope", "rolling slope", 30, lambda sensors: sensors, batch, Slope))
