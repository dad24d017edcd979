"""Change: each sensor's difference to the mean of the unit's own first rows, as far as they are there."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import Rows
from fedprognos.features.channels import Channel, ChannelKind, channels


def batch(rows: Rows, span: int) -> Rows:
    """0 at the first row; from the end of the span on the reference stays."""
    first = np.cumsum(rows[:span], axis=0, dtype=np.float64)
    counts = np.minimum(np.arange(1, len(rows) + 1), span)
    found: Rows = (rows - first[counts - 1] / counts[:, None]).astype(np.float32)
    return found


class Change(Channel):
    """Remembers the sum of the first rows."""

    __slots__ = ("count", "span", "total")
    scalars = ("count",)
    arrays = ("total",)

    def __init__(self, sensors: int, span: int) -> None:
        self.count, self.span, self.total = 0, span, np.zeros(sensors)

    def push(self, row: Rows) -> Rows:
        if self.count < self.span:
            self.count, self.total = self.count + 1, self.total + row
        return (row - self.total / self.count).astype(np.float32)


channels.add(ChannelKind("change", "change since the first rows", 40, lambda sensors: sensors, batch, Change))
