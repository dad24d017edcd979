"""Ranges of the sensors of training machines: how long a raw value stays the same, how far levels and values go.

They cover whole lives, so that a broken sensor can later be distinguished from a worn machine. A client rounds outwards
what it sends: no number is a value of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.signal import lfilter

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.features import conditions
from fedprognos.features.moments import Moments
from fedprognos.features.row_memory import RowMemory
from fedprognos.fleet import Fleet, Unit

SMOOTHING = 0.1
"""Weight of the newest row in a level: some twenty rows count."""
SETTLED = round(1 / SMOOTHING)
"""Rows before a level is judged; until then it is their mean."""
FAR = 10.0
"""Single values are cut off at this many deviations before they enter a level."""
QUARTER = 0.25

Cells = Mapping[conditions.Key, Moments]
Bound = Annotated[float, Field(allow_inf_nan=False)]


class SensorRanges(BaseModel):
    """Ranges that the sensors of some machines stayed in, one number a sensor.

    Parameters
    ----------
    still
        Most rows in a row with the same raw value, rounded up to a power of two.
    low, high
        Lowest and highest level, in deviations from the mean of the operating condition, rounded outwards.
    reach
        Largest deviation of a single value, rounded up to a power of two.
    first
        Latest position at which the record of a machine begins, rounded up to a power of two.
    level_mean, level_std
        What deviations of the sensor at whose levels cycles are read are measured by; its scaling is one of times.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    still: tuple[Annotated[int, Field(ge=1)], ...]
    low: tuple[Bound, ...]
    high: tuple[Bound, ...]
    reach: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]
    first: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    level_mean: Bound = 0.0
    level_std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _one_a_sensor(self) -> Self:
        if len({len(self.still), len(self.low), len(self.high), len(self.reach)}) > 1:
            raise ValueError("there must be as many of each as there are sensors")
        if any(low > high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError("the lowest level is above the highest")
        return self


class SensorWatch(RowMemory):
    """One unit's sensors, row by row.

    Parameters
    ----------
    still : (sensors,)
        Rows in a row with the same raw value.
    level : (sensors,)
        Smoothed deviation.
    far : (sensors,)
        Rows since a value was further away than its limit.

    Examples
    --------
    >>> watch = SensorWatch(1)
    >>> for raw in (5.0, 5.0, 5.0):
    ...     watch.push(np.array([raw]), np.array([2.0]), np.array([10.0]))
    >>> watch.still.tolist(), watch.level.tolist()
    ([3], [2.0])
    """

    __slots__ = ("count", "far", "level", "raw", "still")
    scalars = ("count",)
    arrays = ("raw", "still", "level", "far")

    def __init__(self, sensors: int) -> None:
        self.count = 0
        self.raw = np.full(sensors, np.nan)
        self.still: IntArray = np.zeros(sensors, dtype=np.int64)
        self.level: FloatArray = np.zeros(sensors)
        self.far: IntArray = np.full(sensors, np.iinfo(np.int32).max, dtype=np.int64)

    def push(self, raw: FloatArray, deviation: NDArray[np.floating], reach: FloatArray) -> None:
        """Note the next row: raw values, deviations from the mean of its condition, and the limits of those."""
        self.count += 1
        self.still = np.where(raw == self.raw, self.still + 1, 1)
        self.raw = raw.copy()  # not the whole table it is a row of
        self.level = self.level + max(SMOOTHING, 1 / self.count) * (np.clip(deviation, -FAR, FAR) - self.level)
        self.far = np.where(np.abs(deviation) <= reach, self.far + 1, 0)


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
    """Levels after row :data:`SETTLED` and after each that follows it, as :class:`SensorWatch` has them."""
    cut = np.clip(deviations, -FAR, FAR)
    first = cut[:SETTLED].mean(axis=0)
    if len(cut) <= SETTLED:
        return first[None] if len(cut) == SETTLED else np.empty((0, cut.shape[1]))
    later, _ = lfilter([SMOOTHING], [1.0, SMOOTHING - 1], cut[SETTLED:], axis=0, zi=(1 - SMOOTHING) * first[None])
    return np.concatenate([first[None], later])


def ranges_of_units(
    units: Iterable[tuple[FloatArray, FloatArray]], sensors: int, first: float = 0.0, **level: float
) -> SensorRanges:
    """Ranges of some units, given by their raw values and deviations (T, sensors) each.

    Parameters
    ----------
    first
        Latest position at which one of them begins.
    """
    still, reach = np.ones(sensors, dtype=np.int64), np.zeros(sensors)
    low, high = np.zeros(sensors), np.zeros(sensors)
    for raw, deviations in units:
        still = np.maximum(still, longest_still(raw))
        reach = np.maximum(reach, np.abs(deviations).max(axis=0))
        settled = levels(deviations)
        if len(settled):
            low, high = np.minimum(low, settled.min(axis=0)), np.maximum(high, settled.max(axis=0))
    return SensorRanges(
        first=_power_of_two(first),
        still=tuple(int(_power_of_two(n)) for n in still.tolist()),
        low=tuple((np.floor(low / QUARTER) * QUARTER).tolist()),
        high=tuple((np.ceil(high / QUARTER) * QUARTER).tolist()),
        reach=tuple(_power_of_two(x) for x in reach.tolist()),
        **level,
    )


def _power_of_two(number: float) -> float:
    """The next one at or above a number, 1 at least."""
    return 2.0 ** math.ceil(math.log2(max(number, 1.0)))


def fleet_ranges(
    fleet: Fleet, order: Sequence[int], cells: Cells, rule: Mapping[str, int], levels: str | None
) -> SensorRanges:
    """Ranges of the sensors of a fleet, measured by its own moments.

    Parameters
    ----------
    order
        Columns of the sensors that count.
    rule
        Decimals to which each setting is rounded to make an operating condition.
    levels
        The sensor at whose levels cycles are read, None for none.
    """
    condition_keys, width = np.array(list(cells)), len(order)
    mean = np.stack([moments.mean[:width] for moments in cells.values()])
    std = np.stack([moments.std[:width] for moments in cells.values()])
    level: dict[str, float] = {}
    if levels is not None:
        column = list(order).index(fleet.schema.sensors.index(levels))
        values = Moments.from_rows(np.concatenate([unit.sensors[:, [order[column]]] for unit in fleet]))
        level = {"level_mean": float(values.mean[0]), "level_std": float(values.std[0]) or 1.0}
        mean[:, column], std[:, column] = level["level_mean"], level["level_std"]
    std = np.where(std > 0, std, std.max(axis=0))
    std = np.where(std > 0, std, 1.0)

    def deviations_of(unit: Unit) -> tuple[FloatArray, FloatArray]:
        which = conditions.match(conditions.keys(unit.settings, rule, fleet.schema.settings), condition_keys)[0]
        raw = unit.sensors[:, order]
        return raw, (raw - mean[which]) / std[which]

    return ranges_of_units(map(deviations_of, fleet), width, max(float(unit.time[0]) for unit in fleet), **level)


def merged_ranges(
    sent: Sequence[tuple[SensorRanges | None, Cells]],
    scaling: Mapping[conditions.Key, tuple[Sequence[float], Sequence[float]]],
    level: int | None,
) -> SensorRanges | None:
    """Ranges over all clients' machines, in the common scaling; None where a client sent nothing that fits.

    Parameters
    ----------
    sent
        Ranges and moments of each client; the ranges are in the scaling by its own moments.
    scaling
        Common mean and deviation of every sensor (sensors,) in each condition.
    level
        The sensor at whose levels cycles are read, None for none.

    A deviation of v at a client is (its mean - common mean + v its deviation) / common deviation in the common scaling.
    Levels mix conditions, so the widest of any condition counts.
    """
    width = len(next(iter(scaling.values()))[0])
    fitting = [(ranges, cells) for ranges, cells in sent if ranges is not None and len(ranges.still) == width]
    if len(fitting) < len(sent):
        return None
    low, high, reach, still = np.zeros(width), np.zeros(width), np.zeros(width), np.ones(width, dtype=np.int64)
    level_mean = float(np.mean([ranges.level_mean for ranges, _ in fitting]))
    level_std = max(ranges.level_std for ranges, _ in fitting)
    for ranges, cells in fitting:
        still = np.maximum(still, ranges.still)
        for key, moments in cells.items():
            mean, std = (np.array(numbers) for numbers in scaling[key])
            shift, stretch = (moments.mean[:width] - mean) / std, moments.std[:width] / std
            if level is not None:
                shift[level] = (ranges.level_mean - level_mean) / level_std
                stretch[level] = ranges.level_std / level_std
            low = np.minimum(low, shift + stretch * np.array(ranges.low))
            high = np.maximum(high, shift + stretch * np.array(ranges.high))
            reach = np.maximum(reach, np.abs(shift) + stretch * np.array(ranges.reach))
    return SensorRanges(
        still=tuple(still.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        reach=tuple(reach.tolist()),
        first=max(ranges.first for ranges, _ in fitting),
        level_mean=level_mean,
        level_std=level_std,
    )
