"""From a table to typed rows of units, in pieces: the one way of every row, to training and to prediction.

Here rows get their unit (a life of a machine), their time, cycle, sensors and operating settings. Every complaint
names file, line and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.tables.columns import Columns
from fedprognos.tables.lives import Lives
from fedprognos.tables.table import PIECE, Piece, Table, yes_and_no
from fedprognos.tables.times import ELAPSED, SECONDS, find_time_format, seconds_since_1970, time_expression

LARGEST_WHOLE = 2**53
"""Beyond it a float64 cannot tell whole numbers apart."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a table.

    Parameters
    ----------
    places : (n,)
        Where they stand in the table, counted from 0.
    units, machines : (n,)
        The unit of every row, and the machine whose life it is.
    times : (n,)
        Numbers as they stand, less the lives before; dates as time since 1970, within a cycle as time since its start.
    dates : (n,) or None
        Seconds since 1970, where times are dates.
    cycles : (n,) or None
    sensors : (n, C)
    settings : (n, S)
        NaN where a cell is blank and its column's policy fills it; all other numbers are finite.
    targets, failed, sites : (n,) or None
        Where there are such columns.
    share
        Of the table that is read with them.
    repeated
        Rows passed over, because the table holds them twice.
    """

    table: Table
    places: IntArray
    units: list[str]
    machines: list[str]
    times: FloatArray
    dates: FloatArray | None
    cycles: IntArray | None
    sensors: FloatArray
    settings: FloatArray
    targets: FloatArray | None
    failed: BoolArray | None
    sites: list[str] | None
    share: float
    repeated: int = 0

    def __len__(self) -> int:
        return len(self.units)

    def at(self, k: int) -> str:
        """File, line and unit of the k-th row."""
        return self.table.at(int(self.places[k]), self.units[k])


class RowReader:
    """Reads tables one after the other; a machine may go on in the next.

    Parameters
    ----------
    columns
        Which column is what.
    sensors
        Those to be read, in this order; `columns.settings` follow.
    time_measure
        Of the times, where they are dates.
    labels
        Read target and failures as well.
    own_clock
        Leave a counter that goes on over a repair as it stands; otherwise it begins anew with each life.

    Attributes
    ----------
    lives
        The machines and lives so far.

    Examples
    --------
    >>> from fedprognos.tables.table_files import table_from_frame
    >>> frame = pd.DataFrame({"pump": ["p", "p", "p"], "hour": [1, 2, 1], "heat": [20.0, None, 21.0]})
    >>> reader = RowReader(Columns(unit="pump", time="hour", new_life="time"), ("heat",), "hours")
    >>> (rows,) = reader.read(table_from_frame(frame, "pumps"))
    >>> rows.units, rows.times, rows.sensors[:, 0]
    (['p', 'p', 'p#2'], array([1., 2., 1.]), array([20., nan, 21.]))
    >>> reader.lives.past
    {'p'}
    """

    def __init__(
        self,
        columns: Columns,
        sensors: Sequence[str],
        time_measure: str,
        *,
        labels: bool = False,
        own_clock: bool = False,
    ) -> None:
        self.columns, self.sensors, self.labels = columns, tuple(sensors), labels
        self.lives = Lives(columns, own_clock=own_clock)
        self._seconds = SECONDS.get(time_measure)

    def read(self, table: Table, name: str | None = None, rows: int = PIECE) -> Iterator[Rows]:
        """Rows of a table, at most so many at a time.

        Parameters
        ----------
        name
            Of the unit that the whole table is, where no column names units.
        """
        columns = self.columns
        self.lives.begin_table()
        table.require([*columns.roles, *self.sensors])
        form = columns.time_format or find_time_format(table, columns.time, columns.clock)
        if form != "number" and self._seconds is None:
            form = "number"  # dates, where the model counts cycles or kilometres: numbers are asked for
        pieces = table.pieces(self._expressions(table, form), rows)
        typed: Iterator[Rows] = (self._typed(table, piece, form, name or table.stem) for piece in pieces)
        if columns.sort:
            # Sorting needs all rows of the table at once; as numbers they are a fraction of the file.
            typed = _sorted(list(typed), rows)
        for part in typed:
            yield self.lives.name_units(part)

    def _expressions(self, table: Table, form: str) -> dict[str, str]:
        columns = self.columns
        texts = {"unit": columns.unit, "life": columns.life}
        flags = columns.failed if self.labels or columns.new_life == "failed" else None
        texts |= {"failed": flags, "site": columns.site}
        numbers = {"cycle": columns.cycle, "target": columns.target if self.labels else None}
        measured = (*self.sensors, *columns.settings)
        return {
            "time": time_expression(table, columns.time, form, columns.clock),
            **{role: table.text(column) for role, column in texts.items() if column is not None},
            **{role: table.number(column) for role, column in numbers.items() if column is not None},
            **{f"m{k}": table.number(column) for k, column in enumerate(measured)},
        }

    def _typed(self, table: Table, piece: Piece, form: str, name: str) -> Rows:
        """Cells as names and numbers; which life of a machine each row is of comes later."""
        columns, cells = self.columns, piece.cells
        places = piece.rows
        units = (
            [name] * len(cells) if columns.unit is None else _names(table, cells["unit"], "unit", columns.unit, places)
        )
        measured = (*self.sensors, *columns.settings)
        values = np.empty((len(cells), len(measured)))
        for k, (column, policy) in enumerate(zip(measured, columns.policies(measured), strict=True)):
            values[:, k] = _numbers(table, cells[f"m{k}"], column, places, units, gaps=policy != "refuse")
        cycles = targets = failed = dates = None
        if columns.cycle is not None:
            numbers = _numbers(table, cells["cycle"], columns.cycle, places, units)
            cycles = _whole(table, numbers, columns.cycle, places, units)
        if "target" in cells and columns.target is not None:
            # A cycle whose health nobody measured is left out later; a row without its RUL is a mistake.
            blank = columns.task == "soh"
            hint = "write a number in every row, or leave data.target out (init --target -)"
            targets = _numbers(table, cells["target"], columns.target, places, units, gaps=blank, blank_hint=hint)
        if "failed" in cells and columns.failed is not None:
            failed = _flags(table, cells["failed"], columns.failed, places)
        sites = None
        if "site" in cells and columns.site is not None:
            owners = cells["site"] if self.labels else cells["site"].fillna("")  # a prediction needs no owner
            sites = _names(table, owners, "site", columns.site, places)
        times = _times(table, cells["time"], columns.time, form, places, units)
        if form != "number":
            dates, times = None if form == ELAPSED else times, times / (self._seconds or 1.0)
        lives = None if columns.life is None else _names(table, cells["life"], "life", columns.life, places)
        split = len(self.sensors)
        return Rows(
            table=table,
            places=places,
            units=units if lives is None else lives,
            machines=units,
            times=times,
            dates=dates,
            cycles=cycles,
            sensors=values[:, :split],
            settings=values[:, split:],
            targets=targets,
            failed=failed,
            sites=sites,
            share=piece.share,
            repeated=piece.repeated,
        )


def _names(table: Table, cells: pd.Series, role: str, column: str, places: IntArray) -> list[str]:
    """A column of unit, life or site names."""
    missing = np.flatnonzero(cells.isna().to_numpy())
    if missing.size:
        without = "" if role == "life" else f" (init --{role} -)"
        hint = f"give every row a name, or leave data.{role} out{without}; an empty field and NA count as missing"
        raise DataError(f"no value in column '{column}'", where=table.at(int(places[missing[0]])), hint=hint)
    return cells.tolist()


def _numbers(
    table: Table,
    cells: pd.Series,
    column: str,
    places: IntArray,
    units: Sequence[str],
    *,
    gaps: bool = False,
    blank_hint: str = "fill or drop the rows; for a sensor, data.missing = 'hold' fills them",
) -> FloatArray:
    """A column as finite numbers; with `gaps`, NaN where a value is missing."""
    values: FloatArray = cells.to_numpy(np.float64, na_value=np.nan)
    bad = np.flatnonzero(np.isinf(values) if gaps else ~np.isfinite(values))
    if bad.size:
        k = int(bad[0])
        raise table.bad_number(column, int(places[k]), units[k], blank_hint if np.isnan(values[k]) else "")
    return values


def _whole(table: Table, numbers: FloatArray, column: str, places: IntArray, units: Sequence[str]) -> IntArray:
    broken = np.flatnonzero((numbers != np.round(numbers)) | (np.abs(numbers) >= LARGEST_WHOLE))
    if broken.size:
        k = int(broken[0])
        what = f"cycle number {numbers[k]:g} in column '{column}' is not whole"
        raise DataError(what, where=table.at(int(places[k]), units[k]), hint="count cycles 1, 2, 3, ...")
    return numbers.astype(np.int64)


def _flags(table: Table, cells: pd.Series, column: str, places: IntArray) -> BoolArray:
    """A column of yes and no (1/0, true/false)."""
    yes, no = yes_and_no(cells)
    bad = np.flatnonzero(~(yes | no))
    if bad.size:
        k = int(bad[0])
        what = f"'{table.cell(column, int(places[k]))}' in column '{column}' is neither yes nor no"
        raise DataError(what, where=table.at(int(places[k])), hint="use 1/0 or true/false")
    return yes


def _times(
    table: Table, cells: pd.Series, column: str, form: str, places: IntArray, units: Sequence[str]
) -> FloatArray:
    if form == "number":
        return _numbers(table, cells, column, places, units)
    seconds = seconds_since_1970(cells, form)
    bad = np.flatnonzero(~np.isfinite(seconds))
    if bad.size:
        k, kind = int(bad[0]), "time" if form == ELAPSED else "date"
        raise DataError(
            f"'{table.cell(column, int(places[k]))}' in column '{column}' is not a {kind}",
            where=table.at(int(places[k]), units[k]),
            hint="write every time the same way, such as 2024-05-01 13:00:00, or set data.time_format",
        )
    return seconds


def _sorted(parts: list[Rows], rows: int) -> Iterator[Rows]:
    """All rows in the order of cycle and time, again at most so many at a time."""
    whole = join_rows(parts)
    keys = (whole.times,) if whole.cycles is None else (whole.times, whole.cycles)
    order = np.lexsort(keys)
    for a in range(0, len(order), rows):
        part = order[a : a + rows]
        share = min(a + rows, len(order)) / len(order)
        yield replace(take_rows(whole, part), share=share, repeated=whole.repeated if a == 0 else 0)


def take_rows(rows: Rows, chosen: IntArray) -> Rows:
    """Some of the rows, in the order given."""

    def pick(values: FloatArray | IntArray | BoolArray | None) -> FloatArray | IntArray | BoolArray | None:
        return None if values is None else values[chosen]

    arrays = ("places", "times", "dates", "cycles", "sensors", "settings", "targets", "failed")
    lists = ("units", "machines", "sites")
    changes: dict[str, Any] = {name: pick(getattr(rows, name)) for name in arrays}
    for name in lists:
        values = getattr(rows, name)
        changes[name] = None if values is None else [values[k] for k in chosen]
    return replace(rows, **changes)


def join_rows(parts: Sequence[Rows]) -> Rows:
    """All rows of some pieces of one table."""
    if len(parts) == 1:
        return parts[0]
    first, changes = parts[0], dict[str, Any]()
    for name in ("places", "times", "dates", "cycles", "sensors", "settings", "targets", "failed"):
        if getattr(first, name) is not None:
            changes[name] = np.concatenate([getattr(part, name) for part in parts])
    for name in ("units", "machines", "sites"):
        if getattr(first, name) is not None:
            changes[name] = [value for part in parts for value in getattr(part, name)]
    return replace(first, **changes, share=1.0, repeated=sum(part.repeated for part in parts))
