"""Whether a unit's sensors still do what those of the training machines did.

Three things are told apart, each with what the recipe says is usual of the sensor:

- *out of range*: a single value further from the mean of its operating condition than any was in training, and than
  :data:`RANGE` deviations;
- *drift*: the level, smoothed over some twenty rows, is more than :data:`MARGIN` deviations beyond those that training
  machines reached, at the end of their lives included;
- *stuck*: the raw value stayed the same for more than :data:`TIMES_STILL` times as many rows as it ever did in
  training, and for more than :data:`LEAST_STILL`. Scaled values will not do: they change with the condition.

How soon each kind of fault is found, and how often there is none: `benchmarks/faults.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.features import Recipe
from fedprognos.features.sensor_ranges import SETTLED, SensorWatch
from fedprognos.tables.times import DATES_IN_S, SECONDS

OUT_OF_RANGE, DRIFT, STUCK, MID_LIFE = "out-of-range", "drift", "stuck", "mid-life"
DISTRUSTED = frozenset({OUT_OF_RANGE, DRIFT, STUCK})
"""Flags that say a sensor is broken rather than a machine worn."""
RANGE = 10.0
MARGIN = 0.5
TIMES_STILL, LEAST_STILL = 2, 10
UNKNOWN_LEVEL, UNKNOWN_STILL = 3.0, 50
"""Where a recipe does not say what is usual."""


@dataclass(frozen=True, eq=False)
class SensorLimits:
    """What each sensor of a model may do: arrays of (sensors,).

    Parameters
    ----------
    span
        Rows for which a value out of range counts: as long as the model looks at it.
    first
        Position by which the record of a machine must have begun for a model of whole lives.
    dates
        Position from which on positions are dates, which say nothing about a machine's age.
    """

    sensors: tuple[str, ...]
    still: IntArray
    low: FloatArray
    high: FloatArray
    reach: FloatArray
    span: int
    first: float = math.inf
    dates: float = math.inf

    def faults(self, watch: SensorWatch) -> tuple[tuple[str, ...], str]:
        """Flags, and a sentence that names the sensors."""
        far, stuck = watch.far < self.span, watch.still > self.still
        drifted = (watch.level < self.low) | (watch.level > self.high) if watch.count >= SETTLED else far & False
        if not (far | stuck | drifted).any():
            return (), ""
        flags, said = [], []
        if far.any():
            flags.append(OUT_OF_RANGE)
            said.append(f"{self._names(far)} far outside what training machines showed")
        if drifted.any():
            flags.append(DRIFT)
            k = int(np.argmax(np.where(drifted, np.abs(watch.level), -1.0)))
            usual = f"{self.low[k] + MARGIN:.2g} to {self.high[k] - MARGIN:.2g}"
            said.append(f"{self._names(drifted)} {watch.level[k]:+.2g} deviations from the mean, usual are {usual}")
        if stuck.any():
            flags.append(STUCK)
            said.append(f"{self._names(stuck)} unchanged for {int(watch.still[stuck].max())} rows")
        return tuple(flags), "; ".join(said)

    def _names(self, which: BoolArray) -> str:
        names = [name for name, marked in zip(self.sensors, which, strict=True) if marked]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more


def limits_of(recipe: Recipe) -> SensorLimits:
    """The limits of a model's sensors."""
    usual, width = recipe.usual, len(recipe.sensors)
    span = 2 * SETTLED if recipe.life else recipe.window
    first = usual.first if usual is not None and recipe.life else math.inf
    if usual is None:
        level, reach = np.full(width, UNKNOWN_LEVEL), np.full(width, RANGE)
        still = np.full(width, max(UNKNOWN_STILL, recipe.window), dtype=np.int64)
        return SensorLimits(recipe.sensors, still, -level, level, reach, span)
    return SensorLimits(
        recipe.sensors,
        np.maximum(TIMES_STILL * np.array(usual.still), LEAST_STILL),
        np.array(usual.low) - MARGIN,
        np.array(usual.high) + MARGIN,
        np.maximum(np.array(usual.reach), RANGE),
        span,
        first,
        DATES_IN_S / SECONDS[recipe.time_measure] if recipe.time_measure in SECONDS else math.inf,
    )
