"""Tables from CSV, Excel and Parquet files, and their columns as numbers, names and flags; errors name the line."""

from __future__ import annotations

import difflib
import glob
import gzip
import importlib.util
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.errors import DataError, DataNotFoundError, MissingExtraError
from fedprognos.fleet.exact_csv import read_exact_csv
from fedprognos.fleet.excel import read_excel
from fedprognos.fleet.file_format import CsvFormat, FileFormat, check_width, find_csv_format

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".xlsx", ".parquet")
_TEXT = ".txt"
"""Read where it is named; in a folder it is rarely a table."""
_SUFFIX = r"\.(csv\.gz|csv|tsv\.gz|tsv|txt|xlsx|parquet)$"
_YES = "1 1.0 true yes y t failed failure fail broken dead defect defekt ja wahr oui vrai si sí"
_NO = "0 0.0 false no n f running run ok alive working censored healthy nein falsch non faux"


@dataclass(frozen=True, eq=False)
class Table:
    """Rows and where each stands in its file; without a file, in a data frame."""

    path: Path | None
    frame: pd.DataFrame
    name: str = "data frame"
    """Where there is no file."""
    note: str = ""
    """What a person should know about how the file was read."""
    sheet: str | None = None
    """Of an Excel file, where it is one of several."""

    @property
    def where(self) -> str:
        """The file, for error messages."""
        place = self.name if self.path is None else str(self.path)
        return place if self.sheet is None else f"{place}, sheet {self.sheet}"

    @property
    def stem(self) -> str:
        """File name without its suffixes; the sheet's name, where it is one of several."""
        if self.sheet is not None:
            return self.sheet
        return self.name if self.path is None else re.sub(_SUFFIX, "", self.path.name, flags=re.IGNORECASE)

    def at(self, row: int, unit: str | None = None) -> str:
        """File, line and unit of a row (counted from 0)."""
        index, kind = int(self.frame.index[row]), "" if self.path is None else self.path.suffix.lower()
        place = {"": f"row {index}", ".parquet": f"row {index}", ".xlsx": f"row {index + 2}"}
        text = f"{self.where}, {place.get(kind, f'line {index + 2}')}"
        return text if unit is None else f"{text}, unit {unit}"

    def require(self, columns: Iterable[str]) -> None:
        """Refuse a table without one of these columns, with the nearest name that it has."""
        have = [str(c) for c in self.frame.columns]
        for column in columns:
            if column not in have:
                close = difflib.get_close_matches(column.lower(), [h.lower() for h in have], n=1, cutoff=0.5)
                near = next((h for h in have if close and h.lower() == close[0]), None)
                guess = f"did you mean '{near}'? " if near else ""
                raise DataError(
                    f"no column '{column}'", where=self.where, hint=f"{guess}Columns here: {', '.join(have)}"
                )

    def numbers(self, column: str, units: Sequence[str] | None = None, *, gaps: bool = False) -> FloatArray:
        """A column as finite numbers; with `gaps`, NaN where a value is missing."""
        series = self.frame[column]
        values: FloatArray = pd.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        wrong = ~np.isfinite(values)
        if gaps:
            wrong &= ~series.isna().to_numpy()
        bad = np.flatnonzero(wrong)
        if not bad.size:
            return values
        row = int(bad[0])
        where = self.at(row, units[row] if units is not None else None)
        count = f" ({bad.size} such rows)" if bad.size > 1 else ""
        raw = series.iloc[row]
        if pd.isna(raw):
            hint = "fill or drop the rows; for a sensor, data.missing = 'hold' fills them"
            raise DataError(f"missing value in column '{column}'{count}", where=where, hint=hint)
        if isinstance(raw, str):
            comma = re.fullmatch(r"\s*-?[\d.]+,\d+\s*", raw)
            cure = f"correct it, leave the column out, or let it count as blank: data.blanks = ['{raw}']"
            hint = "decimal commas? Set data.decimal = ','" if comma else cure
            raise DataError(f"'{raw}' in column '{column}' is not a number{count}", where=where, hint=hint)
        raise DataError(f"{raw} in column '{column}'{count}", where=where, hint="replace infinite values")

    def names(self, column: str) -> list[str]:
        """A column of unit or site names."""
        series = self.frame[column]
        missing = np.flatnonzero(series.isna().to_numpy())
        if missing.size:
            hint = "give every row a name; an empty field and NA count as missing"
            raise DataError(f"no value in column '{column}'", where=self.at(int(missing[0])), hint=hint)
        if pd.api.types.is_float_dtype(series):
            return [f"{v:g}" for v in series]
        return [str(v).strip() for v in series]

    def flags(self, column: str) -> BoolArray:
        """A column of yes and no (1/0, true/false)."""
        yes, no = yes_and_no(self.frame[column])
        bad = np.flatnonzero(~(yes | no))
        if bad.size:
            row = int(bad[0])
            raise DataError(
                f"'{self.frame[column].iloc[row]}' in column '{column}' is neither yes nor no",
                where=self.at(row),
                hint="use 1/0 or true/false",
            )
        return np.asarray(yes, dtype=np.bool_)


def yes_and_no(series: pd.Series) -> tuple[BoolArray, BoolArray]:
    """Which cells say yes (failed) and which no (still running), in a few languages.

    >>> [found.tolist() for found in yes_and_no(pd.Series(["Ja", "running", 0, "maybe"]))]
    [[True, False, False, False], [False, True, True, False]]
    """
    text = series.astype(str).str.strip().str.lower()
    return np.asarray(text.isin(_YES.split()), dtype=np.bool_), np.asarray(text.isin(_NO.split()), dtype=np.bool_)


def unit_files(tables: Sequence[Table]) -> list[str]:
    """Names of units where every file is one: like the file, after its folder where files lie in several."""
    folders = [table.path.parent.name if table.path is not None else "" for table in tables]
    several = len(set(folders)) > 1
    return [f"{folder}/{t.stem}" if several else t.stem for folder, t in zip(folders, tables, strict=True)]


def table_paths(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Files meant by a file, folder, pattern or list of those, sorted by name; a folder may hold folders of files."""
    if not isinstance(source, (str, Path)):
        return [path for one in source for path in table_paths(one)]
    path, kinds = Path(source), ", ".join(SUFFIXES)
    if path.is_file():
        if not _is_table(path) and path.suffix.lower() != _TEXT:
            raise DataError(f"not a table: none of {kinds}", where=str(path), hint="save it as CSV")
        return [path]
    if path.is_dir():
        inside = sorted(path.iterdir())
        found = [p for p in inside if _is_table(p) and p.is_file()]
        found = found or [p for d in inside if d.is_dir() for p in sorted(d.iterdir()) if _is_table(p) and p.is_file()]
    else:
        found = sorted(p for p in map(Path, glob.glob(str(source))) if _is_table(p) or p.suffix.lower() == _TEXT)  # noqa: PTH207
    if not found:
        what = f"none of {kinds} in this folder" if path.is_dir() else "no such file"
        raise DataNotFoundError(what, where=str(path), hint="check the path; it is relative to the experiment file")
    return found


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and not path.name.startswith((".", "~$"))  # Excel's lock files


def read_file(path: Path, text_columns: Sequence[str] = (), known: FileFormat | None = None) -> Table:
    """One file as a table, all sheets of an Excel file that are asked for together.

    Parameters
    ----------
    text_columns
        Columns that keep their text (leading zeros of serial numbers).
    known
        What is said about the file's format; the rest is found out.
    """
    tables = read_tables(path, text_columns, known)
    return tables[0] if len(tables) == 1 else Table(path, pd.concat([table.frame for table in tables]))


def read_tables(path: Path, text_columns: Sequence[str] = (), known: FileFormat | None = None) -> list[Table]:
    """The tables of one file: one, or one a sheet where several are asked for."""
    known = known or FileFormat()
    if path.suffix.lower() == ".xlsx":
        sheets = read_excel(path, text_columns, known)
        return [_checked(Table(path, f, sheet=name if len(sheets) > 1 else None), known) for name, f in sheets.items()]
    if path.suffix.lower() == ".parquet":
        return [_checked(Table(path, _read_parquet(path)), known)]
    frame, note = _read_csv(path, text_columns, known)
    return [_checked(Table(path, frame, note=note), known)]


def _checked(table: Table, known: FileFormat) -> Table:
    """The table with tidy names, without nameless columns, blank lines and rows that occur twice."""
    frame = table.frame
    frame.columns = pd.Index([str(c).strip() for c in frame.columns])
    nameless = [c for c in frame.columns if c.startswith("Unnamed: ") and frame[c].isna().all()]
    frame = frame.drop(columns=nameless).dropna(how="all")  # blank lines go, the index still tells the line
    if known.blanks and table.path is not None and table.path.suffix.lower() == ".parquet":
        frame = frame.mask(frame.isin(list(known.blanks)))
    if frame.empty:
        raise DataError("no rows", where=table.where, hint="the file holds a header and nothing else")
    again = frame.duplicated().to_numpy()
    note = table.note
    if again.any():
        note = "; ".join(filter(None, [note, f"{int(again.sum())} rows that occur twice are read once"]))
    return replace(table, frame=frame[~again] if again.any() else frame, note=note)


def _read_parquet(path: Path) -> pd.DataFrame:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet files")
    from pyarrow import parquet  # type: ignore[import-untyped]

    try:
        file = parquet.ParquetFile(path)
        check_width(len(file.schema_arrow.names), str(path))
        frame: pd.DataFrame = file.read(columns=parquet_names(file)).to_pandas(ignore_metadata=True)
        return frame
    except (ValueError, OSError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise DataError(f"not a readable Parquet file: {error}", where=str(path)) from None


def parquet_names(file: Any) -> list[str]:
    """Columns of a Parquet file, the index of a data frame among them where it says something: a name, or dates."""
    kinds = {str(field.name): str(field.type) for field in file.schema_arrow}
    return [n for n, kind in kinds.items() if not n.startswith("__index_level_") or kind.startswith("timestamp")]


def _read_csv(path: Path, text_columns: Sequence[str], known: FileFormat) -> tuple[pd.DataFrame, str]:
    try:
        found = find_csv_format(path, known, text_columns)
        try:
            frame = _parse_csv(path, text_columns, found)
        except UnicodeDecodeError:  # beyond the beginning that was looked at
            if known.encoding is not None:
                raise
            found = find_csv_format(path, known.model_copy(update={"encoding": "cp1252"}), text_columns)
            frame = _parse_csv(path, text_columns, found)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("compressed file is damaged or truncated", where=str(path), hint="copy it again") from None
    except UnicodeDecodeError as error:
        hint = "name the encoding: data.encoding = '...'"
        raise DataError(f"not {found.encoding} text ({error.reason})", where=str(path), hint=hint) from None
    except pd.errors.ParserError as error:
        raise DataError(_parser_message(error), where=str(path), hint="is there a stray separator or quote?") from None
    if not isinstance(frame.index, pd.RangeIndex):
        raise DataError("rows have more fields than the header", where=str(path), hint="name every column")
    frame.index = frame.index + len(found.skipped)  # lines that are no rows, so that errors name the right one
    return frame, found.note()


def _parse_csv(path: Path, text_columns: Sequence[str], found: CsvFormat) -> pd.DataFrame:
    text = {h: str for h in found.header if h.strip() in text_columns}
    frame = read_exact_csv(path, dtype=text, skip_blank_lines=False, low_memory=False, **found.options())
    return found.with_numbers(frame, text_columns)


def _parser_message(error: Exception) -> str:
    match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if match:
        return f"line {match[2]} has {match[3]} fields, the header has {match[1]}"
    return f"cannot be read as CSV: {error}"
