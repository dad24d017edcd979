"""What sensors usually do: how long a raw value stays the same, how much it moves, how far it and its level go.

It is learnt from the training machines, over their whole lives, and tells a broken sensor from a worn machine later on.
A client rounds every number outwards before it sends it, so that none is a value of its data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.features import conditions
from fedprognos.features.moments import Moments
from fedprognos.fleet import Fleet, Unit

SMOOTHING = 0.1
"""Weight of the newest row in a level: some twenty rows count."""
SETTLED = round(1 / SMOOTHING)
"""Rows before a level is judged; until then it is their mean."""
FAR = 10.0
"""Deviations beyond which a single value tells nothing more: levels are of values cut off there."""
QUARTER = 0.25
JOINT_RIDGE = 0.01
"""Added to the variance of every level, in squared deviations: nothing is known more exactly than to a tenth."""
MOST_JOINT_SENSORS, LEAST_JOINT_UNITS = 64, 5
"""Of more sensors the covariance is too large to send; of fewer machines it would tell about one of them."""
MOST_JOINT_ROWS = 200_000

Cells = Mapping[conditions.Key, Moments]
Bound = Annotated[float, Field(allow_inf_nan=False)]


class JointLevels(BaseModel):
    """How the levels of all sensors go together: what a sensor shows is nearly known from what the others show.

    Wear moves many sensors along the same few paths. A sensor that leaves them alone is broken; several that leave them
    together are another kind of wear.

    Parameters
    ----------
    rows, units
        How many levels, and of how many machines, it was learnt from; units rounded down to a power of two.
    mean : (sensors,)
    covariance : (sensors, sensors)
        In deviations, four digits each.
    most : (sensors,)
        Largest distance of a level from what the others say, in standard errors, rounded up to a quarter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Annotated[int, Field(ge=1, le=10**12)]
    units: Annotated[int, Field(ge=1, le=10**9)]
    mean: tuple[Annotated[float, Field(ge=-2 * FAR, le=2 * FAR)], ...]
    covariance: tuple[tuple[Annotated[float, Field(ge=-4 * FAR**2, le=4 * FAR**2)], ...], ...]
    most: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]

    @model_validator(mode="after")
    def _square(self) -> Self:
        width = len(self.mean)
        if len(self.covariance) != width or any(len(row) != width for row in self.covariance):
            raise ValueError("a covariance has a row and a column for every sensor")
        if len(self.most) != width or any(self.covariance[k][k] < 0 for k in range(width)):
            raise ValueError("there must be one distance a sensor, and no negative variance")
        return self

    @staticmethod
    def from_moments(
        rows: int, units: int, mean: FloatArray, covariance: FloatArray, most: Sequence[float]
    ) -> JointLevels:
        """From mean (sensors,) and covariance (sensors, sensors), in four digits."""
        return JointLevels(
            rows=rows,
            units=units,
            mean=_digits(mean),
            covariance=tuple(_digits(row) for row in covariance),
            most=tuple(most),
        )

    def errors(self, levels: FloatArray, among: IntArray) -> FloatArray:
        """How far levels (..., k) of some sensors are from what the others among them say, in standard errors."""
        covariance = np.array(self.covariance)[np.ix_(among, among)] + JOINT_RIDGE * np.eye(len(among))
        precision = np.linalg.inv(covariance)
        distances: FloatArray = (levels - np.array(self.mean)[among]) @ precision / np.sqrt(np.diag(precision))
        return distances


class SensorRanges(BaseModel):
    """What the sensors of some machines did, one number a sensor.

    Parameters
    ----------
    still
        Most rows in a row with the same raw value, rounded up to a power of two.
    low, high
        Lowest and highest level, in deviations from the mean of the operating condition, rounded outwards.
    reach
        Largest deviation of a single value, rounded up to a power of two.
    jump
        Largest distance of a single value from the level before it, in deviations, rounded up to a power of two.
        Empty in recipes that were made before it was learnt.
    motion
        Smallest smoothed step from one value to the next, in deviations, rounded down to a power of two; 0 where a
        sensor stayed still. Empty as `jump` may be.
    first
        Latest position at which the record of a machine begins, rounded up to a power of two.
    joint
        How the levels go together; None for cyclic units, and where there were too few machines.
    level_mean, level_std
        What deviations of the sensor at whose levels cycles are read are measured by; its scaling is one of times.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    still: tuple[Annotated[int, Field(ge=1)], ...]
    low: tuple[Bound, ...]
    high: tuple[Bound, ...]
    reach: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]
    first: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    jump: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()
    motion: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = ()
    joint: JointLevels | None = None
    level_mean: Bound = 0.0
    level_std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _one_a_sensor(self) -> Self:
        if self.joint is not None and len(self.joint.mean) != len(self.still):
            raise ValueError("levels go together for as many sensors as there are")
        learnt = (self.low, self.high, self.reach, *filter(len, (self.jump, self.motion)))
        if any(len(numbers) != len(self.still) for numbers in learnt):
            raise ValueError("there must be as many of each as there are sensors")
        if any(low > high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError("the lowest level is above the highest")
        return self


def longest_still(raw: FloatArray) -> IntArray:
    """Most rows in a row with the same value, for each column of rows (T, C).

    >>> longest_still(np.array([[1.0, 5.0], [2.0, 5.0], [2.0, 6.0]])).tolist()
    [2, 2]
    """
    longest = np.ones(raw.shape[1], dtype=np.int64)
    for c in range(raw.shape[1]):
        changes = np.flatnonzero(raw[1:, c] != raw[:-1, c]) + 1
        longest[c] = np.diff(changes, prepend=0, append=len(raw)).max()
    return longest


def levels(deviations: FloatArray) -> FloatArray:
    """Levels after row :data:`SETTLED` and after each that follows it, smoothed row by row.

    :class:`fedprognos.prognosis.sensor_faults.SensorWatch` makes the same numbers one row at a time.
    """
    from scipy.signal import lfilter  # loading it takes half a second, and prediction never needs it

    cut = np.clip(deviations, -FAR, FAR)
    first = cut[:SETTLED].mean(axis=0)
    if len(cut) <= SETTLED:
        return first[None] if len(cut) == SETTLED else np.empty((0, cut.shape[1]))
    later, _ = lfilter([SMOOTHING], [1.0, SMOOTHING - 1], cut[SETTLED:], axis=0, zi=(1 - SMOOTHING) * first[None])
    return np.concatenate([first[None], later])


def ranges_of_units(
    units: Iterable[tuple[FloatArray, FloatArray]],
    sensors: int,
    first: float = 0.0,
    joint: bool = False,
    every: int = 1,
    **level: float,
) -> SensorRanges:
    """What is usual of some units, given by their raw values and deviations (T, sensors) each.

    Parameters
    ----------
    first
        Latest position at which one of them begins.
    joint
        Learn how levels go together, too.
    every
        Of so many levels of a unit, one is kept to learn that from.
    """
    still, reach = np.ones(sensors, dtype=np.int64), np.zeros(sensors)
    low, high, jump, motion = np.zeros(sensors), np.zeros(sensors), np.zeros(sensors), np.full(sensors, FAR)
    smooth: list[FloatArray] = []
    settled = False  # records shorter than that tell neither jumps nor motion
    for raw, deviations in units:
        still = np.maximum(still, longest_still(raw))
        reach = np.maximum(reach, np.abs(deviations).max(axis=0))
        smoothed = levels(deviations)
        if len(smoothed):
            low, high = np.minimum(low, smoothed.min(axis=0)), np.maximum(high, smoothed.max(axis=0))
            smooth.append(smoothed[::every].copy() if every > 1 else smoothed)
        if len(smoothed) > 1:
            settled = True
            jump = np.maximum(jump, np.abs(deviations[SETTLED:] - smoothed[:-1]).max(axis=0))
            motion = np.minimum(motion, levels(np.abs(np.diff(deviations, axis=0))).min(axis=0))
    return SensorRanges(
        first=_power_of_two(first),
        still=tuple(int(_power_of_two(n)) for n in still.tolist()),
        low=tuple((np.floor(low / QUARTER) * QUARTER).tolist()),
        high=tuple((np.ceil(high / QUARTER) * QUARTER).tolist()),
        reach=tuple(_power_of_two(x) for x in reach.tolist()),
        jump=tuple(_power_of_two(x) for x in jump.tolist()) if settled else (),
        motion=tuple(_power_of_two_below(x) for x in motion.tolist()) if settled else (),
        joint=_joint_levels(smooth) if joint else None,
        **level,
    )


def _joint_levels(units: Sequence[FloatArray]) -> JointLevels | None:
    """How levels (T, sensors) of some machines go together; None where they are too few, or have too many sensors."""
    if len(units) < LEAST_JOINT_UNITS or not 2 <= units[0].shape[1] <= MOST_JOINT_SENSORS:
        return None
    joined = np.concatenate(units)
    covariance, width = np.cov(joined.T, bias=True), joined.shape[1]
    known_units = int(_power_of_two_below(len(units)))
    joint = JointLevels.from_moments(len(joined), known_units, joined.mean(axis=0), covariance, (0.0,) * width)
    errors = np.abs(joint.errors(joined, np.arange(len(covariance)))).max(axis=0)
    return joint.model_copy(update={"most": tuple((np.ceil(errors / QUARTER) * QUARTER).tolist())})


def _digits(numbers: FloatArray) -> tuple[float, ...]:
    return tuple(float(f"{number:.4g}") for number in numbers)


def _power_of_two(number: float) -> float:
    """The next one at or above a number, 1 at least."""
    return 2.0 ** math.ceil(math.log2(max(number, 1.0)))


def _power_of_two_below(number: float) -> float:
    """The next one at or below a number; 0 for what is next to nothing."""
    return 0.0 if number < 2.0**-20 else 2.0 ** math.floor(math.log2(number))


def fleet_ranges(
    fleet: Fleet,
    order: Sequence[int],
    scaling: Mapping[conditions.Key, tuple[FloatArray, FloatArray]],
    rule: Mapping[str, int],
    level: LevelScaling | None,
) -> SensorRanges:
    """What the sensors of a fleet usually do.

    Parameters
    ----------
    order
        Columns of the sensors that count.
    scaling
        Mean and deviation of every sensor (sensors,) in each condition.
    rule
        Decimals to which each setting is rounded to make an operating condition.
    level
        The same of the sensor at whose levels cycles are read, None for none.
    """
    condition_keys, width = np.array(list(scaling)), len(order)
    mean, std = (np.stack([numbers[k] for numbers in scaling.values()]) for k in (0, 1))
    if level is not None:
        mean[:, level.column], std[:, level.column] = level.mean, level.std
    std = np.where(std > 0, std, std.max(axis=0))
    std = np.where(std > 0, std, 1.0)

    def raw_and_scaled(unit: Unit) -> tuple[FloatArray, FloatArray]:
        which = conditions.nearest(unit.settings, rule, fleet.schema.settings, condition_keys)[0]
        raw = unit.sensors[:, order]
        return raw, (raw - mean[which]) / std[which]

    series = all(unit.cycles is None for unit in fleet)  # within a cycle, sensors follow its course
    measured = {} if level is None else {"level_mean": level.mean, "level_std": level.std}
    rows = sum(max(unit.rows - SETTLED + 1, 0) for unit in fleet)  # that have a level
    first, every = max(float(unit.time[0]) for unit in fleet), rows // MOST_JOINT_ROWS + 1
    return ranges_of_units(map(raw_and_scaled, fleet), width, first, series, every, **measured)


def level_moments(fleet: Fleet, column: int) -> Moments:
    """Of the values, not the times, of the sensor at whose levels cycles are read."""
    return Moments.from_rows(np.concatenate([unit.sensors[:, [column]] for unit in fleet]))


class LevelScaling(NamedTuple):
    """What deviations of the sensor at whose levels cycles are read are measured by; its own scaling is one of times.

    Parameters
    ----------
    column
        Of the sensor among those that count.
    """

    column: int
    mean: float
    std: float

    @staticmethod
    def from_moments(column: int, values: Moments) -> LevelScaling:
        """The scaling by some moments of the sensor."""
        return LevelScaling(column, float(values.mean[0]), float(values.std[0]) or 1.0)


def merged_ranges(
    sent: Sequence[tuple[SensorRanges | None, Cells]],
    scaling: Mapping[conditions.Key, tuple[Sequence[float], Sequence[float]]],
    level: int | None,
) -> SensorRanges | None:
    """What is usual of all clients' machines, in the common scaling; None where a client sent nothing that fits.

    Parameters
    ----------
    sent
        What is usual at each client, in the scaling by its own moments.
    scaling
        Common mean and deviation of every sensor (sensors,) in each condition.
    level
        The sensor at whose levels cycles are read, None for none.

    A deviation of v at a client is (its mean - common mean + v its deviation) / common deviation in the common scaling.
    Levels mix conditions, so the widest of any condition counts.
    """
    width = len(next(iter(scaling.values()))[0])
    measured = [(usual, cells) for usual, cells in sent if usual is not None and len(usual.still) == width]
    if len(measured) < len(sent):
        return None
    low, high, reach, still = np.zeros(width), np.zeros(width), np.zeros(width), np.ones(width, dtype=np.int64)
    jump, motion = np.zeros(width), np.full(width, np.inf)
    level_mean = float(np.mean([usual.level_mean for usual, _ in measured]))
    level_std = max(usual.level_std for usual, _ in measured)
    for usual, cells in measured:
        still = np.maximum(still, usual.still)
        for key, moments in cells.items():
            mean, std = (np.array(numbers) for numbers in scaling[key])
            shift, stretch = (moments.mean[:width] - mean) / std, moments.std[:width] / std
            if level is not None:
                shift[level] = (usual.level_mean - level_mean) / level_std
                stretch[level] = usual.level_std / level_std
            low = np.minimum(low, shift + stretch * np.array(usual.low))
            high = np.maximum(high, shift + stretch * np.array(usual.high))
            reach = np.maximum(reach, np.abs(shift) + stretch * np.array(usual.reach))
            if usual.jump and usual.motion:
                jump = np.maximum(jump, stretch * np.array(usual.jump))
                motion = np.minimum(motion, stretch * np.array(usual.motion))
    joint = _merged_joint(
        [
            (usual.joint, *_mean_scaling(cells, scaling, width))
            for usual, cells in measured
            if usual.joint is not None and level is None
        ]
    )
    learnt = all(usual.jump and usual.motion for usual, _ in measured)
    return SensorRanges(
        still=tuple(still.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        reach=tuple(reach.tolist()),
        jump=tuple(jump.tolist()) if learnt else (),
        motion=tuple(motion.tolist()) if learnt else (),
        first=max(usual.first for usual, _ in measured),
        joint=joint,
        level_mean=level_mean,
        level_std=level_std,
    )


def _mean_scaling(
    cells: Cells, scaling: Mapping[conditions.Key, tuple[Sequence[float], Sequence[float]]], width: int
) -> tuple[FloatArray, FloatArray]:
    """Shift and stretch (sensors,) from a client's scaling to the common one, on average over its conditions."""
    rows = np.array([moments.n for moments in cells.values()], dtype=np.float64)[:, None]
    mean, std = (np.array([scaling[key][part] for key in cells]) for part in (0, 1))
    shift = np.stack([moments.mean[:width] for moments in cells.values()]) - mean
    stretch = np.stack([moments.std[:width] for moments in cells.values()])
    return (rows * shift / std).sum(axis=0) / rows.sum(), (rows * stretch / std).sum(axis=0) / rows.sum()


def _merged_joint(clients: Sequence[tuple[JointLevels, FloatArray, FloatArray]]) -> JointLevels | None:
    """How levels go together over all clients, each given with the shift and stretch to the common scaling."""
    if not clients:
        return None
    rows = np.array([joint.rows for joint, _, _ in clients], dtype=np.float64)
    share = rows / rows.sum()
    means = np.stack([shift + stretch * np.array(joint.mean) for joint, shift, stretch in clients])
    within = np.stack([np.outer(stretch, stretch) * np.array(joint.covariance) for joint, _, stretch in clients])
    mean = share @ means
    between = np.einsum("c,ci,cj->ij", share, means - mean, means - mean)
    covariance = np.einsum("c,cij->ij", share, within) + between
    units, most = sum(joint.units for joint, _, _ in clients), np.max([joint.most for joint, _, _ in clients], axis=0)
    return JointLevels.from_moments(int(rows.sum()), units, mean, covariance, most.tolist())
