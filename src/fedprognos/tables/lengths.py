"""How long the units of a table live, how long their cycles last, and how much of a cycle can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.tables.columns import Columns
from fedprognos.tables.cycle_rules import READ_SHARE, broken_off, end_of_life, fall_of_cycle
from fedprognos.tables.roles import begins_when_new
from fedprognos.tables.table import yes_and_no
from fedprognos.tables.times import ELAPSED, SECONDS

_NEARLY_FALLS = 0.05
"""Largest mean distance of a sensor from its lowest value so far, as a share of its fall."""
_LEAST_LOAD = 0.5
"""Smallest part of the shortest cycle after which a sensor may be lowest."""
_COMMON_FALL = 0.25
"""Part of the longest fall that every cycle must pass, so that all can be read at levels."""


@dataclass(frozen=True)
class Lengths:
    """How long units and cycles are, in the measure of time.

    Parameters
    ----------
    median_rows
        Rows of the median unit.
    median_life, short_life
        The median lifespan, and the one that nine units in ten exceed, of units that failed where a column says which.
    from_new
        Whether records begin when units are new.
    shortest_cycle, cycle_samples
        Duration of the shortest cycle, or of its load where a sensor falls under load, and samples of the median cycle.
    levels
        That sensor, if every cycle can be read at common levels of it.
    fewest_cycles
        Cycles of the unit with the fewest.
    """

    median_rows: int
    median_life: float
    short_life: float
    from_new: bool = False
    shortest_cycle: float | None = None
    cycle_samples: int | None = None
    levels: str | None = None
    fewest_cycles: int | None = None


def measure_lengths(frame: pd.DataFrame, columns: Columns, machines: pd.Series, lives: pd.Series) -> Lengths:
    """Lengths by the roles of columns.

    Parameters
    ----------
    frame
        All rows, dates as seconds since 1970.
    machines, lives : (rows,)
        The machine of each row, and its life.
    """
    median_rows = int(lives.groupby(lives).size().median())
    scale = 1.0 if columns.time_format is None else SECONDS.get(columns.time_measure or "", 1.0)
    if columns.cycle is not None:
        return _cycle_lengths(frame, columns, scale, machines, median_rows)
    time = frame[columns.time]
    if columns.health is not None:
        alive, _ = until_worn(frame[columns.health], lives, columns.end_of_life)
        time, lives = time[alive], lives[alive]
    spans = time.groupby(lives).agg(["min", "max"])
    if columns.failed is not None:  # machines that still run have not shown how long they live
        flags = pd.Series(yes_and_no(frame[columns.failed])[0], index=frame.index)
        failed = flags[lives.index].groupby(lives).any()
        spans = spans[failed] if failed.any() else spans
    dated = columns.time_format not in (None, ELAPSED)
    # A clock that runs on from unit to unit, or down to the end, says nothing of a unit's age.
    runs_on = not 0 <= spans["min"].median() <= 2 * (spans["max"] - spans["min"]).median()
    from_first = dated or runs_on or columns.life is not None or columns.new_life == "failed"
    lifespans = spans["max"] - spans["min"] if from_first else spans["max"]
    return Lengths(
        median_rows,
        median_life=float(lifespans.median() / scale),
        short_life=float(lifespans.quantile(0.1) / scale),
        from_new=not dated and begins_when_new(time, lives),
    )


def until_worn(health: pd.Series, lives: pd.Series, share: float) -> tuple[BoolArray, int]:
    """Rows up to the end of each life by a threshold of a health, and how many units get there."""
    alive, worn = np.ones(len(lives), dtype=np.bool_), 0
    values = health.to_numpy(np.float64)
    for group in lives.groupby(lives).indices.values():
        rows = np.asarray(group)
        whole = rows[~broken_off(values[rows])]
        end = end_of_life(values[whole], share)
        if end is not None:
            alive[rows[rows > whole[end]]] = False
            worn += 1
    return alive, worn


def _cycle_lengths(
    frame: pd.DataFrame, columns: Columns, scale: float, machines: pd.Series, median_rows: int
) -> Lengths:
    time, cycle = frame[columns.time], frame[columns.cycle]
    by_cycle = time.groupby([machines, cycle])
    durations = (by_cycle.max() - by_cycle.min()) / scale
    broken = [broken_off(part.to_numpy()) for _, part in durations.groupby(level=0)]
    whole = durations[~np.concatenate(broken)]
    load, levels = float(whole.min()), None
    if columns.cycle != columns.time:
        rows_of_cycle = [np.asarray(by_cycle.indices[key]) for key in whole.index]
        load, levels = _load(frame, columns, time.to_numpy(np.float64) / scale, rows_of_cycle, whole)
    last_cycles = cycle.groupby(machines).max()
    return Lengths(
        median_rows,
        median_life=float(last_cycles.median()),
        short_life=float(last_cycles.quantile(0.1)),
        shortest_cycle=load,
        cycle_samples=int(by_cycle.size().median()),
        levels=levels,
        fewest_cycles=int(whole.groupby(level=0).size().min()),
    )


def _load(
    frame: pd.DataFrame, columns: Columns, time: FloatArray, rows_of_cycle: Sequence[IntArray], durations: pd.Series
) -> tuple[float, str | None]:
    """How long the load of every cycle lasts, and a sensor that falls under it to levels that every cycle passes.

    Without a sensor that falls it is the whole cycle; where cycles have no levels in common there is no sensor.
    """
    load = float(durations.min())
    times = [time[rows] - time[rows[0]] for rows in rows_of_cycle]
    for sensor in columns.sensors or ():
        values = frame[sensor].to_numpy(np.float64)
        if np.isnan(values).any():
            continue
        cycles = [(t, values[rows]) for t, rows in zip(times, rows_of_cycle, strict=True)]
        ends = [_load_ends(*cycle) for cycle in cycles]
        if any(end is None for end in ends):
            continue
        lasting = pd.Series(ends, durations.index, dtype=np.float64)
        least = min(float(unit[~broken_off(unit.to_numpy())].min()) for _, unit in lasting.groupby(level=0))
        if least >= _LEAST_LOAD * durations.min():
            load = min(load, least)
            if not columns.settings and _passes_levels(cycles, READ_SHARE * least):
                return least, sensor
    return load, None


def _load_ends(time: FloatArray, values: FloatArray) -> float | None:
    """When a sensor that falls during a cycle is lowest; None if it does not fall all the way to there.

    A battery's voltage falls until the load is taken off, and recovers in the samples after that.

    >>> _load_ends(np.array([0.0, 10.0, 20.0, 30.0]), np.array([4.2, 3.6, 2.7, 3.1])), _load_ends(*np.eye(2, 9))
    (20.0, None)
    """
    lowest = int(np.argmin(values))
    way = values[: lowest + 1]
    fall = float(way[0] - way[-1])
    if not fall > 0 or float((way - np.minimum.accumulate(way)).mean()) > _NEARLY_FALLS * fall:
        return None
    return float(time[lowest] - time[0])


def _passes_levels(cycles: Sequence[tuple[FloatArray, FloatArray]], end: float) -> bool:
    """Whether every cycle passes a good part of the longest fall of a sensor, so that all can be read at levels.

    Parameters
    ----------
    cycles
        Times since the cycle's start and the sensor's values.
    end
        How much of a cycle is read.
    """
    early, late = np.array([fall_of_cycle(time, values, end) for time, values in cycles]).T
    return float(early.min() - late.max()) >= _COMMON_FALL * float((early - late).max()) > 0
