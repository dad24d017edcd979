"""Rows of a table turned into one unit, with its order, cycles and labels checked and its blanks filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.fleet.columns import Columns
from fedprognos.fleet.missing import fill
from fedprognos.fleet.table_files import Table
from fedprognos.fleet.time_axis import iso
from fedprognos.fleet.unit import MACHINE, START, Unit


@dataclass(frozen=True, eq=False)
class Values:
    """Parsed columns of one table.

    Parameters
    ----------
    ids : (rows,)
        Machine of every row.
    numbers
        Column name to (rows,) numbers, NaN where a blank is to be filled.
    means
        Of columns with blanks: (rows,) means of the operating condition of each row.
    sites
        Site of every row, or one for the whole file, or None.
    failed, lives
        Failure flag and life of every row, where there are such columns.
    seconds
        Seconds in one step of the time where it is a date, counted from 1970; None for plain numbers.
    """

    table: Table
    ids: Sequence[str]
    numbers: Mapping[str, FloatArray]
    means: Mapping[str, FloatArray]
    sites: Sequence[str] | str | None
    failed: BoolArray | None
    lives: Sequence[str] | None
    seconds: float | None


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Which rows of a table belong to a unit, in file order.

    Parameters
    ----------
    machine
        Whose life this is, where machines have several.
    since
        Time at which this life began, on a counter that went on from the life before.
    """

    table: Table
    unit: str
    rows: IntArray
    machine: str | None = None
    since: float = 0.0

    def at(self, k: int) -> str:
        """Where the k-th row of the unit stands."""
        return self.table.at(int(self.rows[k]), self.unit)

    def cell(self, column: str, k: int) -> str:
        """What the file says in a column of the k-th row."""
        value = self.table.frame[column].iloc[int(self.rows[k])]
        return f"{value:g}" if isinstance(value, (int, float, np.number)) else str(value)


def lives_of(own: UnitRows, values: Values, columns: Columns) -> Iterator[UnitRows]:
    """The lives of a machine as units; the first keeps the machine's name, the others add `#2`, `#3`, ..."""
    if columns.life is None and columns.new_life is None:
        yield own
        return
    time = values.numbers[columns.time][own.rows]
    if values.lives is not None:
        labels = np.asarray([values.lives[row] for row in own.rows], dtype=object)
    else:
        flags = time[1:] < time[:-1] if columns.new_life == "time" else _flags(values)[own.rows][:-1]
        labels = np.concatenate([[0], np.cumsum(flags)]) + 1
    end = -np.inf
    for label in pd.unique(labels):
        rows = labels == label
        went_on = values.seconds is None and time[rows][0] > end > -np.inf
        yield UnitRows(own.table, name_of_life(own.unit, str(label)), own.rows[rows], own.unit, end if went_on else 0.0)
        end = time[rows][-1]


def name_of_life(machine: str, life: str) -> str:
    """The unit that one life of a machine is.

    >>> name_of_life("pump", "1"), name_of_life("pump", "2")
    ('pump', 'pump#2')
    """
    return machine if life == "1" else f"{machine}#{life}"


def make_unit(own: UnitRows, values: Values, columns: Columns, sensors: Sequence[str]) -> Unit:
    """One unit from its rows."""
    target = None if columns.target is None else values.numbers[columns.target][own.rows]
    offsets = numbers = rul_at_end = None
    if columns.cycle is not None:
        offsets, numbers = _cycles(own, values.numbers[columns.cycle][own.rows], columns.cycle)
        target = None if target is None else _one_per_cycle(own, target, offsets, str(columns.target))
    elif target is not None:
        _check_not_negative(own, target, str(columns.target))
        rul_at_end = float(target[-1])
    time, began = _time(own, values, columns, offsets)
    failed = rul_at_end is None or rul_at_end == 0
    if values.failed is not None:
        failed = _has_failed(own, values.failed[own.rows], str(columns.failed))
    if columns.task == "rul" and target is None and failed:
        rul_at_end = 0.0
    facts = {"site": _site(own, values.sites), MACHINE: own.machine, START: began}
    return Unit(
        id=own.unit,
        time=time,
        sensors=_matrix(own, values, columns, sensors, time, offsets),
        settings=_matrix(own, values, columns, columns.settings, time, offsets),
        target=target,
        failed=failed,
        rul_at_end=rul_at_end,
        cycles=offsets,
        cycle_numbers=numbers,
        attributes={name: fact for name, fact in facts.items() if fact is not None},
    )


def _matrix(
    own: UnitRows,
    values: Values,
    columns: Columns,
    names: Sequence[str],
    time: FloatArray,
    offsets: IntArray | None,
) -> FloatArray:
    """Some columns of the unit, (T, C), their blanks filled within each cycle."""
    if not names:
        return np.empty((len(own.rows), 0))
    matrix = np.column_stack([values.numbers[c][own.rows] for c in names])
    gaps = [k for k, c in enumerate(names) if c in values.means]
    if not gaps or not np.isnan(matrix).any():
        return matrix
    policies = [columns.policies(names)[k] for k in gaps]
    means = np.column_stack([values.means[names[k]][own.rows] for k in gaps])
    edges = [0, len(matrix)] if offsets is None else offsets.tolist()
    for a, b in pairwise(edges):
        matrix[a:b, gaps] = fill(matrix[a:b, gaps], time[a:b], policies, means[a:b])
    left = np.argwhere(np.isnan(matrix))
    if left.size:
        row, column = int(left[0][0]), names[int(left[0][1])]
        what = f"no value of the operating setting '{column}' before the unit's first one"
        raise DataError(what, where=own.at(row), hint="fill it, or drop the rows before")
    return matrix


def _site(own: UnitRows, sites: Sequence[str] | str | None) -> str | None:
    if sites is None or isinstance(sites, str):
        return sites
    first: str = sites[own.rows[0]]
    for k, row in enumerate(own.rows):
        if sites[row] != first:
            raise DataError(
                f"the unit is in two sites: '{first}' and '{sites[row]}'",
                where=own.at(k),
                hint="a unit belongs to one site; make the unit ids unique, such as plantA-7",
            )
    return first


def _cycles(own: UnitRows, cycle: FloatArray, column: str) -> tuple[IntArray, IntArray]:
    """Row offsets and numbers of the cycles."""
    broken = np.flatnonzero(cycle != np.round(cycle))
    if broken.size:
        k = int(broken[0])
        raise DataError(f"cycle number {cycle[k]:g} in column '{column}' is not whole", where=own.at(k))
    back = np.flatnonzero(np.diff(cycle) < 0)
    if back.size:
        k = int(back[0]) + 1
        raise DataError(
            f"unsorted {column}: {cycle[k]:g} after {cycle[k - 1]:g}",
            where=own.at(k),
            hint=f"sort the rows of each unit by {column}",
        )
    starts = np.flatnonzero(np.diff(cycle, prepend=np.nan) != 0)
    return np.append(starts, len(cycle)).astype(np.int64), cycle[starts].astype(np.int64)


def _one_per_cycle(own: UnitRows, target: FloatArray, offsets: IntArray, column: str) -> FloatArray:
    values = target[offsets[:-1]]
    spread = np.flatnonzero(target != np.repeat(values, np.diff(offsets)))
    if spread.size:
        k = int(spread[0])
        raise DataError(
            f"column '{column}' changes within a cycle, to {target[k]:g}",
            where=own.at(k),
            hint="the health label must be the same in all rows of a cycle",
        )
    return values


def _time(own: UnitRows, values: Values, columns: Columns, offsets: IntArray | None) -> tuple[FloatArray, str | None]:
    """Time of every row since the beginning of the unit (or of its cycle), and the date it began, if it has one."""
    time, column = values.numbers[columns.time][own.rows], columns.time
    steps = np.diff(time)
    if offsets is not None:
        steps[offsets[1:-1] - 1] = 1.0  # time starts anew with each cycle
    bad = np.flatnonzero(steps <= 0)
    if bad.size:
        k = int(bad[0]) + 1
        kind = "duplicate" if time[k] == time[k - 1] else "unsorted"
        repaired = "; data.sort = true sorts them. Where time restarts after a repair, set data.new_life = 'time'"
        raise DataError(
            f"{kind} {column}: {own.cell(column, k)} after {own.cell(column, k - 1)}",
            where=own.at(k),
            hint=f"sort the rows of each unit by {column} and keep one row for each value"
            + (repaired if kind == "unsorted" else ""),
        )
    if values.seconds is None:
        return time - own.since, None
    starts = np.zeros(1, dtype=np.int64) if offsets is None else offsets[:-1]
    lengths = np.diff(np.append(starts, len(time)))
    return time - np.repeat(time[starts], lengths), iso(float(time[0]) * values.seconds)


def _check_not_negative(own: UnitRows, target: FloatArray, column: str) -> None:
    below = np.flatnonzero(target < 0)
    if below.size:
        k = int(below[0])
        raise DataError(
            f"negative RUL {target[k]:g} in column '{column}'",
            where=own.at(k),
            hint="RUL ends at 0; drop the rows after the failure",
        )


def _flags(values: Values) -> BoolArray:
    return np.zeros(len(values.ids), dtype=np.bool_) if values.failed is None else values.failed


def _has_failed(own: UnitRows, flags: BoolArray, column: str) -> bool:
    """What the flags say; they may stand in every row or in the last one only."""
    if flags.any() and not flags.all() and (flags[:-1].any() or not flags[-1]):
        raise DataError(
            f"column '{column}' says failed before the last row",
            where=own.at(int(np.argmax(flags))),
            hint="drop the rows after the failure; if the machine was repaired, set data.new_life = 'failed'",
        )
    return bool(flags[-1])
