"""Columns made from a unit's scaled sensors and shown to the network beside them.

Each kind has two ways to the same numbers: `batch` takes all rows of a unit, `start` begins a :class:`Channel` that is
fed row by row. Tests hold them to be equal to the last bit. All of them count from a unit's first row, so a
device must be watched from new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprognos.arrays import FloatArray, Rows
from fedprognos.features.row_memory import Arrays, RowMemory
from fedprognos.shelf import Shelf

MOST_SPAN = 10_000
"""Rows that a channel looks back on."""
Chosen = Sequence[tuple[str, int]]
"""Kinds of channels, each with its span in rows."""


class Channel(RowMemory, ABC):
    """One unit's channel, row by row."""

    __slots__ = ()

    @abstractmethod
    def push(self, row: Rows) -> Rows:
        """Its columns (k,) after one more row (sensors,)."""


@dataclass(frozen=True)
class ChannelKind:
    """A kind of channel.

    Parameters
    ----------
    columns
        From the number of sensors to that of its columns.
    batch
        From the scaled sensors of a unit (T, sensors) and the span to its columns (T, k).
    start
        From the number of sensors and the span to the channel of a unit before its first row.
    """

    name: str
    label: str
    order: int
    columns: Callable[[int], int]
    batch: Callable[[Rows, int], Rows]
    start: Callable[[int, int], Channel]


channels: Shelf[ChannelKind] = Shelf("channel", __name__, "fedprognos.channels")


def columns_of(chosen: Chosen, sensors: int) -> int:
    """How many columns the channels add.

    >>> columns_of([("age", 200), ("mean", 10), ("slope", 10)], sensors=3)
    7
    """
    return sum(channels[name].columns(sensors) for name, _ in chosen)


def extended(rows: Rows, chosen: Chosen, sensors: int) -> Rows:
    """Scaled rows of a unit (T, C), sensors first, with its channels beside them."""
    if not chosen:
        return rows
    return np.concatenate([rows, *(channels[name].batch(rows[:, :sensors], span) for name, span in chosen)], axis=1)


class Channels:
    """All channels of one unit, row by row."""

    __slots__ = ("_channels", "_sensors")

    def __init__(self, chosen: Chosen, sensors: int) -> None:
        self._channels = [channels[name].start(sensors, span) for name, span in chosen]
        self._sensors = sensors

    def extend(self, row: Rows) -> Rows:
        """A scaled row (C,) with the channels beside it."""
        if not self._channels:
            return row
        return np.concatenate([row, *(channel.push(row[: self._sensors]) for channel in self._channels)])

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Everything remembered."""
        return {
            f"{k}.{name}": array
            for k, channel in enumerate(self._channels)
            for name, array in channel.snapshot().items()
        }

    def restore(self, kept: Arrays) -> None:
        """Go on from a snapshot."""
        for k, channel in enumerate(self._channels):
            prefix = f"{k}."
            channel.restore(
                {name.removeprefix(prefix): array for name, array in kept.items() if name.startswith(prefix)}
            )


def age_columns(rows: Rows, span: int) -> Rows:
    """Rows since the unit's first, in spans: 0 at the first row, 1 a span later."""
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


def change_columns(rows: Rows, span: int) -> Rows:
    """Each sensor's difference to the mean of the unit's first rows, or as many as there are.

    It is 0 at the first row. After the span the reference stays.
    """
    first = np.cumsum(rows[:span], axis=0, dtype=np.float64)
    counts = np.minimum(np.arange(1, len(rows) + 1), span)
    difference: Rows = (rows - first[counts - 1] / counts[:, None]).astype(np.float32)
    return difference


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


def rolling(rows: FloatArray, span: int) -> FloatArray:
    """Sums (T, C) over the last `span` rows, or as many as there are.

    From running sums, as :class:`Rolling` makes them: the same additions in the same order give the same bits.
    """
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
        sums: FloatArray = self.total - self.ring[at]
        self.ring[at] = self.total
        self.count += 1
        return sums


def mean_columns(rows: Rows, span: int) -> Rows:
    """Each sensor's mean over the last rows, or as many as there are."""
    counts = np.minimum(np.arange(1, len(rows) + 1), span)
    return (rolling(rows.astype(np.float64), span) / counts[:, None]).astype(np.float32)


class Mean(Rolling):
    """The mean, row by row."""

    __slots__ = ()

    def push(self, row: Rows) -> Rows:
        sums = self.recent(row.astype(np.float64))
        return (sums / min(self.count, len(self.ring))).astype(np.float32)


def slope_columns(rows: Rows, span: int) -> Rows:
    """How much each sensor rises over a span, by the straight line through the last rows; 0 at the first row."""
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
    """The slope, row by row."""

    __slots__ = ()

    def __init__(self, sensors: int, span: int) -> None:
        super().__init__(2 * sensors, span)

    def push(self, row: Rows) -> Rows:
        at, wide = np.float64(self.count), row.astype(np.float64)
        sums, moments = np.split(self.recent(np.concatenate([wide, at * wide])), 2)
        count = np.float64(min(self.count, len(self.ring)))
        return _slopes(at, count, sums, moments, len(self.ring)).astype(np.float32)


channels.add(ChannelKind("age", "age", 10, lambda sensors: 1, age_columns, Age))
channels.add(ChannelKind("mean", "rolling mean", 20, lambda sensors: sensors, mean_columns, Mean))
channels.add(ChannelKind("slope", "rolling slope", 30, lambda sensors: sensors, slope_columns, Slope))
channels.add(ChannelKind("change", "change since the first rows", 40, lambda sensors: sensors, change_columns, Change))
