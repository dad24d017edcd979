"""How a file writes its table: separator, marks of numbers, encoding, line of names; found out where nobody says."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, PositiveInt

from fedprognos.errors import DataError
from fedprognos.fleet.header import NUMBER, Heading, find_heading
from fedprognos.options import Options

MAX_COLUMNS = 5000
"""A table with more columns is refused before it is read."""
NO_VALUE = ("-", "--", "?", "#VALUE!", "#DIV/0!", "#REF!", "#NUM!")
"""Cells that count as blank, besides those pandas knows (empty, NA, NaN, null, ...)."""
_SEPARATORS = (",", ";", "\t", "|")
_SPACES = " "
"""Where nothing else separates."""
_SAMPLE_IN_BYTES = 1 << 20
_SAMPLE_ROWS = 2000
_TOP = 50
_COMMA = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?\s*")
_POINT = re.compile(r"\s*[+-]?(\d*|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?\s*")
_EITHER = re.compile(r"\s*[+-]?[1-9]\d{0,2}[.,]\d{3}\s*")  # 1,234 is a decimal or a thousand
_GROUPS = re.compile(r"\s*[+-]?[1-9]\d{0,2}((,\d{3}){2,}|(\.\d{3}){2,})\s*")  # 1,234,567
_APART = re.compile(
    r"\s*[+-]?[1-9]\d{0,2}([ \u00a0\u202f'\u2019])\d{3}(\1\d{3})*([.,]\d+)?([eE][+-]?\d+)?\s*"
)  # 1 234,5
_SAID = {"'": "'", "\u2019": "'"}
"""How people name what stands between thousands; the others are spaces."""


class FileFormat(Options):
    """How files write their tables; what is None is found out."""

    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Between the fields of a CSV file."""
    decimal: Literal[".", ","] | None = None
    """Between whole and fraction of a number."""
    thousands: Literal[".", ",", " ", "'"] | None = None
    """Between the thousands of a number."""
    encoding: str | None = None
    """Of the text, such as `utf-8` or `cp1252`."""
    header: PositiveInt | None = None
    """Line that names the columns; a title above it, and a line of measures below it, are passed over."""
    blanks: tuple[str, ...] = ()
    """Texts among numbers that count as blank cells, such as `err`; those that everybody uses are known."""
    sheet: str | None = None
    """Of an Excel file; the one with the most rows by default. `*` reads all that have the same columns as that one."""


@dataclass(frozen=True)
class CsvFormat:
    """How one CSV file is written; `skipped` are lines that belong to no row, counted from 0."""

    header: tuple[str, ...]
    separator: str
    decimal: str
    thousands: str | None
    encoding: str
    skipped: tuple[int, ...] = ()
    blanks: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """Arguments of :func:`pandas.read_csv`."""
        return {
            "sep": r"\s+" if self.separator == _SPACES else self.separator,
            "decimal": self.decimal,
            "thousands": self.thousands if self.thousands in (".", ",") else None,
            "encoding": self.encoding,
            "na_values": [*NO_VALUE, *self.blanks],
            "skiprows": list(self.skipped),
        }

    @property
    def _is_apart(self) -> bool:
        """Whether thousands stand apart in a way that pandas does not read."""
        return self.thousands not in (None, ".", ",")

    def with_numbers(self, frame: pd.DataFrame, texts: Collection[str]) -> pd.DataFrame:
        """The frame with numbers whose thousands stand apart read as numbers; `texts` are columns of names."""
        if not self._is_apart:
            return frame
        for column in frame.columns:
            name = str(column).strip() in texts or pd.api.types.is_numeric_dtype(frame[column])
            cells = frame[column].dropna().astype(str)
            if not name and cells.str.fullmatch(_APART.pattern).any():
                with contextlib.suppress(ValueError):  # a column of texts
                    plain = cells.str.replace(str(self.thousands), "").str.replace(self.decimal, ".").astype(float)
                    frame[column] = plain.reindex(frame.index)
        return frame

    def note(self) -> str:
        """What a person should know about it; empty for plain CSV."""
        marks = {",": "decimal commas"} if self.decimal == "," else {}
        mark = "spaces" if self._is_apart and _said(self.thousands) == " " else f"'{self.thousands}'"
        said = [*marks.values(), *([f"{mark} between thousands"] if self.thousands else [])]
        said += [f"encoding {self.encoding}"] if self.encoding == "cp1252" else []
        said += [f"{lines(self.skipped)} passed over"] if self.skipped else []
        return f"read with {', '.join(said)}" if said else ""


def find_csv_format(path: Path, known: FileFormat | None = None, text_columns: Iterable[str] = ()) -> CsvFormat:
    """Look at the beginning of a CSV file (also gzipped).

    Parameters
    ----------
    known
        What is said about the format; the rest is found out.
    text_columns
        Columns of names, which say nothing about numbers.

    Raises
    ------
    DataError
        Where the file is empty, has too many columns or two of the same name.
    """
    known = known or FileFormat()
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as stream:
            raw = stream.read(_SAMPLE_IN_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("compressed file is damaged or truncated", where=str(path), hint="copy it again") from None
    encoding = known.encoding or _encoding(raw)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(raw)
    except LookupError:
        raise DataError(f"unknown encoding '{encoding}'", where=str(path), hint="for example utf-8 or cp1252") from None
    except UnicodeDecodeError as error:
        hint = "leave out data.encoding, or name the right one"
        raise DataError(f"not {encoding} text ({error.reason})", where=str(path), hint=hint) from None
    if not text.strip():
        raise DataError("empty file", where=str(path), hint="the first line must name the columns")
    widest = max(text.splitlines()[:_TOP], key=len)
    check_width(max(widest.count(s) for s in known.separator or _SEPARATORS) + 1, str(path))
    whole = text if len(raw) < _SAMPLE_IN_BYTES else text[: text.rfind("\n") + 1] or text
    tables = {s: _rows(whole, s) for s in known.separator or _SEPARATORS}
    headings = {s: find_heading([row for _, row in rows], _place(rows, known.header)) for s, rows in tables.items()}
    separator = max(tables, key=lambda s: _fit(tables[s], headings[s]))
    if known.separator is None and len(tables[separator][headings[separator].names][1]) == 1:
        spaced = _rows(whole, _SPACES)
        heading = find_heading([row for _, row in spaced], _place(spaced, known.header))
        if _fit(spaced, heading) > _fit(tables[separator], headings[separator]):
            separator, tables[_SPACES], headings[_SPACES] = _SPACES, spaced, heading
    return _csv_format(path, known, separator, tables[separator], headings[separator], encoding, set(text_columns))


def _csv_format(
    path: Path,
    known: FileFormat,
    separator: str,
    table: list[tuple[int, list[str]]],
    heading: Heading,
    encoding: str,
    text_columns: set[str],
) -> CsvFormat:
    """The format once the separator and the lines of the names are known."""
    header = table[heading.names][1]
    check_names(header, str(path))
    skipped = {k for k, name in enumerate(header) if name.strip() in text_columns}
    cells = [cell for _, row in table[heading.first_row :] for k, cell in enumerate(row) if k not in skipped]
    decimal, thousands = _marks(cells, separator)
    if known.decimal is not None:
        decimal, thousands = known.decimal, thousands if known.decimal == decimal else None
    names, rows = table[heading.names][0], [line for line, _ in table[heading.names + 1 : heading.first_row]]
    over = (*range(names), *rows) if names or rows else ()
    if known.thousands is not None and _said(thousands) != known.thousands:
        thousands = known.thousands
    return CsvFormat(tuple(header), separator, decimal, thousands, encoding, over, known.blanks)


def _said(thousands: str | None) -> str | None:
    """A mark between thousands as people name it: all spaces are one."""
    return thousands if thousands in (None, ".", ",") else _SAID.get(thousands, " ")


def _place(rows: list[tuple[int, list[str]]], line: int | None) -> int | None:
    """Which of the rows stands in a line (counted from 1)."""
    return None if line is None else next((k for k, (n, _) in enumerate(rows) if n >= line - 1), 0)


def lines(numbers: Iterable[int]) -> str:
    """Lines counted from 0 as people count them.

    >>> lines([0, 1, 2]), lines([1]), lines([0, 3])
    ('lines 1 to 3', 'line 2', 'lines 1 and 4')
    """
    found = [n + 1 for n in numbers]
    if len(found) == 1:
        return f"line {found[0]}"
    if found == list(range(found[0], found[-1] + 1)) and len(found) > 2:
        return f"lines {found[0]} to {found[-1]}"
    return "lines " + ", ".join(map(str, found[:-1])) + f" and {found[-1]}"


def check_width(columns: int, where: str) -> None:
    """Refuse a table that is too wide to be one row a measurement."""
    if columns > MAX_COLUMNS:
        raise DataError(
            f"{columns:,} columns or more; at most {MAX_COLUMNS:,} can be read",
            where=where,
            hint="write one row a measurement and one column a sensor; this table seems to lie on its side",
        )


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse two columns of the same name, and names that are numbers."""
    given = [n.strip() for n in names]
    if len(given) > 1 and all(NUMBER.fullmatch(name) for name in given):
        hint = "add a first line that names the columns, such as machine,hour,temperature"
        raise DataError("no line names the columns: the first one holds numbers", where=where, hint=hint)
    seen: dict[str, int] = {}
    for k, name in enumerate(given, 1):
        if name and name in seen:
            places = f"columns {seen[name]} and {k} of the file"
            raise DataError(f"two columns are called '{name}'", where=where, hint=f"rename one of {places}")
        seen[name] = k


def _encoding(raw: bytes) -> str:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return "cp1252"  # what Windows programs write that do not write UTF-8
    return "utf-8-sig"


def _rows(text: str, separator: str) -> list[tuple[int, list[str]]]:
    """Rows that hold anything, each with the line it begins in (counted from 0)."""
    spaces = separator == _SPACES
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=spaces)
    rows: list[tuple[int, list[str]]] = []
    line = 0
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((line, [cell for cell in row if cell] if spaces else row))
            line = reader.line_num
            if len(rows) > _SAMPLE_ROWS:
                break
    except csv.Error:
        pass  # a stray quote; the reader of the whole file says where
    return rows or [(0, [])]


def _fit(rows: list[tuple[int, list[str]]], heading: Heading) -> tuple[bool, float, int]:
    """How well a separator fits: several columns, rows as wide as the names, many columns."""
    width, below = len(rows[heading.names][1]), rows[heading.first_row :]
    return width > 1, sum(len(row) == width for _, row in below) / max(len(below), 1), width


def _marks(cells: Iterable[str], separator: str) -> tuple[str, str | None]:
    """Decimal and thousands mark of some cells.

    >>> _marks(["0,5", "1.234,5", "7"], ";"), _marks(["1,234.5"], ","), _marks(["1,234"], ";"), _marks(["0.5"], ";")
    ((',', '.'), ('.', ','), (',', None), ('.', None))
    >>> _marks(["1 234,5", "0,5"], ";")
    (',', ' ')
    """
    written = {cell.strip() for cell in cells}
    apart = Counter(found[1] for cell in written if (found := _APART.fullmatch(cell)))
    if apart:
        mark = apart.most_common(1)[0][0]
        return _marks({cell.replace(mark, "") for cell in written}, separator)[0], mark
    commas = {cell for cell in written if _COMMA.fullmatch(cell)}
    points = {cell for cell in written if _POINT.fullmatch(cell)}
    unclear = {cell for cell in written if _EITHER.fullmatch(cell)}
    groups = {cell for cell in written if _GROUPS.fullmatch(cell)}
    sure_commas, sure_points = commas - unclear, points - unclear
    if len(sure_commas) > len(sure_points) or (not sure_points and commas and separator != ","):
        grouped = bool(sure_commas) and any("." in cell for cell in commas | points | groups)
        return ",", "." if grouped and not sure_points else None
    grouped = any("," in cell for cell in commas | points | groups)
    return ".", "," if grouped and not sure_commas else None
