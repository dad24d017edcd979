"""How a file writes its table: encoding, separator, line of names, marks of numbers; found out where nobody says.

DuckDB reads the rows, but its `sniff_csv` is not asked how they are written. On files that people have it takes a title
for the names of the columns, a row of measures for data, decimal commas for texts, a bar within names for the
separator, cp1252 for damaged UTF-8, and columns aligned by spaces for a single one.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pandas as pd
from pydantic import Field, PositiveInt

from fedprognos.errors import DataError
from fedprognos.options import Options

MAX_COLUMNS = 5000
"""A table with more columns is refused before it is read."""
SPACES = " "
"""The separator of columns that are aligned by spaces."""
NUMBER = re.compile(r"\s*[+-]?(\d[\d.,' \u00a0\u202f\u2019]*|\.\d+)([eE][+-]?\d+)?\s*")
"""What may be a number, whatever its marks."""
_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_IN_BYTES = 1 << 20
_WINDOWS = ("cp1252", "cp1250")
"""What Windows programs write in the west of Europe, and from Poland to Hungary."""
_EASTERN = re.compile(
    rb"[A-Za-ln-z][\x9f\xa3\xa5\xaf\xb3\xb9\xbf][A-Za-z]|[\x8a\x8d-\x8f\x9a\x9d\x9e][A-Za-z]|[A-Za-z][\x9a\x9d\x9e]"
)
"""Bytes of words that are letters in cp1250 (ł, ą, ż, š, ž) and none, or rare ones, in cp1252; `m³h` is no word."""
_WESTERN = re.compile(rb"\xb2|m\xb3(?![A-Za-z\x80-\xff])")
"""Units such as `m²` and `m³/h`, which cp1250 does not have; š and ž are the same bytes in both."""
_SAMPLE_ROWS = 2000
_COMMA = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?\s*")
_POINT = re.compile(r"\s*[+-]?(\d*|\d{1,3}(,\d{3})+)\.\d+([eE][+-]?\d+)?\s*")
_EITHER = re.compile(r"\s*[+-]?[1-9]\d{0,2}[.,]\d{3}\s*")  # 1,234 is a decimal or a thousand
_GROUPS = re.compile(r"\s*[+-]?[1-9]\d{0,2}((,\d{3}){2,}|(\.\d{3}){2,})\s*")  # 1,234,567
_APART = re.compile(
    r"\s*[+-]?[1-9]\d{0,2}([ \u00a0\u202f'\u2019])\d{3}(\1\d{3})*([.,]\d+)?([eE][+-]?\d+)?\s*"
)  # 1 234,5
_APOSTROPHES = ("'", "\u2019")


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
    """Texts among numbers that count as blank cells, such as `err`; the usual ones (empty, NA, -, ...) always do."""
    sheet: str | None = None
    """Of an Excel file; the one with the most rows by default. `*` reads all that have the same columns as that one."""


@dataclass(frozen=True)
class CsvFormat:
    """How one CSV file is written.

    Parameters
    ----------
    names
        Of the columns, as they are written.
    first_line
        Line of the first row of data, counted from 0; the lines before it are names, titles and measures.
    passed_over
        Lines of those that are not the names.
    needs_copy
        DuckDB cannot read the file as it is: see :func:`plain_copy`.
    rows
        About how many rows the file has.
    """

    names: tuple[str, ...]
    separator: str
    decimal: str
    thousands: str | None
    encoding: str
    first_line: int
    passed_over: tuple[int, ...]
    needs_copy: bool
    rows: float

    def note(self) -> str:
        """What a person should know about it; empty for plain CSV."""
        facts = ["decimal commas"] if self.decimal == "," else []
        if self.thousands:
            mark = "spaces" if _as_option(self.thousands) == " " else f"'{self.thousands}'"
            facts += [f"{mark} between thousands"]
        facts += [f"encoding {self.encoding}"] if self.encoding in _WINDOWS else []
        facts += [f"{lines(self.passed_over)} passed over"] if self.passed_over else []
        return f"read with {', '.join(facts)}" if facts else ""


def find_csv_format(path: Path, file_format: FileFormat | None = None, text_columns: Iterable[str] = ()) -> CsvFormat:
    """Find out how a CSV file (also gzipped) is written.

    Parameters
    ----------
    file_format
        What is said about the format.
    text_columns
        Columns of names, which say nothing about numbers.

    Raises
    ------
    DataError
        Where the file is empty or damaged, has too many columns or two of the same name.
    """
    file_format = file_format or FileFormat()
    sample, encoding, mixed_line_ends, share = _read_sample(path, file_format.encoding)
    if not sample.strip():
        raise DataError("empty file", where=str(path), hint="the first line must name the columns")
    separators = file_format.separator or "".join(_SEPARATORS)
    check_width(max(max(sample.splitlines()[:50], key=len).count(s) for s in separators) + 1, str(path))
    layouts = {s: _layout(sample, s, file_format.header) for s in separators}
    if not any(layout.fit[0] for layout in layouts.values()) and file_format.separator is None:
        layouts[SPACES] = _layout(sample, SPACES, file_format.header)
    separator = max(layouts, key=lambda s: layouts[s].fit)
    rows, names_at, first_at, _ = layouts[separator]
    names = rows[names_at][1]
    check_names(names, str(path))
    texts = {k for k, name in enumerate(names) if name.strip() in set(text_columns)}
    cells = [cell for _, row in rows[first_at:] for k, cell in enumerate(row) if k not in texts]
    decimal, thousands = _marks(cells, separator)
    if file_format.decimal is not None:
        decimal, thousands = file_format.decimal, thousands if file_format.decimal == decimal else None
    if file_format.thousands is not None and _as_option(thousands) != file_format.thousands:
        thousands = file_format.thousands
    below = [line for line, _ in rows[names_at + 1 : first_at]]
    first_line = rows[first_at][0] if first_at < len(rows) else len(sample.splitlines())
    return CsvFormat(
        names=tuple(names),
        separator=separator,
        decimal=decimal,
        thousands=thousands,
        encoding=encoding,
        first_line=first_line,
        passed_over=(*range(rows[names_at][0]), *below),
        needs_copy=mixed_line_ends or separator == SPACES or encoding not in ("utf-8-sig", "utf-8"),
        rows=sample.count("\n") / max(share, 1e-9),
    )


@contextmanager
def open_bytes(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """A file, unpacked where it is gzipped; a damaged one is a :class:`DataError`."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as stream:
            yield stream
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("compressed file is damaged or truncated", where=str(path), hint="copy it again") from None
    except UnicodeDecodeError as error:
        hint = "name the encoding: data.encoding = '...'"
        raise DataError(f"not {error.encoding} text ({error.reason})", where=str(path), hint=hint) from None


def plain_copy(path: Path, form: CsvFormat, folder: Path) -> Path:
    """The file as DuckDB reads it: UTF-8, one separator between fields, line ends that are all alike.

    It is written row by row, so that its size does not matter. Line numbers stay: blank lines are kept.
    """
    copy = Path(tempfile.mkstemp(suffix=".csv", dir=folder)[1])
    with open_text(path, form) as text, copy.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, delimiter=plain_separator(form), lineterminator="\n")
        writer.writerows(csv_rows(text, form.separator))
    return copy


def plain_separator(form: CsvFormat) -> str:
    """What separates fields in a plain copy."""
    return "\t" if form.separator == SPACES else form.separator


@contextmanager
def open_text(path: Path, form: CsvFormat) -> Iterator[io.TextIOWrapper]:
    """The text of a CSV file."""
    with open_bytes(path) as stream, io.TextIOWrapper(stream, encoding=form.encoding, newline="") as text:
        yield text


def csv_rows(text: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Rows of a text; columns that are aligned by spaces have no empty cells."""
    spaces = separator == SPACES
    for row in csv.reader(text, delimiter=separator, skipinitialspace=spaces):
        yield [cell for cell in row if cell] if spaces else row


def find_heading(rows: Sequence[Sequence[str]], names: int | None = None) -> tuple[int, int]:
    """The row of names, and the first one of data; between them a row of measures (`h`, `°C`) may stand.

    Parameters
    ----------
    rows
        The beginning of a table; a blank cell is an empty text.
    names
        The row of names, where it is known.

    Examples
    --------
    >>> data = [["a", "1", "20"], ["a", "2", "21"]]
    >>> find_heading([["pump log", "", ""], ["pump", "hour", "heat"], ["", "h", "K"], *data])
    (1, 3)
    >>> find_heading([["pump", "hour"], ["a", "1"], ["a", "2"]])
    (0, 1)
    """
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    usual = Counter(filled).most_common(1)[0][0]
    if names is None:  # titles fill fewer cells than names do
        names = next((k for k, n in enumerate(filled[:30]) if n >= 0.6 * usual and (n > 1 or usual < 2)), 0)
    return names, names + 1 + _is_measures(rows[names + 1 :])


def _is_measures(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has words where the others have numbers, and no number at all there."""
    if len(rows) < 3:
        return False
    first, others = rows[0], rows[1:]
    numeric = [
        k
        for k in range(len(first))
        if sum(len(row) > k and bool(NUMBER.fullmatch(row[k])) for row in others) > len(others) / 2
    ]
    cells = [first[k].strip() for k in numeric]
    blank = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-", "--", "?")
    words = [c for c in cells if c.lower() not in blank]
    return 2 * len(words) >= len(cells) > 0 and not any(NUMBER.fullmatch(c) for c in words)


def lines(numbers: Iterable[int]) -> str:
    """Lines counted from 0 as people count them.

    >>> lines([0, 1, 2]), lines([1]), lines([0, 3])
    ('lines 1 to 3', 'line 2', 'lines 1 and 4')
    """
    counted = [n + 1 for n in numbers]
    if len(counted) == 1:
        return f"line {counted[0]}"
    if counted == list(range(counted[0], counted[-1] + 1)) and len(counted) > 2:
        return f"lines {counted[0]} to {counted[-1]}"
    return "lines " + ", ".join(map(str, counted[:-1])) + f" and {counted[-1]}"


def check_width(columns: int, where: str) -> None:
    """Refuse a table that is too wide to be one row a measurement."""
    if columns > MAX_COLUMNS:
        raise DataError(
            f"{columns:,} columns or more; at most {MAX_COLUMNS:,} can be read",
            where=where,
            hint="write one row a measurement and one column a sensor; this table seems to lie on its side",
        )


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse two columns of the same name, names that are numbers, and names with a zero byte."""
    given = [n.strip() for n in names]
    if len(given) > 1 and all(NUMBER.fullmatch(name) for name in given):
        hint = "add a first line that names the columns, such as machine,hour,temperature"
        raise DataError("no line names the columns: the first one holds numbers", where=where, hint=hint)
    seen: dict[str, int] = {}
    for k, name in enumerate(given, 1):
        if "\0" in name:  # DuckDB ends a name there
            hint = "the file is damaged, or not written as text: export it again"
            raise DataError(f"the name of column {k} holds a zero byte", where=where, hint=hint)
        if name and name in seen:
            places = f"columns {seen[name]} and {k} of the file"
            raise DataError(f"two columns are called '{name}'", where=where, hint=f"rename one of {places}")
        seen[name] = k


def _read_sample(path: Path, encoding: str | None) -> tuple[str, str, bool, float]:
    """The beginning of a file, its encoding, whether its line ends differ, and which share of it that is.

    The whole file is decoded once: an umlaut in its last line must not stop the reading half-way.
    """
    with open_bytes(path) as stream:
        sample = stream.read(_SAMPLE_IN_BYTES)
        whole = encoding or ("utf-16" if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
        try:
            decoder = codecs.getincrementaldecoder(whole)()
        except LookupError:
            hint = "for example utf-8 or cp1252"
            raise DataError(f"unknown encoding '{encoding}'", where=str(path), hint=hint) from None
        block, size, crlf, lf = sample, 0, 0, 0
        while block:
            size += len(block)
            crlf, lf = crlf + block.count(b"\r\n"), lf + block.count(b"\n")
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                if encoding is not None:
                    raise
                whole = _WINDOWS[1 if _EASTERN.search(block) and not _WESTERN.search(block) else 0]
                decoder = codecs.getincrementaldecoder("latin-1")()
            block = stream.read(_SAMPLE_IN_BYTES)
    text = codecs.getincrementaldecoder(whole)(errors="replace" if whole in _WINDOWS else "strict").decode(sample)
    if len(sample) == _SAMPLE_IN_BYTES:
        text = text[: text.rfind("\n") + 1] or text
    return text, whole, 0 < crlf < lf, len(sample) / max(size, 1)


def _rows(text: str, separator: str) -> list[tuple[int, list[str]]]:
    """Rows that hold anything, each with the line it begins in (counted from 0)."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=separator == SPACES)
    rows: list[tuple[int, list[str]]] = []
    line = 0
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((line, [cell for cell in row if cell] if separator == SPACES else row))
            line = reader.line_num
            if len(rows) > _SAMPLE_ROWS:
                break
    except csv.Error:
        pass  # a stray quote; DuckDB says where
    return rows or [(0, [])]


def _place(rows: list[tuple[int, list[str]]], line: int | None) -> int | None:
    """Which of the rows stands in a line (counted from 1)."""
    return None if line is None else next((k for k, (n, _) in enumerate(rows) if n >= line - 1), 0)


class _Layout(NamedTuple):
    """Rows of a sample, those of the names and of the first data, and how well the separator fits."""

    rows: list[tuple[int, list[str]]]
    names: int
    first: int
    fit: tuple[bool, float, float, int]
    """Several columns; the share of rows as wide as the names, by that of cells that are numbers; the first share
    alone; how many columns."""


def _layout(sample: str, separator: str, header: int | None) -> _Layout:
    rows = _rows(sample, separator)
    names, first = find_heading([row for _, row in rows], _place(rows, header))
    width, below = len(rows[names][1]), rows[first:]
    as_wide = sum(len(row) == width for _, row in below) / max(len(below), 1)
    # Rows of decimal commas are all cut alike at their commas, too, but "60;1" between two commas is no number.
    numbers = sum(bool(NUMBER.fullmatch(cell)) for _, row in below for cell in row) / max(1, width * len(below))
    return _Layout(rows, names, first, (width > 1, as_wide * numbers, as_wide, width))


def _as_option(thousands: str | None) -> str | None:
    """A mark between thousands as `data.thousands` names it: all spaces are one."""
    return thousands if thousands in (None, ".", ",") else "'" if thousands in _APOSTROPHES else " "


def _marks(cells: Iterable[str], separator: str) -> tuple[str, str | None]:
    """Decimal and thousands mark of some cells.

    >>> _marks(["0,5", "1.234,5", "7"], ";"), _marks(["1,234.5"], ","), _marks(["1,234"], ";"), _marks(["0.5"], ";")
    ((',', '.'), ('.', ','), (',', None), ('.', None))
    >>> _marks(["1 234,5", "0,5"], ";")
    (',', ' ')
    """
    written = {cell.strip() for cell in cells}
    apart = Counter(match[1] for cell in written if (match := _APART.fullmatch(cell)))
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


_PANDAS = tuple(int(n) for n in re.findall(r"\d+", pd.__version__)[:2])
_EXACT: dict[str, Any] = {} if _PANDAS >= (3, 1) else {"float_precision": "round_trip"}  # 3.1 reads exactly by itself


def read_exact_csv(path: Path, **options: Any) -> pd.DataFrame:
    """:func:`pandas.read_csv` with every float as it was written, whatever the version of pandas."""
    frame: pd.DataFrame = pd.read_csv(path, **options, **_EXACT)
    return frame


def exact_csv_parts(path: Path, rows: int, **options: Any) -> Iterator[pd.DataFrame]:
    """:func:`read_exact_csv`, so many rows at a time."""
    with pd.read_csv(path, chunksize=rows, **options, **_EXACT) as parts:
        yield from parts
