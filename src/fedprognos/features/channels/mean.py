"""Mean: each sensor's mean over the last rows, or as many as there are."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import Rows
from fedprognos.features.channels import ChannelKind, channels
from fedprognos.features.channels._rolling import Rolling, rolling


def batch(rows: Rows, span: int) -> Rows:
    """The row itself at the first one."""
    counts = np.minimum(np.arange(1, len(rows) + 1), span)
    return (rolling(rows.astype(np.float64), span) / counts[:, None]).astype(np.float32)


class Mean(Rolling):
    """The same, row by row."""

    __slots__ = ()

    def push(self, row: Rows) -> Rows:
        found = self.recent(row.astype(np.float64))
        return (found / min(self.count, len(self.ring))).astype(np.float32)


channels.add(ChannelKind("mean", "rolling mean", 20, lambda sensors: sensors, batch, Mean))
