"""Columns made from a unit's scaled sensors and shown to the network beside them, one file a kind.

Each kind has two ways to the same numbers: `batch` takes all rows of a unit, `start` begins a :class:`Channel` that is
fed row by row. Tests hold them to be equal to the last bit. All of them count from a unit's first row: they tell a
device only what it knows if it was watched from new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import Rows
from fedprognos.features.memory import Arrays, Memory
from fedprognos.shelf import Shelf

MOST_SPAN = 10_000
"""Rows that a channel looks back on."""
Chosen = Sequence[tuple[str, int]]
"""Kinds of channels, each with its span in rows."""


class Channel(Memory, ABC):
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

    __slots__ = ("_own", "_sensors")

    def __init__(self, chosen: Chosen, sensors: int) -> None:
        self._own = [channels[name].start(sensors, span) for name, span in chosen]
        self._sensors = sensors

    def extend(self, row: Rows) -> Rows:
        """A scaled row (C,) with the channels beside it."""
        if not self._own:
            return row
        return np.concatenate([row, *(one.push(row[: self._sensors]) for one in self._own)])

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Everything remembered."""
        return {f"{k}.{name}": array for k, one in enumerate(self._own) for name, array in one.snapshot().items()}

    def restore(self, kept: Arrays) -> None:
        """Go on from a snapshot."""
        for k, one in enumerate(self._own):
            own = f"{k}."
            one.restore({name.removeprefix(own): array for name, array in kept.items() if name.startswith(own)})
