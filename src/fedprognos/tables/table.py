"""A table that DuckDB reads in pieces, whatever it was opened from.

A :class:`Table` knows its columns and gives them as numbers, names, flags or dates. What counts as blank, which rows
occur twice and how a place is named in an error is decided here, for every format and for every reader.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, IntArray
from fedprognos.errors import DataError
from fedprognos.tables.database import connection, literal, quoted

PIECE = 20_480
"""Rows of a piece; a multiple of DuckDB's 2,048."""
BLANKS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null", "-", "--", "?", "#VALUE!", "#DIV/0!", "#REF!", "#NUM!"),
)
"""Texts that count as blank in every table: those that pandas knows, and those that spreadsheets write."""
YES = (
    *("1", "1.0", "true", "yes", "y", "t", "failed", "failure", "fail", "broken", "dead", "defect", "defekt"),
    *("ja", "wahr", "oui", "vrai", "si", "sí", "sì", "sim", "tak"),
)
NO = (
    *("0", "0.0", "false", "no", "n", "f", "running", "run", "ok", "alive", "working", "censored", "healthy"),
    *("nein", "falsch", "non", "faux", "nie", "nao", "não", "nee"),
)
_ANY_SUFFIX = r"\.(csv\.gz|csv|tsv\.gz|tsv|txt|xlsx|parquet|mat)$"
NAMELESS = "Unnamed: "
"""Begins the names of columns that have none in their file."""
_WHITE = literal(" \t\u00a0\u202f")

Kind = Literal["text", "number", "date"]


@dataclass(eq=False)
class Piece:
    """Some rows of a table.

    Parameters
    ----------
    cells
        A column for every expression that was asked for.
    rows : (n,)
        Where they stand in the table, counted from 0.
    share
        Of the table that is read with them.
    repeated
        Rows that were passed over because the table holds them already.
    """

    cells: pd.DataFrame
    rows: IntArray
    share: float
    repeated: int


@dataclass(frozen=True, eq=False)
class Table:
    """One table: a file, a sheet of one, or a data frame.

    Parameters
    ----------
    names
        Of the columns, without blanks around them.
    kinds : like `names`
        What DuckDB holds them as.
    relation
        What SQL selects from; its columns are called c0, c1, ...
    place
        From rows (counted from 0, increasing) to how a person finds them: `line 7`.
    count
        Rows, at least about how many.
    note
        What a person should know about how the file was read.
    """

    path: Path | None
    name: str
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    relation: str
    place: Callable[[Sequence[int]], list[str]]
    count: float
    sheet: str | None = None
    note: str = ""
    decimal: str = "."
    thousands: str | None = None
    blanks: tuple[str, ...] = ()
    database: duckdb.DuckDBPyConnection = field(default_factory=connection)
    distinct: bool = False
    """No two rows are alike, so that none has to be looked for; true of rows that were read once already."""
    condition: str = ""
    """What must hold, in SQL, for a row to be read; empty for all rows."""
    kept: tuple[Any, ...] = ()
    """What must live as long as the table: a data frame, the folder of a plain copy."""

    @property
    def where(self) -> str:
        """The file and sheet, for error messages."""
        place = self.name if self.path is None else str(self.path)
        return place if self.sheet is None else f"{place}, sheet {self.sheet}"

    @property
    def stem(self) -> str:
        """File name without its suffixes; the sheet's name, where it is one of several."""
        if self.sheet is not None:
            return self.sheet
        return self.name if self.path is None else re.sub(_ANY_SUFFIX, "", self.path.name, flags=re.IGNORECASE)

    def at(self, row: int, unit: str | None = None) -> str:
        """File, line and unit of a row (counted from 0)."""
        text = f"{self.where}, {self.place([row])[0]}"
        return text if unit is None else f"{text}, unit {unit}"

    def require(self, columns: Iterable[str]) -> None:
        """Refuse a table without one of these columns, with the nearest name that it has."""
        for column in columns:
            if column not in self.names:
                lower = {name.lower(): name for name in self.names}
                close = difflib.get_close_matches(column.lower(), lower, n=1, cutoff=0.5)
                guess = f"did you mean '{lower[close[0]]}'? " if close else ""
                hint = f"{guess}Columns here: {', '.join(self.names)}"
                raise DataError(f"no column '{column}'", where=self.where, hint=hint)

    # --- columns as SQL ----------------------------------------------------------------------

    def number(self, column: str) -> str:
        """A column as numbers: NULL where it is blank, infinite where it is no number."""
        raw, kind = self._raw(column)
        if kind == "date":
            return f"CASE WHEN {raw} IS NULL THEN NULL ELSE CAST('inf' AS DOUBLE) END"
        floats = [float(text) for text in self.blanks if _is_float(text)]
        numbers = [repr(number) for number in floats if math.isfinite(number)]
        if kind == "number":
            value = f"CAST({raw} AS DOUBLE)"
        else:
            # Blank texts are looked for only where the cast fails, which keeps clean files fast. DuckDB also reads
            # 1_000 as a number, and a point in a file of decimal commas separates thousands or is a mistake.
            text, odd_marks = raw, ["_"]
            if self.thousands is not None:
                text = f"replace({text}, {literal(self.thousands)}, '')"
            if self.decimal != ".":
                odd_marks += [] if self.thousands == "." else ["."]
                text = f"replace({text}, {literal(self.decimal)}, '.')"
            odd = " OR ".join(f"contains({raw}, {literal(mark)})" for mark in odd_marks)
            parsed = f"CASE WHEN {odd} THEN NULL ELSE TRY_CAST({text} AS DOUBLE) END"
            bad = f"CASE WHEN {self._blank(raw)} THEN NULL ELSE CAST('inf' AS DOUBLE) END"
            value = f"coalesce({parsed}, {bad})"
            if len(numbers) < len(floats):  # "inf" is a number for DuckDB, so that the cast does not fail
                value = f"CASE WHEN {self._blank(raw)} THEN NULL ELSE {value} END"
        return f"CASE WHEN {value} IN ({', '.join(numbers)}) THEN NULL ELSE {value} END" if numbers else value

    def text(self, column: str) -> str:
        """A column as texts without blanks around them; NULL where it is blank. Numbers that are whole have no `.0`."""
        raw, kind = self._raw(column)
        text = f"trim(CAST({raw} AS VARCHAR), {_WHITE})"
        blank = self._blank(raw) if kind == "text" else f"{raw} IS NULL"
        if kind == "number":
            blank += f" OR isnan(CAST({raw} AS DOUBLE))"
        # pandas writes whole numbers as 1.0 where a column has blanks: machine 1.0 is machine 1.
        return f"CASE WHEN {blank} THEN NULL ELSE regexp_replace({text}, '^(-?[0-9]+)[.]0+$', '\\1') END"

    def raw_text(self, column: str) -> str:
        """A column as the file writes it."""
        return f"CAST({self._raw(column)[0]} AS VARCHAR)"

    def nanoseconds(self, column: str) -> str:
        """A column of dates as nanoseconds since 1970."""
        return f"epoch_ns({self._raw(column)[0]})"

    def day(self, column: str) -> str:
        """A column of dates as texts such as 2024-05-01; a text stays as it is."""
        raw, kind = self._raw(column)
        return f"strftime({raw}, '%Y-%m-%d')" if kind == "date" else self.text(column)

    def numeric(self, columns: Iterable[str]) -> list[str]:
        """Columns of numbers; one with a few texts counts, so that they are complained about."""
        chosen = [column for column in columns if self.kind(column) != "date"]
        if not chosen:
            return []
        finite = [f"count(CASE WHEN isfinite({self.number(c)}) THEN 1 END)" for c in chosen]
        counts = self.query([*finite, *(f"count(CASE WHEN {self._filled(c)} THEN 1 END)" for c in chosen)])[0]
        mostly_numbers = {c for k, c in enumerate(chosen) if counts[k] > counts[k + len(chosen)] / 2}
        return [c for c in self.names if c in mostly_numbers]

    def kind(self, column: str) -> Kind:
        """What a column is held as."""
        return self._raw(column)[1]

    def _raw(self, column: str) -> tuple[str, Kind]:
        k = self.names.index(column)
        return f"c{k}", self.kinds[k]

    def _filled(self, column: str) -> str:
        """Whether a cell is not blank."""
        raw, kind = self._raw(column)
        if kind == "number":
            return f"{raw} IS NOT NULL AND NOT isnan(CAST({raw} AS DOUBLE))"
        filled = f"NOT {self._blank(raw)}"
        # A finite number is not blank, and casting is much faster than comparing with every blank text. This does not
        # hold for blanks that the user names: they may be written like numbers.
        return filled if self.blanks else f"CASE WHEN isfinite({self.number(column)}) THEN TRUE ELSE {filled} END"

    def _blank(self, raw: str) -> str:
        # One compiled pattern: an IN of thirty texts prepares all of them for every 2,048 rows, needed or not.
        texts = "|".join(re.escape(text) for text in (*BLANKS, *(b.strip() for b in self.blanks)))
        return f"({raw} IS NULL OR regexp_full_match(trim({raw}, {_WHITE}), {literal(f'({texts})')}))"

    # --- reading -----------------------------------------------------------------------------

    def pieces(self, columns: Mapping[str, str], rows: int = PIECE) -> Iterator[Piece]:
        """Expressions over the columns, at most `rows` rows at a time, in the order of the table.

        Passed over are blank rows, rows that repeat an earlier one in every column, and those that repeat the names of
        the columns, as files have that were put together from several.
        """
        every = [f"c{k}" for k in range(len(self.names))]
        filled = f"coalesce({', '.join(f'CAST({c} AS VARCHAR)' for c in every)}) IS NOT NULL"
        named = [(c, name) for c, name in zip(every, self.names, strict=True) if not name.startswith(NAMELESS)]
        if set(self.kinds) == {"text"} and named:
            # One column is looked at first: DuckDB would trim all cells of all rows.
            first = f"contains({named[0][0]}, {literal(named[0][1])})"
            names_again = " AND ".join(f"trim({c}, {_WHITE}) = {literal(name)}" for c, name in named)
            filled += f" AND NOT coalesce(CASE WHEN {first} THEN {names_again} END, FALSE)"
        filled += f" AND {self.condition}" if self.condition else ""
        selected = [f"{expression} AS {quoted(name)}" for name, expression in columns.items()]
        selected += [
            f"n AS {quoted(_ROW)}",
            *([] if self.distinct else [f"hash({', '.join(every)}) AS {quoted(_HASH)}"]),
        ]
        sql = f"SELECT {', '.join(selected)} FROM {self._numbered} WHERE {filled}"
        rows_so_far, empty = _SeenRows(), True
        chunks = itertools.chain(self._stream(sql), [None])
        frame = next(chunks)
        while frame is not None:
            following = next(chunks)
            empty = False
            cells, repeated = frame, 0
            if not self.distinct:
                again = rows_so_far.again(frame.pop(_HASH).to_numpy(np.uint64))
                repeated = int(again.sum())
                cells = frame[~again] if repeated else frame
            places: IntArray = cells.pop(_ROW).to_numpy(np.int64)
            for a in range(0, max(len(cells), 1), rows):
                last = following is None and a + rows >= len(cells)
                read = 1.0 if last else min(float(places[min(a + rows, len(cells)) - 1] + 1) / self.count, 0.99)
                yield Piece(cells.iloc[a : a + rows], places[a : a + rows], read, repeated if a == 0 else 0)
            frame = following
        if empty:
            raise DataError("no rows", where=self.where, hint="the file holds a header and nothing else")

    def query(self, expressions: Sequence[str], rest: str = "") -> list[tuple[Any, ...]]:
        """Rows of a query over the whole table; `rest` may filter and group."""
        sql = f"SELECT {', '.join(expressions)} FROM {self._numbered} {rest}"
        with _duckdb_errors(self):
            return self.database.execute(sql).fetchall()

    @property
    def _numbered(self) -> str:
        """Rows with their place `n`, counted from 0."""
        return f"(SELECT *, row_number() OVER () - 1 AS n FROM {self.relation})"

    def cell(self, column: str, row: int) -> str:
        """What the file says in a cell."""
        text = self.query([self.raw_text(column)], f"WHERE n = {row}")[0][0]
        return "" if text is None else str(text)

    def bad_number(self, column: str, row: int, unit: str | None, blank_hint: str) -> DataError:
        """Why a cell is no number: it is blank, for which there is a hint, or else a text, or infinite."""
        where, raw = self.at(row, unit), self.cell(column, row)
        test = f"{self.number(column)} IS NULL" if blank_hint else f"isinf({self.number(column)})"
        count = int(self.query(["count(*)"], f"WHERE {test}")[0][0])
        more = f" ({count} such rows)" if count > 1 else ""
        if blank_hint:
            return DataError(f"missing value in column '{column}'{more}", where=where, hint=blank_hint)
        if _is_float(raw):
            return DataError(f"{raw} in column '{column}'{more}", where=where, hint="replace infinite values")
        hint = f"correct it, leave the column out, or let it count as blank: data.blanks = ['{raw}']"
        if re.fullmatch(r"\s*-?[\d.]+,\d+\s*", raw):
            hint = "decimal commas? Set data.decimal = ','"
        return DataError(f"'{raw}' in column '{column}' is not a number{more}", where=where, hint=hint)

    def _stream(self, sql: str) -> Iterator[pd.DataFrame]:
        with _duckdb_errors(self):
            self.database.execute(sql)
            while len(frame := self.database.fetch_df_chunk(PIECE // 2048)):
                yield frame


_HASH, _ROW = " hash", " row"
"""Names that no column has: they begin with a blank."""


class _SeenRows:
    """Hashes of the rows so far, 8 bytes each: sorted runs whose sizes double, as in a merge sort.

    Two different rows among ten million share a hash of 64 bits with a chance of 3 in a million.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []

    def again(self, hashes: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> BoolArray:
        """Which rows repeat an earlier one: (n,)."""
        run, first = np.unique(hashes, return_index=True)
        again = np.ones(len(hashes), dtype=np.bool_)
        again[first] = False
        for earlier in self._runs:
            place = np.minimum(np.searchsorted(earlier, hashes), len(earlier) - 1)
            again |= earlier[place] == hashes
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]))
        return again


class _duckdb_errors:  # noqa: N801 - a context manager, used like a function
    """Turns what DuckDB says about a file into a :class:`DataError`."""

    def __init__(self, table: Table) -> None:
        self._where = table.where
        self._kind = "Parquet" if table.path is not None and table.path.suffix.lower() == ".parquet" else "CSV"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, duckdb.Error):
            raise readable_error(error, self._where, self._kind) from None


def readable_error(error: duckdb.Error, where: str, kind: str) -> DataError:
    text = str(error)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    fields = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    if line and fields:
        what = f"line {line[1]} has {fields[2]} fields, the header has {fields[1]}"
        return DataError(what, where=where, hint="is there a stray separator or quote?")
    if line and "unterminated quote" in text:
        return DataError(f"line {line[1]} has a quote that is not closed", where=where, hint="close or remove it")
    first = text.split("\n", 1)[0]
    hint = "is there a stray separator or quote?" if kind == "CSV" else "copy it again"
    return DataError(f"not a readable {kind} file: {first}", where=where, hint=hint)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def yes_and_no(texts: pd.Series) -> tuple[BoolArray, BoolArray]:
    """Which cells say yes (failed) and which no (still running), in a few languages.

    >>> [flags.tolist() for flags in yes_and_no(pd.Series(["Ja", "running", "0", "maybe"]))]
    [[True, False, False, False], [False, True, True, False]]
    """
    lower = texts.astype(str).str.strip().str.lower()
    return np.asarray(lower.isin(YES), dtype=np.bool_), np.asarray(lower.isin(NO), dtype=np.bool_)
