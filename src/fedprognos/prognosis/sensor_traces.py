"""What :class:`SensorWatch` finds, for the rows of many units at once.

Units stand side by side, a step takes one row of each: only what depends on the row before is done step by step, all
else for all rows together. :meth:`SensorWatch.push` is the slow specification; tests hold both to be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import BoolArray, FloatArray, IntArray, Rows
from fedprognos.features import FAR, SETTLED, SMOOTHING, Recipe
from fedprognos.prognosis.row_steps import Steps
from fedprognos.prognosis.sensor_faults import (
    DOUBT,
    HELD_SHARE,
    LATCH_DRIFT,
    LATCH_ODD,
    LATCH_RANGE,
    LATCH_STUCK,
    MOST_STRETCH,
    NEVER,
    SensorLimits,
    SensorWatch,
    WatchedRow,
)


@dataclass(frozen=True, eq=False)
class SensorTrace:
    """What was found at each row, in the order of steps.

    Parameters
    ----------
    latched, blank, far, level, still : (N, sensors)
        As :class:`SensorWatch` has them after the row; far is cut off beyond what matters.
    stretch : (N,)
        How many times wider intervals are.
    suspect : (N,)
        Rows at which something may be wrong: there is nothing to say of all others.
    """

    latched: NDArray[np.uint8]
    blank: NDArray[np.int32]
    far: NDArray[np.int32]
    level: FloatArray
    still: NDArray[np.int32]
    stretch: FloatArray
    suspect: BoolArray

    def at(self, k: int) -> WatchedRow:
        """One row."""
        return WatchedRow(self.latched[k], self.blank[k], self.far[k], self.level[k], self.still[k])


class UnsoundRowError(Exception):
    """A row overflows once its blanks are filled: the rows have to be looked at one by one."""


class SensorWalk:
    """Rows of all units, step by step: what :meth:`SensorWatch.push` does for one row, its verdicts at the end.

    Parameters
    ----------
    watches : (U,)
        By rank.
    latest : (U, sensors + settings)
        The latest value of each that was given; changed in place.
    given : (N, sensors + settings)
        In the order of steps. Sensors may be blank, settings may not.
    scaled : (N, columns)
        The same, scaled; not a number where a sensor is blank. Becomes what the network may see.
    held : (sensors,)
        Whether the latest value stands in for a blank one, or the mean.
    """

    def __init__(
        self,
        watches: Sequence[SensorWatch],
        latest: FloatArray,
        limits: SensorLimits,
        recipe: Recipe,
        steps: Steps,
        given: FloatArray,
        scaled: Rows,
        held: BoolArray,
    ) -> None:
        width, begins = len(recipe.sensors), steps.begins[:-1]
        self.watches = watches
        self.latest, self.limits, self.recipe, self.steps, self.held = latest, limits, recipe, steps, held
        self.given, self.raw, self.settings = given, given[:, :width], given[:, width:]
        self.scaled, self.deviations = scaled, recipe.deviations(self.raw, scaled)
        self.state = {
            name: np.concatenate([getattr(watch, name) for watch in watches]).reshape(-1, width)
            for name in SensorWatch.arrays  # what np.stack gives, in a third of its time
        }
        self.blanks = np.isnan(self.raw)
        self.repeats = _repeats(self.raw, self.state["raw"], steps)
        self.blank_at, self.repeat_at = (
            np.logical_or.reduceat(where.any(axis=1), begins).tolist() for where in (self.blanks, self.repeats)
        )
        with np.errstate(invalid="ignore"):
            self.out_of_reach = ~(np.abs(self.deviations) <= limits.reach)
        self.held_at = -1 - self.state["far"]  # step of the latest held value
        self.latest_hold = int(self.held_at.max(initial=-NEVER))
        self.near = max(limits.span, SETTLED + 1)
        self.settled = bool(self.state["seen"].min(initial=NEVER) > SETTLED)  # of all units that go on
        self.quiet = not self.state["held"].any()
        self.moves = bool((limits.motion > 0).any())
        shape = self.raw.shape
        self.levels = np.empty(shape)
        self.stills, self.blank_runs = np.ones(shape, np.int32), np.zeros(shape, np.int32)
        self.fars, self.ripe = np.full(shape, NEVER, np.int32), np.full(shape, SETTLED + 1, np.int8)
        self.motionless, self.repeated = np.zeros(shape, bool), np.zeros(shape, bool)

    def trace(self) -> SensorTrace:
        """What is found at each row; the watches and the latest values are those after the last rows.

        Raises
        ------
        UnsoundRowError
            Where a row cannot be used; the watches are as before then.
        """
        for t, rows in enumerate(self.steps.slices):
            self._take(t, rows)
        return self._judged()

    def _take(self, t: int, rows: slice) -> None:
        """Take the rows of a step. Units that have ended keep what they had."""
        units = slice(rows.stop - rows.start)
        seen, level, motion, good, share = (
            self.state[name][units] for name in ("seen", "level", "motion", "good", "held")
        )
        shown = self.deviations[rows]
        if self.blank_at[t]:
            self._fill(rows, self.latest[units, : self.raw.shape[1]])
            self.out_of_reach[rows] = ~(np.abs(shown) <= self.limits.reach)
        impossible = np.abs(shown - level) > self.limits.jump
        if not self.settled:
            impossible &= seen >= SETTLED
        impossible |= self.out_of_reach[rows]
        sound: BoolArray | None = None  # all are
        if self.blank_at[t] or impossible.any():
            sound = ~(impossible | self.blanks[rows])
            shown = self._hold(t, rows, units, impossible)
        else:
            self.latest[units] = self.given[rows]
            if not self.quiet:
                share -= SMOOTHING * share
        change = np.minimum(np.abs(shown - good), FAR)
        change -= motion
        change *= SMOOTHING if self.settled else np.where(seen > 0, _rate(seen), 0.0)
        motion += change if sound is None else change * sound
        seen += 1 if sound is None else sound
        change = np.clip(shown, -FAR, FAR)
        change -= level
        change *= SMOOTHING if self.settled else _rate(seen)
        level += change if sound is None else change * sound
        np.copyto(good, shown, where=True if sound is None else sound)
        self.levels[rows] = level
        if self.moves:
            np.less(motion, self.limits.motion, out=self.motionless[rows])
        if not self.quiet:
            np.greater(share, HELD_SHARE, out=self.repeated[rows])
        if t - self.latest_hold <= self.near:
            np.minimum(t - self.held_at[units], NEVER, out=self.fars[rows], casting="unsafe")
        if not self.settled:
            np.minimum(seen, SETTLED + 1, out=self.ripe[rows], casting="unsafe")
            self.settled = bool(seen[: self.steps.units_at(t + 1)].min(initial=NEVER) > SETTLED)
        self._count(t, rows, units)

    def _fill(self, rows: slice, latest: FloatArray) -> None:
        """Put something in place of the blanks of a step: the latest value, else the mean."""
        which = np.flatnonzero(self.blanks[rows].any(axis=1))
        at = rows.start + which
        settings = self.settings[at]
        values = np.where(self.blanks[at] & self.held, latest[which], self.raw[at])
        left = np.isnan(values)
        if left.any():
            values = np.where(left, self.recipe.means(settings), values)
        with np.errstate(all="ignore"):
            self.scaled[at] = scaled = self.recipe.scale(values, settings)[0]
        if not np.isfinite(scaled).all():
            raise UnsoundRowError
        self.deviations[at] = self.recipe.deviations(values, scaled)

    def _hold(self, t: int, rows: slice, units: slice, impossible: BoolArray) -> FloatArray:
        """What the network may see of a step with blank or impossible values."""
        width, now, share = self.raw.shape[1], self.deviations[rows], self.state["held"][units]
        shown: FloatArray = np.where(impossible, self.state["good"][units], now)
        changed = shown != now
        self.scaled[rows, :width][changed] = shown[changed]
        np.copyto(self.latest[units, :width], self.raw[rows], where=~(changed | self.blanks[rows]))
        self.latest[units, width:] = self.settings[rows]
        held = impossible & ~self.blanks[rows]
        share += SMOOTHING * (held - share)
        if held.any():
            self.held_at[units][held] = t
            self.quiet, self.latest_hold = False, t
        return shown

    def _count(self, t: int, rows: slice, units: slice) -> None:
        """Count rows in a row with the same value, and without any."""
        still, blank = self.state["still"][units], self.state["blank"][units]
        if self.repeat_at[t]:
            still *= self.repeats[rows]
            still += 1
            self.stills[rows] = still
        else:
            still[:] = 1
        if self.blank_at[t]:
            blank += 1
            blank *= self.blanks[rows]
            self.blank_runs[rows] = blank
        else:
            blank[:] = 0

    def _judged(self) -> SensorTrace:
        """Which faults latched at which row; the watches are those after the last rows."""
        limits, steps, state, levels = self.limits, self.steps, self.state, self.levels
        events = {
            LATCH_RANGE: self.repeated,
            LATCH_DRIFT: ((levels < limits.low) | (levels > limits.high)) & (self.ripe >= SETTLED),
            LATCH_STUCK: (self.stills > limits.still) | (self.motionless & (self.ripe > SETTLED)),
        }
        latched = state["latched"].astype(np.uint8)[steps.rank]
        for bit, found in events.items():
            rows, sensors = np.nonzero(found)
            _latch(latched, bit, rows, sensors, steps)
        sound = (latched == 0) & (self.blank_runs == 0) & (self.fars > SETTLED) & (self.ripe >= SETTLED)
        excess = _disagreement(limits, steps, levels, sound, latched)
        last = steps.last_rows()
        state["latched"] = latched[last].astype(np.int64)
        state["raw"], state["far"] = self.raw[last], steps.step[last][:, None] - self.held_at
        for k, watch in enumerate(self.watches):
            for name, numbers in state.items():
                setattr(watch, name, numbers[k])
            watch.excess = float(excess[last[k]])
        suspect = np.asarray(((latched > 0) | (self.blank_runs > 0) | (self.fars < limits.span)).any(axis=1))
        stretch = np.clip(excess / DOUBT, 1.0, MOST_STRETCH)
        return SensorTrace(latched, self.blank_runs, self.fars, levels, self.stills, stretch, suspect)


def _rate(count: IntArray) -> FloatArray:
    """Weight of the newest value where so many count; see :func:`fedprognos.prognosis.sensor_faults._smoothed`."""
    rate: FloatArray = np.maximum(SMOOTHING, 1 / np.maximum(count, 1))
    return rate


def _repeats(raw: FloatArray, before: FloatArray, steps: Steps) -> BoolArray:
    """Where a raw value is that of the row before: (N, sensors); `before` (U, sensors) those before the first rows."""
    first = len(before)
    repeats: BoolArray = np.empty(raw.shape, dtype=bool)
    repeats[:first] = raw[:first] == before
    repeats[first:] = raw[first:] == raw[steps.begins[steps.step[first:] - 1] + steps.rank[first:]]
    return repeats


def _latch(latched: NDArray[np.uint8], bit: int, rows: IntArray, sensors: IntArray, steps: Steps) -> None:
    """Set a bit from the first of some rows, in their order, on: of the same unit and sensor."""
    if not len(rows):
        return
    never = len(steps.begins)
    since = np.full((len(steps.units), latched.shape[1]), never)
    since[steps.rank[rows[::-1]], sensors[::-1]] = steps.step[rows[::-1]]  # the first of them is written last
    units = np.flatnonzero((since < never).any(axis=1))
    of_units = np.flatnonzero(np.isin(steps.rank, units))
    after = steps.step[of_units, None] >= since[steps.rank[of_units]]
    latched[of_units] |= np.where(after, np.uint8(bit), np.uint8(0))


def _disagreement(
    limits: SensorLimits, steps: Steps, levels: FloatArray, sound: BoolArray, latched: NDArray[np.uint8]
) -> FloatArray:
    """How far the oddest sensor is from what the others say at each row (N,), as a share of its limit.

    A sensor beyond it latches, and is left out of the rows after.
    """
    excess = np.zeros(len(levels))
    left = np.arange(len(levels)) if limits.joint is not None else np.empty(0, dtype=np.int64)
    while len(left):
        oddest, excess[left] = limits.oddest_sensors(levels[left], sound[left])
        hits = np.flatnonzero(excess[left] > 1)
        units, first = np.unique(steps.rank[left[hits]], return_index=True)
        if not len(units):
            break
        sensor, since = np.zeros(len(steps.units), np.int64), np.full(len(steps.units), len(steps.begins))
        sensor[units], since[units] = oddest[hits[first]], steps.step[left[hits[first]]]
        rows = left[hits[first]]
        _latch(latched, LATCH_ODD, rows, sensor[units], steps)
        left = left[steps.step[left] > since[steps.rank[left]]]
        sound[left, sensor[steps.rank[left]]] = False
    return excess
