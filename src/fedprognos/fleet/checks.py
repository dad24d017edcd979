"""What every fleet must satisfy, whoever read it; run once when a :class:`Fleet` is made."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.errors import DataError

if TYPE_CHECKING:
    from fedprognos.arrays import FloatArray
    from fedprognos.fleet.unit import Fleet, Schema, Unit

MIN_ROWS = 2


def check_fleet(fleet: Fleet) -> None:
    """Raise :class:`DataError` naming unit, row and column of the first thing that is wrong."""
    where = fleet.source or f"fleet {fleet.name}"
    if not fleet.units:
        raise DataError("no units", where=where, hint="the data is empty, or every unit was filtered out")
    twice = [i for i, n in Counter(u.id for u in fleet.units).items() if n > 1]
    if twice:
        raise DataError(
            f"unit id '{twice[0]}' occurs twice",
            where=where,
            hint="unit ids must be unique across files and sites",
        )
    for unit in fleet.units:
        _check_unit(unit, fleet.schema, f"{where}, unit {unit.id}")


def _check_unit(unit: Unit, schema: Schema, where: str) -> None:
    n = unit.rows
    for name, array, width in (
        ("sensors", unit.sensors, len(schema.sensors)),
        ("settings", unit.settings, len(schema.settings)),
    ):
        if array.shape != (n, width):
            raise DataError(f"{name} have shape {array.shape}, expected {(n, width)}", where=where)
    if n < MIN_ROWS:
        raise DataError(
            f"only {n} row(s)",
            where=where,
            hint=f"a unit needs at least {MIN_ROWS} rows; remove it from the data",
        )
    if not np.isfinite(unit.time).all():
        raise DataError(
            f"time is not a number at row {int(np.argmin(np.isfinite(unit.time)))}",
            where=where,
            hint="fill or drop it",
        )
    check_finite(unit.sensors, schema.sensors, unit.time, where)
    check_finite(unit.settings, schema.settings, unit.time, where)
    if (unit.cycles is None) != (unit.cycle_numbers is None):
        raise DataError("cycles and cycle_numbers must be given together", where=where)
    if unit.cycles is None:
        _check_increasing(unit.time, schema.time, where)
    else:
        _check_cycles(unit, schema, where)
    if unit.target is not None:
        expected = n if unit.cycles is None else len(unit.cycles) - 1
        if unit.target.shape != (expected,):
            raise DataError(f"{schema.target} has {unit.target.shape} values, expected {expected}", where=where)
        bad = np.flatnonzero(~np.isfinite(unit.target))
        if bad.size:
            raise DataError(
                f"{schema.target} is missing or infinite at point {int(bad[0])} ({bad.size} in all)",
                where=where,
                hint="drop the unlabelled rows or fill the label",
            )
    if unit.rul_at_end is not None and not (np.isfinite(unit.rul_at_end) and unit.rul_at_end >= 0):
        raise DataError(f"RUL at the end is {unit.rul_at_end}", where=where, hint="it must be a number >= 0")


def check_finite(values: FloatArray, columns: tuple[str, ...], time: FloatArray, where: str) -> None:
    """Refuse NaN and infinity, naming the first row and column."""
    if np.isfinite(values).all():
        return
    row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
    raise DataError(
        f"{values[row, column]} in column '{columns[column]}' at row {row} (time {time[row]:g})",
        where=where,
        hint="fill or drop missing values before training; fedprognos does not guess them",
    )


def _check_increasing(time: FloatArray, name: str, where: str) -> None:
    steps = np.diff(time)
    if (steps > 0).all():
        return
    row = int(np.argmax(steps <= 0)) + 1
    kind = "duplicate" if steps[row - 1] == 0 else "unsorted"
    raise DataError(
        f"{kind} {name}: row {row} has {time[row]:g} after {time[row - 1]:g}",
        where=where,
        hint=f"sort the rows by {name} and keep one row for each",
    )


def _check_cycles(unit: Unit, schema: Schema, where: str) -> None:
    offsets, numbers = unit.cycles, unit.cycle_numbers
    if offsets is None or numbers is None:
        return
    if len(numbers) == 0 or len(offsets) != len(numbers) + 1 or offsets[0] != 0 or offsets[-1] != unit.rows:
        raise DataError("cycle offsets do not cover the rows", where=where)
    if (np.diff(offsets) < 1).any():
        k = int(np.argmax(np.diff(offsets) < 1))
        raise DataError(f"cycle {int(numbers[k])} has no rows", where=where, hint="remove the empty cycle")
    if (np.diff(numbers) <= 0).any():
        raise DataError("cycle numbers do not increase", where=where, hint="sort the cycles and keep one of each")
    steps = np.diff(unit.time)
    steps[offsets[1:-1] - 1] = 1.0  # time starts anew with each cycle
    if (steps <= 0).any():
        row = int(np.argmax(steps <= 0)) + 1
        k = int(np.searchsorted(offsets, row, side="right")) - 1
        _check_increasing(unit.time[offsets[k] : offsets[k + 1]], schema.time, f"{where}, cycle {int(numbers[k])}")
