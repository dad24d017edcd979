"""Rows of some tables in memory, every column as numbers, dates or texts: what `fedprognos init` looks at.

Files are parsed once: roles are guessed from these rows, and the reader of `fedprognos run` checks the same ones. Of a
large table these are the rows of some machines. Then the reader reads the files once more, to check all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.tables import roles
from fedprognos.tables.column_names import rank
from fedprognos.tables.csv_format import FileFormat
from fedprognos.tables.rows import LARGEST_WHOLE
from fedprognos.tables.table import Table
from fedprognos.tables.table_files import ALL_SHEETS, in_memory_table, open_tables, table_paths
from fedprognos.tables.times import date_format

MOST_ROWS = 400_000
"""Beyond so many rows, some machines stand for all."""
_FIRST_ROWS = 100_000
"""Rows of each table that show which column names the machine."""


@dataclass(frozen=True, eq=False)
class LoadedRows:
    """Rows of all tables, and where each of them stands.

    Parameters
    ----------
    frame
        Columns of numbers, dates and texts.
    table_of, places : (rows,)
        The table of each row, and its place in that table, counted from 0.
    file_format
        What has to be said about the format of the files so that they are read in the same way again.
    note
        What a person should know about how the files were read.
    """

    paths: Sequence[Path]
    tables: Sequence[Table]
    frame: pd.DataFrame
    table_of: IntArray
    places: IntArray
    file_format: FileFormat
    note: str

    @property
    def is_sample(self) -> bool:
        """Whether these are the rows of some machines only."""
        return any(table.condition for table in self.tables)

    def at(self, k: int) -> str:
        """File and line of a row."""
        return self.tables[int(self.table_of[k])].at(int(self.places[k]))

    def take(self, order: IntArray) -> LoadedRows:
        """The same rows in another order."""
        frame = self.frame.iloc[order].reset_index(drop=True)
        return replace(self, frame=frame, table_of=self.table_of[order], places=self.places[order])

    def as_tables(self, text_columns: Sequence[str]) -> list[Table]:
        """The tables once more, as a run opens them but read from memory; errors still name the lines of the files.

        Parameters
        ----------
        text_columns
            Columns of names, which are known by now. They say nothing about how numbers are written; where that makes
            a difference the files are read again.
        """
        opened = [t for path in self.paths for t in open_tables(path, self.file_format, text_columns)]
        alike = [(t.decimal, t.thousands) for t in opened] == [(t.decimal, t.thousands) for t in self.tables]
        return [self._table(k) for k in range(len(self.tables))] if alike and not self.is_sample else opened

    def _table(self, k: int) -> Table:
        table, here = self.tables[k], np.flatnonzero(self.table_of == k)
        whole = len(here) == len(self.frame)
        frame = self.frame if list(table.names) == list(self.frame.columns) else self.frame[list(table.names)]
        places = self.places[here]

        def place(rows: Sequence[int]) -> list[str]:
            return table.place([int(places[row]) for row in rows])

        frame = frame if whole else frame.iloc[here].reset_index(drop=True)
        again = in_memory_table(frame, table.path, table.name, place, self.file_format, table.sheet)
        return replace(again, note=table.note, distinct=True)


def load_rows(path: str | Path) -> LoadedRows:
    """All rows of a file or folder, with the sheets and the texts among numbers that have to be named.

    Of more than :data:`MOST_ROWS` rows, those of some machines are taken, if a column names machines.
    """
    file_format, paths = FileFormat(sheet=ALL_SHEETS), table_paths(path)
    tables = open_tables(path, file_format)
    if len(tables) == len(paths):
        file_format = FileFormat()
    total = sum(table.count for table in tables)
    if total > MOST_ROWS:
        tables = _some_machines(tables, math.ceil(total / MOST_ROWS))
    frame, table_of, places, repeated = _load(tables)
    strays = [text for column in frame.columns for text in roles.stray_texts(column, frame[column])]
    strays += _stand_ins(frame)
    if any(table.condition for table in tables):
        strays += _late_strays(tables, [c for c in frame.columns if pd.api.types.is_numeric_dtype(frame[c])])
    if strays:
        file_format = file_format.model_copy(update={"blanks": tuple(dict.fromkeys(strays))})
        tables = [replace(table, blanks=file_format.blanks) for table in tables]
        frame, table_of, places, repeated = _load(tables)
    notes = [tables[0].note, f"{repeated} rows that occur twice are read once" if repeated else ""]
    if any(table.condition for table in tables):
        notes += [f"columns are guessed from {len(frame):,} of {total:,.0f} rows, those of some machines"]
        notes[1] = ""  # so many in the sample, not in the table
    return LoadedRows(paths, tables, frame, table_of, places, file_format, "; ".join(filter(None, notes)))


def _some_machines(tables: Sequence[Table], share: int) -> list[Table]:
    """The tables with the rows of about one machine in `share`; as they are where no column names machines."""
    parts = [replace(table, condition=f"n < {_FIRST_ROWS}") for table in tables[:1]]
    frame, table_of, _, _ = _load(parts)
    forms = {c for c in frame.columns if not pd.api.types.is_numeric_dtype(frame[c]) and date_format(frame[c])}
    numbers = [c for c in frame.columns if pd.api.types.is_numeric_dtype(frame[c]) and frame[c].notna().all()]
    unit = roles.unit_column(frame, numbers, pd.Series(table_of), forms)
    if unit is None or any(unit not in table.names for table in tables):
        return list(tables)
    return [replace(t, condition=f"coalesce(hash({t.text(unit)}), 0) % {share} = 0") for t in tables]


def _late_strays(tables: Sequence[Table], numeric: Sequence[str]) -> list[str]:
    """Texts among the numbers of all rows, where a sample of them holds numbers only."""
    texts = dict[str, None]()
    for table in tables:
        for column in [c for c in numeric if c in table.names and table.kind(c) == "text"]:
            raw = table.raw_text(column)
            strays = table.query([raw], f"WHERE isinf({table.number(column)}) GROUP BY 1 LIMIT {roles.MOST_STRAYS + 1}")
            if len(strays) <= roles.MOST_STRAYS:
                texts |= dict.fromkeys(str(text).strip() for (text,) in strays)
    return list(texts)


def _stand_ins(frame: pd.DataFrame) -> list[str]:
    """Numbers such as -9999 that stand for blanks; none that another column holds in earnest."""
    numeric = {column: frame[column] for column in frame.columns if pd.api.types.is_numeric_dtype(frame[column])}
    marks = {column: mark for column in numeric if (mark := roles.stand_in(numeric[column])) is not None}
    in_earnest = {m for m in marks.values() for c in numeric.keys() - marks.keys() if (numeric[c] == m).any()}
    return [f"{mark:g}" for mark in dict.fromkeys(marks.values()) if mark not in in_earnest]


def _load(tables: Sequence[Table]) -> tuple[pd.DataFrame, IntArray, IntArray, int]:
    """Columns of all tables, the table and the place of each row, and how many rows were repeated."""
    texts = {name for table in tables for name in _texts_at_first(table)}
    columns = {name: _Column() for table in tables for name in table.names}
    table_of, places, repeated = [], [], 0
    for k, table in enumerate(tables):
        for piece in table.pieces({name: _expression(table, name, texts) for name in table.names}):
            for name, column in columns.items():
                column.add(piece.cells, name, table, texts)
            table_of.append(np.full(len(piece.rows), k, dtype=np.int64))
            places.append(piece.rows)
            repeated += piece.repeated
    late = [name for name, column in columns.items() if column.strange]
    if late:  # texts that come after the first piece only: rare, so that a second pass costs little on the whole
        again = {name: _Column() for name in late}
        for table in tables:
            for piece in table.pieces({n: _expression(table, n, set(late)) for n in late if n in table.names}):
                for name, column in again.items():
                    column.add(piece.cells, name, table, set(late))
        columns |= again
    frame = pd.DataFrame({name: column.joined() for name, column in columns.items()}, copy=False)
    return frame, np.concatenate(table_of), np.concatenate(places), repeated


def _texts_at_first(table: Table) -> list[str]:
    """Columns that hold something else than numbers in the first piece of a table."""
    texts = {name: table.number(name) for name in table.names if table.kind(name) == "text"}
    if not texts:
        return []
    first = next(iter(table.pieces(texts))).cells
    return [name for name in texts if np.isinf(first[name].to_numpy(np.float64, na_value=np.nan)).any()]


def _expression(table: Table, name: str, texts: set[str]) -> str:
    if table.kind(name) == "date":
        return table.nanoseconds(name)
    return table.text(name) if name in texts else table.number(name)


def _are_long_names(name: str, numbers: FloatArray) -> bool:
    """Whether numbers are names too long for a float64: called so, or repeated from row to row, as no time is."""
    if not len(numbers) or not np.abs(np.where(np.isfinite(numbers), numbers, 0.0)).max() >= LARGEST_WHOLE:
        return False
    called = any(rank(name, role) is not None for role in ("unit", "site"))
    return called or float((numbers[1:] == numbers[:-1]).mean()) > 0.5


class _Column:
    """A column of all tables, piece by piece; :meth:`joined` frees the pieces, so that they are not held twice."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self.strange = False
        """Whether a cell of a column of numbers is no number, or has more digits than a number keeps."""

    def add(self, cells: pd.DataFrame, name: str, table: Table, texts: set[str]) -> None:
        if name not in table.names:
            self._parts.append(pd.Series(np.full(len(cells), np.nan)))
        elif table.kind(name) == "date":
            self._parts.append(pd.to_datetime(cells[name], unit="ns"))
        elif name in texts:
            self._parts.append(cells[name])
        else:
            numbers = cells[name].to_numpy(np.float64, na_value=np.nan)
            self.strange |= table.kind(name) == "text" and bool(np.isinf(numbers).any())
            self.strange |= _are_long_names(name, numbers)
            self._parts.append(pd.Series(numbers))

    def joined(self) -> pd.Series:
        whole: pd.Series = pd.concat(self._parts, ignore_index=True)
        self._parts = []
        return whole
