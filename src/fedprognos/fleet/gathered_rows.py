"""All rows of all tables in memory, unit after unit: what units are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, FloatArray, IntArray, RowStack
from fedprognos.errors import DataError
from fedprognos.tables import (
    Columns,
    RowReader,
    Rows,
    Table,
    at_level,
    coded,
    decimals_of_levels,
    one_spelling,
    unit_files,
)

_Codes = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
"""Numbers of units, tables and conditions by row: half as large as other whole numbers."""
_BY_ROW = ("table_of", "places", "times", "dates", "cycles", "values", "conditions", "targets", "failed")


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """Rows of some units, unit after unit, column by column.

    Parameters
    ----------
    units, machines, stops : (units,)
        Names of units, the machine of each, and where its rows end.
    table_of, places : (rows,)
        The table of each row, and where it stands there.
    values : (rows, C + S)
        Sensors and settings.
    blanks
        How many values are missing in each column of `values` that has blanks.
    conditions, means : (rows,), (conditions, columns with blanks)
        The operating condition of each row, and what a column with blanks has on average there; NaN for settings.
    sites
        By unit: its owners, as they are spelled, each with the table and the place of the first row that says so.
    spelling
        The usual spelling of each owner.
    repeated, again
        Rows that tables hold twice, and machines of several tables that have the same name.
    """

    tables: Sequence[Table]
    units: list[str]
    machines: list[str]
    stops: IntArray
    table_of: _Codes
    places: IntArray
    times: FloatArray
    dates: FloatArray | None
    cycles: IntArray | None
    values: FloatArray
    blanks: dict[int, int]
    conditions: _Codes
    means: FloatArray
    targets: FloatArray | None
    failed: BoolArray | None
    sites: list[dict[str, tuple[int, int]]]
    spelling: dict[str, str]
    repeated: int
    again: set[str]

    def __len__(self) -> int:
        return len(self.times)

    def of_unit(self, k: int) -> GatheredRows:
        """Rows of the k-th unit; its arrays are parts of these."""
        rows = slice(int(self.stops[k - 1]) if k else 0, int(self.stops[k]))
        changes: dict[str, Any] = {"stops": np.array([rows.stop - rows.start])}
        changes |= {name: [getattr(self, name)[k]] for name in ("units", "machines", "sites")}
        for name in _BY_ROW:
            array = getattr(self, name)
            changes[name] = None if array is None else array[rows]
        return replace(self, **changes)

    def at(self, k: int) -> str:
        """File, line and unit of the k-th row of a single unit."""
        return self.tables[int(self.table_of[k])].at(int(self.places[k]), self.units[0])

    def cell(self, column: str, k: int) -> str:
        """What the file says in a column of the k-th row."""
        return self.tables[int(self.table_of[k])].cell(column, int(self.places[k]))

    def site(self) -> str | None:
        """Who owns a single unit."""
        site: str | None = None
        for spelled, (table, place) in self.sites[0].items():
            name = self.spelling[spelled]
            if site not in (None, name):
                raise DataError(
                    f"the unit is in two sites: '{site}' and '{name}'",
                    where=self.tables[table].at(place, self.units[0]),
                    hint="a unit belongs to one site; make the unit ids unique, such as plantA-7",
                )
            site = name
        return site


def gather_rows(reader: RowReader, tables: Sequence[Table]) -> GatheredRows:
    """All rows. What is kept of each row is a few numbers; sensors of a large table are in a file."""
    columns, files = reader.columns, unit_files(tables)
    measured, missing = RowStack(np.float64), np.zeros(len(reader.sensors) + len(columns.settings), dtype=np.int64)
    numbers: dict[str, list[Any]] = {name: [] for name in ("places", "times", "dates", "cycles", "targets", "failed")}
    code_parts: list[_Codes] = []
    table_parts: list[_Codes] = []
    units: dict[str, int] = {}
    machines: list[str] = []
    sites: list[dict[str, tuple[int, int]]] = []
    site_counts: Counter[str] = Counter()
    repeated = 0
    for k, (table, file) in enumerate(zip(tables, files, strict=True)):
        for piece in reader.read(table, file):
            within, names, firsts = coded(piece.units)
            for name, first in zip(names, firsts, strict=True):
                if name not in units:
                    units[name] = len(units)
                    machines.append(piece.machines[first])
                    sites.append({})
            codes = np.array([units[name] for name in names], dtype=np.int32)[within]
            owners = piece.sites if columns.site is not None else _file_sites(piece, columns, files)
            if owners is not None:
                site_of_row, site_names, _ = coded(owners)
                site_counts.update(dict(zip(site_names, np.bincount(site_of_row).tolist(), strict=True)))
                for first in coded(codes.astype(np.int64) * len(site_names) + site_of_row)[2]:
                    sites[codes[first]].setdefault(site_names[site_of_row[first]], (k, int(piece.places[first])))
            measured.add(np.column_stack([piece.sensors, piece.settings]))
            missing += np.concatenate([np.isnan(block).sum(axis=0) for block in (piece.sensors, piece.settings)])
            code_parts.append(codes)
            table_parts.append(np.full(len(piece), k, dtype=np.int32))
            for name, parts in numbers.items():
                column = getattr(piece, name)
                parts.append(None if column is None else column.copy())  # a view would keep the piece's sensors, too
            repeated += piece.repeated
    if reader.lives.goes_on and columns.site is None and columns.unit is not None:
        sites = [{} for _ in units]  # files are parts of a history, not owners
    code = np.concatenate(code_parts)
    order = np.argsort(code, kind="stable") if (code[1:] < code[:-1]).any() else None
    table_of = _joined(table_parts, order)
    values, gaps = measured.whole(order), {c: int(n) for c, n in enumerate(missing) if n}
    conditions, means = _condition_means(
        tables, table_of, values, len(reader.sensors), list(gaps), (*reader.sensors, *columns.settings)
    )
    return GatheredRows(
        tables=tables,
        table_of=table_of,
        units=list(units),
        machines=machines,
        stops=np.cumsum(np.bincount(code)),
        values=values,
        blanks=gaps,
        conditions=conditions,
        means=means,
        sites=sites,
        spelling=one_spelling(site_counts) if columns.site is not None else {name: name for name in site_counts},
        repeated=repeated,
        again=reader.lives.again,
        **{name: _joined(parts, order) for name, parts in numbers.items()},
    )


def _joined(parts: list[Any], order: IntArray | None) -> Any:
    """One array of all parts; the parts are let go. None where there are none."""
    present = [part for part in parts if part is not None]
    parts.clear()
    if not present:
        return None
    whole = np.concatenate(present)
    return whole if order is None else whole[order]


def _file_sites(piece: Rows, columns: Columns, files: Sequence[str]) -> list[str] | None:
    """Owners where no column names them: every file is a site of its own, or lies in the folder of its site."""
    if len(files) < 2:
        return None
    if columns.unit is not None:
        return [piece.table.stem] * len(piece)
    return [piece.table.path.parent.name] * len(piece) if piece.table.path is not None and "/" in files[0] else None


def _condition_means(
    tables: Sequence[Table],
    table_of: _Codes,
    values: FloatArray,
    split: int,
    gaps: Sequence[int],
    names: Sequence[str],
) -> tuple[_Codes, FloatArray]:
    """The operating condition of each row within its table; means of columns with blanks there, NaN for settings.

    One column of the table is in memory at a time.
    """
    conditions, means = np.zeros(len(values) if gaps else 0, dtype=np.int32), [np.empty((0, len(gaps)))]
    for k, table in enumerate(tables) if gaps else ():
        rows = np.flatnonzero(table_of == k) if len(tables) > 1 else slice(None)
        levels = []
        for c in range(split, values.shape[1]):
            setting = values[rows, c]
            present = setting[~np.isnan(setting)]
            decimals = decimals_of_levels(present) if present.size else None
            if decimals is not None:
                levels.append(at_level(setting, decimals))
        count = len(values) if isinstance(rows, slice) else len(rows)
        within = np.zeros(count, dtype=np.int32)
        if levels:
            by_levels = pd.DataFrame(dict(enumerate(levels))).groupby(list(range(len(levels))), dropna=False)
            within = np.asarray(by_levels.ngroup(), dtype=np.int32)
        of_table = np.full((int(within.max(initial=-1)) + 1, len(gaps)), np.nan)
        for g, c in enumerate(gaps):
            column = pd.Series(values[rows, c])
            if column.isna().all():
                what = f"no value at all in column '{names[c]}'"
                raise DataError(what, where=table.where, hint="leave the column out")
            if c < split:
                of_table[:, g] = column.groupby(within).mean().fillna(column.mean()) if levels else column.mean()
        conditions[rows] = within + sum(map(len, means))
        means.append(of_table)
    return conditions, np.concatenate(means)
