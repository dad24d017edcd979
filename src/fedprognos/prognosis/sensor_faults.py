"""Whether a unit's sensors still do what those of the training machines did, and what the network must not see.

Deviations count from the mean of the operating condition, in standard deviations. A sensor is

- *out of range*: a value is :data:`RANGE_FACTOR` times as far from the mean, or from the sensor's own level, as any was
  in training. No machine does that in one row, so the value is held: the network sees the latest good deviation
  instead, as if the value were blank. The level does not follow it either;
- *drifting*: the level, smoothed over some twenty rows, is more than :data:`MARGIN` deviations beyond the levels that
  training machines reached, at the end of their lives included; or it is :data:`ODD_ERRORS` standard errors from what
  the levels of the other sensors say. Where :data:`ODD_SENSORS` or more are, that is no sensor but an unknown wear;
- *stuck*: the raw value stays the same for more than :data:`STILL_FACTOR` times as many rows as it ever did in
  training, or it moves less than half as much as it ever did there (a frozen sensor whose last digit dithers);
- *missing*: it is blank for as many rows.

Drift, standing still, and a value that is out of range again and again (:data:`HELD_SHARE`) latch: they stay until
:meth:`SensorWatch.acknowledge`. A single value that was held leaves nothing behind in the network; its flag ends after
`SensorLimits.span` good rows.

How soon each kind of fault is found, and how often there is none: `benchmarks/faults.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.features import FAR, SETTLED, SMOOTHING, JointLevels, Recipe, RowMemory
from fedprognos.networks import NOVEL_ROWS
from fedprognos.tables import DATES_IN_S, SECONDS

OUT_OF_RANGE, DRIFT, STUCK, MISSING, MID_LIFE = "out-of-range", "drift", "stuck", "missing", "mid-life"
UNKNOWN_WEAR = "unknown-wear"
DISTRUSTED = frozenset({OUT_OF_RANGE, DRIFT, STUCK, MISSING, UNKNOWN_WEAR})
"""Flags under which a value has no interval and no date: a sensor is broken, or the machine wears in an unknown way."""
RANGE_FACTOR, LEAST_RANGE = 1.5, 6.0
"""Training's largest deviation is exceeded by chance in new machines; half as much again, or six deviations, is not."""
MARGIN = 0.5
STILL_FACTOR, LEAST_STILL = 2, 10
MOTION_FACTOR = 0.5
HELD_SHARE = 0.4
"""Smoothed share of held values above which the flag latches: five rows in a row, or two in five for long."""
UNKNOWN_RANGE, UNKNOWN_LEVEL, UNKNOWN_STILL = 10.0, 3.0, 50
"""Limits where a recipe does not say what is usual."""
ODD_ERRORS, ODD_SENSORS = 6.0, 3
"""Standard errors between a level and what the others say of it."""
ODD_FACTOR, USUAL_MOST = 2.0, 4.0
"""Where training machines exceeded the second, sensors do not go together in straight lines. Their largest distance
varies from fleet to fleet, so the limit is the first times it."""
DOUBT = 0.45
MOST_STRETCH = 1 / DOUBT
"""Share of that limit from which on intervals widen, in proportion, and so the most by which they do. A fault begins
before it is found, and values are worse by then than intervals say; `benchmarks/fault_lives.py --choose` chose it."""
LEAST_JOINT_UNITS = 20
"""Machines from which on it is known how sensors go together."""
LATCH_RANGE, LATCH_DRIFT, LATCH_STUCK, LATCH_ODD = 1, 2, 4, 8
"""Bits of :attr:`SensorWatch.latched`."""
MOVED = 1.0
"""Deviations of a level beyond which a sensor is named as one that moves."""
UNKNOWN_WEAR_WORDS = "move together as in no training machine: an unknown kind of wear; inspect"
MOST_ERROR_MAPS = 64
NEVER = np.iinfo(np.int32).max


class WatchedRow(NamedTuple):
    """What is known of a unit's sensors after one of many rows, (sensors,) each; see :class:`SensorWatch`."""

    latched: NDArray[np.integer]
    blank: NDArray[np.integer]
    far: NDArray[np.integer]
    level: FloatArray
    still: NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class SensorLimits:
    """What each sensor of a model may do: arrays of (sensors,).

    Parameters
    ----------
    still
        Rows in a row with the same raw value, or without any.
    low, high
        Levels, in deviations.
    reach, jump
        Distance of a single value from the mean of its condition, and from the level before it, in deviations.
    motion
        Smoothed step from one value to the next, in deviations.
    span
        Rows for which a value out of range is flagged.
    first
        Position by which the record of a machine must have begun for a model of whole lives.
    dates
        Position from which on positions are dates, which say nothing about a machine's age.
    joint
        How levels go together, where enough machines were seen.
    """

    sensors: tuple[str, ...]
    still: IntArray
    low: FloatArray
    high: FloatArray
    reach: FloatArray
    jump: FloatArray
    motion: FloatArray
    span: int
    first: float = math.inf
    dates: float = math.inf
    joint: JointLevels | None = None

    @staticmethod
    def from_recipe(recipe: Recipe) -> SensorLimits:
        """The limits of a model's sensors."""
        usual, width = recipe.usual, len(recipe.sensors)
        span = 2 * SETTLED if recipe.life else recipe.window
        unlimited, motionless = np.full(width, np.inf), np.zeros(width)
        if usual is None:
            level, reach = np.full(width, UNKNOWN_LEVEL), np.full(width, UNKNOWN_RANGE)
            still = np.full(width, max(UNKNOWN_STILL, recipe.window), dtype=np.int64)
            return SensorLimits(recipe.sensors, still, -level, level, reach, unlimited, motionless, span)
        return SensorLimits(
            recipe.sensors,
            np.maximum(STILL_FACTOR * np.array(usual.still), LEAST_STILL),
            np.array(usual.low) - MARGIN,
            np.array(usual.high) + MARGIN,
            np.maximum(RANGE_FACTOR * np.array(usual.reach), LEAST_RANGE),
            np.maximum(RANGE_FACTOR * np.array(usual.jump), LEAST_RANGE) if usual.jump else unlimited,
            MOTION_FACTOR * np.array(usual.motion) if usual.motion else motionless,
            span,
            usual.first if recipe.life else math.inf,
            DATES_IN_S / SECONDS[recipe.time_measure] if recipe.time_measure in SECONDS else math.inf,
            usual.joint if usual.joint is not None and usual.joint.units >= LEAST_JOINT_UNITS else None,
        )

    def oddest_sensor(self, watch: SensorWatch) -> tuple[int, float]:
        """The sensor whose level is furthest from what the others say, and that distance as a share of its limit.

        Sensors that are known to be broken are left out, so that they do not make others look odd.
        """
        if self.joint is None:
            return 0, 0.0
        sound = (watch.latched == 0) & (watch.blank == 0) & (watch.far > SETTLED) & (watch.seen >= SETTLED)
        sensors, excess = self.oddest_sensors(watch.level[None], sound[None])
        return int(sensors[0]), float(excess[0])

    def oddest_sensors(self, levels: FloatArray, sound: BoolArray) -> tuple[IntArray, FloatArray]:
        """The same for many rows (N, sensors) at once, of which only sound sensors count: (N,) each."""
        sensors, excess = np.zeros(len(levels), dtype=np.int64), np.zeros(len(levels))
        whole = sound.all(axis=1)
        groups: list[Any] = [slice(None)] if whole.all() else [np.flatnonzero(whole)]  # nearly all rows
        if not whole.all():
            others = np.flatnonzero(~whole & (sound.sum(axis=1) > 1))
            groups += [others[some] for some in _groups(np.packbits(sound[others], axis=1))]
        for rows in filter(lambda rows: isinstance(rows, slice) or len(rows), groups):
            among = np.flatnonzero(sound[rows][0])
            if len(among) < 2:
                continue
            chosen = levels[rows] if len(among) == sound.shape[1] else levels[rows][:, among]
            share = np.abs(self._shares(chosen, among.tobytes()))
            k = share.argmax(axis=1)
            sensors[rows], excess[rows] = among[k], share[np.arange(len(k)), k]
        return sensors, excess

    @cached_property
    def _odd_limit(self) -> FloatArray:
        most = np.array(() if self.joint is None else self.joint.most)
        limit: FloatArray = np.where(most > USUAL_MOST, ODD_FACTOR * most, ODD_ERRORS)
        return limit

    def _shares(self, levels: FloatArray, among: bytes) -> FloatArray:
        """:meth:`JointLevels.errors` as shares of their limits, with the matrix kept for each set of sensors met."""
        if among not in self._error_maps:
            chosen = np.frombuffer(among, dtype=np.int64)
            joint, limit = cast("JointLevels", self.joint), self._odd_limit[chosen]
            origin = joint.errors(np.zeros(len(chosen)), chosen) / limit
            self._error_maps[among] = joint.errors(np.eye(len(chosen)), chosen) / limit - origin, origin
            if len(self._error_maps) > MOST_ERROR_MAPS:
                self._error_maps.pop(next(iter(self._error_maps)))
        slopes, origin = self._error_maps[among]
        return levels @ slopes + origin

    @cached_property
    def _error_maps(self) -> dict[bytes, tuple[FloatArray, FloatArray]]:
        return {}

    def faults(self, watch: SensorWatch | WatchedRow) -> tuple[tuple[str, ...], str]:
        """Flags, and a sentence that names the sensors."""
        if not (watch.latched.any() or watch.blank.any() or watch.far.min(initial=NEVER) < self.span):
            return (), ""  # as for nearly every row
        latched, missing = watch.latched, watch.blank > self.still
        far = (watch.far < self.span) | ((latched & LATCH_RANGE) > 0)
        drifted, stuck, odd = ((latched & bit) > 0 for bit in (LATCH_DRIFT, LATCH_STUCK, LATCH_ODD))
        if not (far | stuck | drifted | odd | missing).any():
            return (), ""
        flags, sentences = [], []
        if far.any():
            flags.append(OUT_OF_RANGE)
            sentences.append(f"{self._names(far)} far outside what training machines showed")
        if drifted.any():
            flags.append(DRIFT)
            k = int(np.argmax(np.where(drifted, np.abs(watch.level), -1.0)))
            usual = f"{self.low[k] + MARGIN:.2g} to {self.high[k] - MARGIN:.2g}"
            most = f"{self.sensors[k]} most: " if drifted.sum() > 1 else ""
            distance = f"{most}{watch.level[k]:+.2g} deviations from the mean, usual are {usual}"
            sentences.append(f"{self._names(drifted)} beyond the levels of training machines, {distance}")
        if 0 < odd.sum() < ODD_SENSORS:
            flags += [DRIFT] if not drifted.any() else []
            sentences.append(f"{self._names(odd)} not as the other sensors say")
        if stuck.any():
            flags.append(STUCK)
            rows = int(watch.still[stuck].max())
            how = f"unchanged for {rows} rows" if rows > 1 else "hardly moves"
            sentences.append(f"{self._names(stuck)} {how}")
        if missing.any():
            flags.append(MISSING)
            sentences.append(f"{self._names(missing)} blank for {int(watch.blank.max())} rows")
        if odd.sum() >= ODD_SENSORS:
            flags.append(UNKNOWN_WEAR)
            sentences.insert(0, f"{self._names(odd)} {UNKNOWN_WEAR_WORDS}")
        return tuple(flags), "; ".join(sentences)

    def _names(self, which: BoolArray) -> str:
        names = [name for name, marked in zip(self.sensors, which, strict=True) if marked]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more


class SensorWatch(RowMemory):
    """One unit's sensors, row by row.

    Parameters
    ----------
    still, blank : (sensors,)
        Rows in a row with the same raw value, and without any.
    level, motion : (sensors,)
        Smoothed deviation, and smoothed step from one deviation to the next.
    seen : (sensors,)
        Good values so far, which levels are made from.
    good : (sensors,)
        The latest good deviation.
    far : (sensors,)
        Rows since a value was held.
    held : (sensors,)
        Smoothed share of held values.
    latched : (sensors,)
        Bits of the faults that were found.
    excess
        How far the oddest sensor is from what the others say after the latest row, as a share of the limit.

    Examples
    --------
    >>> limits = SensorLimits(("heat",), *(np.array([x]) for x in (10, -3.0, 3.0, 6.0, 6.0, 0.0)), span=20)
    >>> watch = SensorWatch(1)
    >>> [watch.push(np.array([x]), np.array([False]), np.array([x]), limits).tolist() for x in (1.0, 900.0, 2.0)]
    [[1.0], [1.0], [2.0]]
    >>> limits.faults(watch)
    (('out-of-range',), 'heat far outside what training machines showed')
    """

    __slots__ = ("blank", "excess", "far", "good", "held", "latched", "level", "motion", "raw", "seen", "still")
    arrays = ("raw", "still", "blank", "level", "motion", "seen", "good", "far", "held", "latched")

    def __init__(self, sensors: int) -> None:
        self.raw = np.full(sensors, np.nan)
        self.still: IntArray = np.zeros(sensors, dtype=np.int64)
        self.blank: IntArray = np.zeros(sensors, dtype=np.int64)
        self.level: FloatArray = np.zeros(sensors)
        self.motion: FloatArray = np.zeros(sensors)
        self.seen: IntArray = np.zeros(sensors, dtype=np.int64)
        self.good: FloatArray = np.zeros(sensors)
        self.far: IntArray = np.full(sensors, NEVER, dtype=np.int64)
        self.held: FloatArray = np.zeros(sensors)
        self.latched: IntArray = np.zeros(sensors, dtype=np.int64)
        self.excess = 0.0  # of the latest row alone, so no snapshot needs it

    @property
    def stretch(self) -> float:
        """How many times wider intervals are, because sensors begin to disagree."""
        return min(max(self.excess / DOUBT, 1.0), MOST_STRETCH)

    def push(
        self, raw: FloatArray, blank: BoolArray, deviation: NDArray[np.floating], limits: SensorLimits
    ) -> FloatArray:
        """Note the next row; the deviations (sensors,) that the network may see of it.

        Parameters
        ----------
        raw, deviation : (sensors,)
            As measured, and from the mean of the condition. Something stands in for what was blank.
        blank : (sensors,)
            Which values were blank.
        """
        count = self.seen
        impossible = ~(np.abs(deviation) <= limits.reach)  # so that NaN is impossible, too
        impossible |= (count >= SETTLED) & ~(np.abs(deviation - self.level) <= limits.jump)
        if impossible.any() or blank.any():
            visible = self._note_gaps(raw, blank, deviation, impossible)
        else:  # what :meth:`_note_gaps` does, without the cases that most rows do not have
            visible = deviation.astype(np.float64)
            self.still = np.where(raw == self.raw, self.still + 1, 1)
            self.raw, self.blank = raw.copy(), np.zeros_like(count)
            step = np.minimum(np.abs(visible - self.good), FAR)
            self.motion = np.where(count > 0, _smoothed(self.motion, step, count), self.motion)
            self.seen = count + 1
            self.level = _smoothed(self.level, np.minimum(np.maximum(visible, -FAR), FAR), self.seen)
            self.good = visible
            self.far = self.far + 1
            self.held = self.held - SMOOTHING * self.held

        drifted = (self.level < limits.low) | (self.level > limits.high)
        motionless = self.motion < limits.motion
        stuck, repeated = self.still > limits.still, self.held > HELD_SHARE
        if (drifted | motionless | stuck | repeated).any():
            self.latched = (
                self.latched
                | np.where(repeated, LATCH_RANGE, 0)
                | np.where(drifted & (self.seen >= SETTLED), LATCH_DRIFT, 0)
                | np.where(stuck | (motionless & (self.seen > SETTLED)), LATCH_STUCK, 0)
            )
        odd, self.excess = limits.oddest_sensor(self)
        if self.excess > 1:
            self.latched[odd] |= LATCH_ODD
        return visible

    def _note_gaps(
        self, raw: FloatArray, blank: BoolArray, deviation: NDArray[np.floating], impossible: BoolArray
    ) -> FloatArray:
        """Note a row in which some values are blank or impossible; what the network may see of it."""
        held, good = impossible & ~blank, ~impossible & ~blank
        visible: FloatArray = np.where(impossible, self.good, deviation)
        self.still = np.where(blank, 1, np.where(raw == self.raw, self.still + 1, 1))
        self.raw = np.where(blank, np.nan, raw)
        self.blank = np.where(blank, self.blank + 1, 0)
        step = np.minimum(np.abs(visible - self.good), FAR)
        self.motion = np.where(good & (self.seen > 0), _smoothed(self.motion, step, self.seen), self.motion)
        self.seen = self.seen + good
        self.level = np.where(good, _smoothed(self.level, np.clip(visible, -FAR, FAR), self.seen), self.level)
        self.good = np.where(good, visible, self.good)
        self.far = np.where(held, 0, self.far + 1)
        self.held = self.held + SMOOTHING * (held - self.held)
        return visible

    def acknowledge(self, sensor: int | None = None) -> None:
        """Drop latched faults, of all sensors or of one, after somebody has looked. One that lasts is found again.

        Levels begin anew, so that a sensor that was exchanged is not judged by what the old one showed.
        """
        which = slice(None) if sensor is None else slice(sensor, sensor + 1)
        for name in ("still", "blank", "seen", "latched"):
            getattr(self, name)[which] = 0
        self.held[which] = 0.0
        self.far[which] = NEVER


class NoveltyWatch(RowMemory):
    """Whether the network's state of one unit has left what training machines showed.

    One odd row moves the state for a moment; :data:`NOVEL_ROWS` in a row are another kind of wear. That latches.
    """

    __slots__ = ("latched", "rows")
    scalars = ("rows", "latched")

    def __init__(self) -> None:
        self.rows = 0  # in a row beyond the limit
        self.latched = False

    def push(self, distance: float, limit: float) -> bool:
        """Note how far the state is after one more row; whether the unit wears in an unknown way."""
        self.rows = self.rows + 1 if distance > limit else 0
        self.latched = self.latched or self.rows >= NOVEL_ROWS
        return self.latched

    def acknowledge(self) -> None:
        """Drop what was found, after somebody has looked."""
        self.rows, self.latched = 0, False


def unknown_wear(sensors: tuple[str, ...], levels: FloatArray) -> str:
    """What is known of a machine whose state is novel: which sensors have left their mean, and what to do."""
    moved = [sensors[k] for k in np.argsort(-np.abs(levels)) if abs(levels[k]) > MOVED]
    if not moved:
        return f"its sensors {UNKNOWN_WEAR_WORDS}"
    names = ", ".join(moved[:3]) + (f" and {len(moved) - 3} more" if len(moved) > 3 else "")
    return f"{names} {UNKNOWN_WEAR_WORDS}"


def _groups(patterns: NDArray[np.uint8]) -> list[IntArray]:
    """Rows with the same pattern (N, k), group by group."""
    padded = np.zeros((len(patterns), 8 * -(-patterns.shape[1] // 8)), dtype=np.uint8)
    padded[:, : patterns.shape[1]] = patterns
    words = padded.view(np.uint64)
    key = words[:, 0] if words.shape[1] == 1 else np.unique(words, axis=0, return_inverse=True)[1].reshape(-1)
    _, group = np.unique(key, return_inverse=True)
    return np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])


def _smoothed(before: FloatArray, now: FloatArray, count: IntArray) -> FloatArray:
    """Exponential smoothing that begins as the mean of the first values; `count` includes the new one."""
    rate = SMOOTHING if count.min(initial=SETTLED) >= SETTLED else np.maximum(SMOOTHING, 1 / np.maximum(count, 1))
    smoothed: FloatArray = before + rate * (now - before)
    return smoothed
