"""Whether inputs still look like those the model was trained on.

What the recipe knows of the training data is its moments: scaled, every sensor has mean 0 and deviation 1. Each
window of recent rows is compared with that, sensor by sensor:

- *out of range*: a value more than :data:`RANGE` deviations away;
- *drift*: the Kolmogorov-Smirnov distance between the window and the standard normal is at least :data:`DISTANCE`, that
  is, practically the whole window lies more than 2.3 deviations to one side; or the sensor did not change at all over
  the window (stuck).

Wear itself moves the inputs, so the bounds are wide on purpose: they find sensors swapped, stuck or offset by five
deviations, not a model growing old. Both follow by a rule from the training engines of one fleet and are tested on
others: `benchmarks/drift.py`. Windows padded for want of rows, and recipes of fewer than
:data:`LEAST_ROWS` rows, are tested for range only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fedprognos.arrays import BoolArray
from fedprognos.features import Recipe

OUT_OF_RANGE, DRIFT = "out-of-range", "drift"
RANGE = 10.0
DISTANCE = 0.99
LEAST_ROWS = 10
Windows = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Findings:
    """What is odd about each of B windows.

    Parameters
    ----------
    far, distant, stuck : (B, sensors)
        Which sensors are out of range, drifted, stuck.
    peak, mean : (B, sensors)
        Largest and mean deviation over the window.
    """

    sensors: tuple[str, ...]
    far: BoolArray
    distant: BoolArray
    stuck: BoolArray
    peak: NDArray[np.float32]
    mean: NDArray[np.float32]

    @cached_property
    def found(self) -> BoolArray:
        """Which windows have anything odd about them: (B,)."""
        return np.asarray((self.far | self.distant | self.stuck).any(axis=1))

    def of(self, k: int) -> tuple[tuple[str, ...], str]:
        """Flags of window k, and a sentence that names its sensors."""
        if not self.found[k]:
            return (), ""
        flags, said = [], []
        if self.far[k].any():
            flags.append(OUT_OF_RANGE)
            worst = int(np.argmax(self.peak[k]))
            said.append(f"{self._names(self.far[k])} up to {self.peak[k, worst]:.3g} deviations from the training data")
        if self.distant[k].any() or self.stuck[k].any():
            flags.append(DRIFT)
        drifted = self.distant[k] & ~self.stuck[k]
        if drifted.any():
            mean = self.mean[k][drifted]
            off = mean[np.argmax(np.abs(mean))]
            said.append(f"{self._names(drifted)} {off:+.3g} deviations from the training data for a whole window")
        if self.stuck[k].any():
            said.append(f"{self._names(self.stuck[k])} unchanged for a whole window")
        return tuple(flags), "; ".join(said)

    def _names(self, which: BoolArray) -> str:
        names = [name for name, marked in zip(self.sensors, which, strict=True) if marked]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more


def inspect(recipe: Recipe, batch: Windows, padded: BoolArray | None = None) -> Findings:
    """Compare scaled windows (B, window, channels) with the training data.

    Parameters
    ----------
    padded : (B,)
        Windows that repeat their first row and tell little about the distribution.
    """
    z = batch[:, :, : len(recipe.sensors)]
    peak = np.abs(z).max(axis=1)
    distant = stuck = np.zeros(peak.shape, dtype=bool)
    if recipe.window >= LEAST_ROWS:
        distant = _distant(z)
        stuck = z.min(axis=1) == z.max(axis=1)
        if padded is not None and padded.any():
            distant[padded] = stuck[padded] = False
    return Findings(recipe.sensors, ~(peak <= RANGE), distant, stuck, peak, z.mean(axis=1))


def _distant(z: Windows) -> BoolArray:
    """Where the distance reaches :data:`DISTANCE`: (B, C).

    That takes a share of :data:`DISTANCE` of the window beyond that quantile on one side. Counting them is cheap, and
    leaves few windows to sort.
    """
    least = DISTANCE * z.shape[1] - 1e-6
    beyond = float(ndtri(DISTANCE)) - 1e-3
    found = ((z >= beyond).sum(axis=1) >= least) | ((z <= -beyond).sum(axis=1) >= least)
    if found.any():
        found[found] = distance(z.transpose(0, 2, 1)[found][:, :, None])[:, 0] >= DISTANCE
    return np.asarray(found)


def distance(z: Windows) -> NDArray[np.float64]:
    """Kolmogorov-Smirnov distance (B, C) of samples (B, n, C) from the standard normal.

    Examples
    --------
    >>> distance(np.array([[[-0.5], [0.5]], [[5.0], [6.0]]], dtype=np.float32)).round(2).ravel().tolist()
    [0.31, 1.0]
    """
    expected = ndtr(np.sort(z, axis=1)).astype(np.float64)
    n = z.shape[1]
    steps = np.arange(n)[None, :, None] / n
    found: NDArray[np.float64] = np.maximum(expected - steps, steps + 1 / n - expected).max(axis=1)
    return found
