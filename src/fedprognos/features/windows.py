"""Windows over scaled rows, as an index: nothing is copied until a batch is gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class WindowSet:
    """All windows of a fleet: `features[starts[k] : starts[k] + length]` is window k.

    Parameters
    ----------
    features : (R, C) float32
        Scaled rows of all units, one after another.
    lives : (units + 1,)
        Where the rows of each unit begin, when a point's history is all rows of its unit up to it; None for windows.
    starts, labels, unit, position : (N,)
        First row, uncapped label (NaN where unknown), index into `unit_ids` and cycle number of each window.
    odd : (N,)
        What is odd about each window, as the bits of :mod:`fedprognos.features.history`.
    """

    features: NDArray[np.float32]
    starts: IntArray
    length: int
    labels: FloatArray
    unit: IntArray
    position: FloatArray
    odd: NDArray[np.uint8]
    unit_ids: tuple[str, ...]
    lives: IntArray | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def channels(self) -> int:
        return int(self.features.shape[1])

    def batch(self, index: IntArray | slice) -> NDArray[np.float32]:
        """Windows as an array (B, length, C)."""
        rows = self.starts[index][:, None] + np.arange(self.length)
        gathered: NDArray[np.float32] = self.features[rows]
        return gathered

    def batches(self, size: int) -> Iterator[NDArray[np.float32]]:
        """All windows in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))

    def select(self, index: IntArray | BoolArray) -> WindowSet:
        """Some of the windows; the rows are shared, not copied."""
        return replace(
            self,
            starts=self.starts[index],
            labels=self.labels[index],
            unit=self.unit[index],
            position=self.position[index],
            odd=self.odd[index],
        )


def hold_out(windows: WindowSet, fraction: float, seed: int) -> tuple[WindowSet, WindowSet | None]:
    """Split into a part to fit and a part to validate on: whole units, or the last windows of a single one.

    Nothing is held out when `fraction` is 0 or there are too few windows to spare any.
    """
    present = np.unique(windows.unit)
    if fraction <= 0 or len(windows) < 2:
        return windows, None
    if len(present) == 1:
        order = np.argsort(windows.position, kind="stable")
        kept = min(max(round(len(windows) * (1 - fraction)), 1), len(windows) - 1)
        return windows.select(np.sort(order[:kept])), windows.select(np.sort(order[kept:]))
    count = min(max(round(len(present) * fraction), 1), len(present) - 1)
    chosen = np.random.default_rng(seed).permutation(present)[:count]
    held = np.isin(windows.unit, chosen)
    return windows.select(~held), windows.select(held)
