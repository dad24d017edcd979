"""Age: rows since a unit's first, in spans."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import Rows
from fedprognos.features.channels import Channel, ChannelKind, channels


def batch(rows: Rows, span: int) -> Rows:
    """0 at the first row, 1 a span later."""
    return (np.arange(len(rows), dtype=np.float64) / span).astype(np.float32)[:, None]


class Age(Channel):
    """Counts rows."""

    __slots__ = ("count", "span")
    scalars = ("count",)

    def __init__(self, sensors: int, span: int) -> None:
        self.count, self.span = 0, span

    def push(self, row: Rows) -> Rows:
        self.count += 1
        return np.array([(self.count - 1) / self.span], dtype=np.float32)


channels.add(ChannelKind("age", "age", 10, lambda sensors: 1, batch, Age))
