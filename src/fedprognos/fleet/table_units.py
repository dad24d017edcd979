"""Rows of a table turned into one unit, with its order, cycles and labels checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.fleet.checks import MIN_ROWS
from fedprognos.fleet.columns import Columns
from fedprognos.fleet.table_files import Table
from fedprognos.fleet.unit import Unit

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Values:
    """Parsed columns of one table.

    Parameters
    ----------
    numbers
        Column name to (rows,) numbers.
    sites
        Site of every row, or one for the whole file, or None.
    failed
        Failure flag of every row, where there is such a column.
    """

    table: Table
    numbers: Mapping[str, FloatArray]
    sites: Sequence[str] | str | None
    failed: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Which rows of a table belong to a unit, in file order."""

    table: Table
    unit: str
    rows: Integers

    def at(self, k: int) -> str:
        """Where the k-th row of the unit stands."""
        return self.table.at(int(self.rows[k]), self.unit)


def make_unit(own: UnitRows, values: Values, columns: Columns, sensors: Sequence[str]) -> Unit:
    """One unit from its rows."""
    if len(own.rows) < MIN_ROWS:
        raise DataError("the unit has one row only", where=own.at(0), hint="leave the unit out of the file")
    site = _site(own, values.sites)
    time = values.numbers[columns.time][own.rows]
    target = None if columns.target is None else values.numbers[columns.target][own.rows]
    offsets = numbers = rul_at_end = None
    if columns.cycle is not None:
        offsets, numbers = _cycles(own, values.numbers[columns.cycle][own.rows], columns.cycle)
        target = None if target is None else _one_per_cycle(own, target, offsets, str(columns.target))
    elif target is not None:
        _check_not_negative(own, target, str(columns.target))
        rul_at_end = float(target[-1])
    _check_time(own, time, columns.time, offsets)
    if values.failed is not None:
        failed = _has_failed(own, values.failed[own.rows], str(columns.failed))
    else:
        failed = rul_at_end is None or rul_at_end == 0
    if columns.task == "rul" and target is None and failed:
        rul_at_end = 0.0
    return Unit(
        id=own.unit,
        time=time,
        sensors=_matrix(values, sensors, own.rows),
        settings=_matrix(values, columns.settings, own.rows),
        target=target,
        failed=failed,
        rul_at_end=rul_at_end,
        cycles=offsets,
        cycle_numbers=numbers,
        attributes={} if site is None else {"site": site},
    )


def _matrix(values: Values, columns: Sequence[str], rows: Integers) -> FloatArray:
    return np.column_stack([values.numbers[c][rows] for c in columns]) if columns else np.empty((len(rows), 0))


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


def _cycles(own: UnitRows, cycle: FloatArray, column: str) -> tuple[Integers, Integers]:
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


def _one_per_cycle(own: UnitRows, target: FloatArray, offsets: Integers, column: str) -> FloatArray:
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


def _check_time(own: UnitRows, time: FloatArray, column: str, offsets: Integers | None) -> None:
    steps = np.diff(time)
    if offsets is not None:
        steps[offsets[1:-1] - 1] = 1.0  # time starts anew with each cycle
    bad = np.flatnonzero(steps <= 0)
    if not bad.size:
        return
    k = int(bad[0]) + 1
    kind = "duplicate" if time[k] == time[k - 1] else "unsorted"
    raise DataError(
        f"{kind} {column}: {time[k]:g} after {time[k - 1]:g}",
        where=own.at(k),
        hint=f"sort the rows of each unit by {column} and keep one row for each value",
    )


def _check_not_negative(own: UnitRows, target: FloatArray, column: str) -> None:
    below = np.flatnonzero(target < 0)
    if below.size:
        k = int(below[0])
        raise DataError(
            f"negative RUL {target[k]:g} in column '{column}'",
            where=own.at(k),
            hint="RUL ends at 0; drop the rows after the failure",
        )


def _has_failed(own: UnitRows, flags: NDArray[np.bool_], column: str) -> bool:
    """What the flags say; they may stand in every row or in the last one only."""
    if flags.any() and not flags.all() and (flags[:-1].any() or not flags[-1]):
        raise DataError(
            f"column '{column}' says failed before the last row",
            where=own.at(int(np.argmax(flags))),
            hint="set it in every row of a failed unit or in its last row only, and drop rows after the failure",
        )
    return bool(flags[-1])
