"""The highest value that each sensor has had so far."""

import numpy as np

from fedprognos.features.channels import Channel, ChannelKind


def batch(rows, span):
    """All rows of a unit at once."""
    return np.maximum.accumulate(rows)


class Highest(Channel):
    """The same, row by row; `arrays` is what a snapshot keeps."""

    __slots__ = ("highest",)
    arrays = ("highest",)

    def __init__(self, sensors, span):
        self.highest = np.full(sensors, -np.inf, np.float32)

    def push(self, row):
        self.highest = np.maximum(self.highest, row)
        return self.highest


HIGHEST = ChannelKind("highest", "highest so far", 50, lambda sensors: sensors, batch, Highest)
