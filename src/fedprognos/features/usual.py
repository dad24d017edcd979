"""What sensors usually do: how long a raw value stays the same, how far its level and single values go.

Learnt from the training machines, whole lives included, it tells a broken sensor from a worn machine later on. What a
client sends of it is rounded outwards: no number is a value of the data.
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
from fedprognos.features.memory import Memory
from fedprognos.features.moments import Moments
from fedprognos.fleet import Fleet, Unit

SMOOTHING = 0.1
"""Weight of the newest row in a level: some twenty rows count."""
SETTLED = round(1 / SMOOTHING)
"""Rows before a level is judged; until then it is their mean."""
FAR = 10.0
"""Deviations beyond which a single value tells nothing more: levels are of values cut off there."""
QUARTER = 0.25

Cells = Mapping[conditions.Key, Moments]
Bound = Annotated[float, Field(allow_inf_nan=False)]


class Usual(BaseModel):
    """What the sensors of some machines did, one number a sensor.

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


class SensorWatch(Memory):
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
    found = np.ones(raw.shape[1], dtype=np.int64)
    for c in range(raw.shape[1]):
        changes = np.flatnonzero(raw[1:, c] != raw[:-1, c]) + 1
        found[c] = np.diff(changes, prepend=0, append=len(raw)).max()
    return found


def levels(deviations: FloatArray) -> FloatArray:
    """Levels after row :data:`SETTLED` and after each that follows it, as :class:`SensorWatch` has them."""
    cut = np.clip(deviations, -FAR, FAR)
    first = cut[:SETTLED].mean(axis=0)
    if len(cut) <= SETTLED:
        return first[None] if len(cut) == SETTLED else np.empty((0, cut.shape[1]))
    later, _ = lfilter([SMOOTHING], [1.0, SMOOTHING - 1], cut[SETTLED:], axis=0, zi=(1 - SMOOTHING) * first[None])
    return np.concatenate([first[None], later])


def usual_of(units: Iterable[tuple[FloatArray, FloatArray]], sensors: int, first: float = 0.0, **level: float) -> Usual:
    """What is usual of some units, given by their raw values and deviations (T, sensors) each.

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
        found = levels(deviations)
        if len(found):
            low, high = np.minimum(low, found.min(axis=0)), np.maximum(high, found.max(axis=0))
    return Usual(
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


def fleet_usual(fleet: Fleet, order: Sequence[int], cells: Cells, rule: Mapping[str, int], levels: str | None) -> Usual:
    """What the sensors of a fleet usually do, measured by its own moments.

    Parameters
    ----------
    order
        Columns of the sensors that count.
    rule
        Decimals to which each setting is rounded to make an operating condition.
    levels
        The sensor at whose levels cycles are read, None for none.
    """
    known, width = np.array(list(cells)), len(order)
    mean = np.stack([moments.mean[:width] for moments in cells.values()])
    std = np.stack([moments.std[:width] for moments in cells.values()])
    level: dict[str, float] = {}
    if levels is not None:
        column = list(order).index(fleet.schema.sensors.index(levels))
        values = Moments.of(np.concatenate([unit.sensors[:, [order[column]]] for unit in fleet]))
        level = {"level_mean": float(values.mean[0]), "level_std": float(values.std[0]) or 1.0}
        mean[:, column], std[:, column] = level["level_mean"], level["level_std"]
    std = np.where(std > 0, std, std.max(axis=0))
    std = np.where(std > 0, std, 1.0)

    def of(unit: Unit) -> tuple[FloatArray, FloatArray]:
        which = conditions.match(conditions.keys(unit.settings, rule, fleet.schema.settings), known)[0]
        raw = unit.sensors[:, order]
        return raw, (raw - mean[which]) / std[which]

    return usual_of(map(of, fleet), width, max(float(unit.time[0]) for unit in fleet), **level)


def merged_usual(
    sent: Sequence[tuple[Usual | None, Cells]],
    scaling: Mapping[conditions.Key, tuple[Sequence[float], Sequence[float]]],
    level: int | None,
) -> Usual | None:
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
    known = [(usual, cells) for usual, cells in sent if usual is not None and len(usual.still) == width]
    if len(known) < len(sent):
        return None
    low, high, reach, still = np.zeros(width), np.zeros(width), np.zeros(width), np.ones(width, dtype=np.int64)
    level_mean = float(np.mean([usual.level_mean for usual, _ in known]))
    level_std = max(usual.level_std for usual, _ in known)
    for usual, cells in known:
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
    return Usual(
        still=tuple(still.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        reach=tuple(reach.tolist()),
        first=max(usual.first for usual, _ in known),
        level_mean=level_mean,
        level_std=level_std,
    )
