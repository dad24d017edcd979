"""Reading CSV and Parquet files strictly: every complaint names file, line and column."""

from __future__ import annotations

import csv
import difflib
import glob
import gzip
import importlib.util
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError, DataNotFoundError, MissingExtraError
from fedprognos.fleet.exact_csv import read_exact_csv

SUFFIXES = (".csv", ".csv.gz", ".parquet")
_SUFFIX = r"\.(csv\.gz|csv|parquet)$"
_DELIMITERS = ",;\t"
_YES, _NO = ("1", "1.0", "true", "yes", "y", "t"), ("0", "0.0", "false", "no", "n", "f")


@dataclass(frozen=True, eq=False)
class Table:
    """Rows and where each stands in its file; without a file, in a data frame."""

    path: Path | None
    frame: pd.DataFrame
    name: str = "data frame"
    """Where there is no file."""

    @property
    def where(self) -> str:
        """The file, for error messages."""
        return self.name if self.path is None else str(self.path)

    @property
    def stem(self) -> str:
        """File name without its suffixes."""
        return self.name if self.path is None else re.sub(_SUFFIX, "", self.path.name, flags=re.IGNORECASE)

    def at(self, row: int, unit: str | None = None) -> str:
        """File, line and unit of a row (counted from 0)."""
        index = int(self.frame.index[row])
        lines = self.path is not None and self.path.suffix != ".parquet"
        return (
            f"{self.where}, "
            + (f"line {index + 2}" if lines else f"row {index}")
            + (f", unit {unit}" if unit is not None else "")
        )

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

    def numbers(self, column: str, units: Sequence[str] | None = None) -> FloatArray:
        """A column as finite numbers."""
        series = self.frame[column]
        values: FloatArray = pd.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        bad = np.flatnonzero(~np.isfinite(values))
        if not bad.size:
            return values
        row = int(bad[0])
        where = self.at(row, units[row] if units is not None else None)
        count = f" ({bad.size} such rows)" if bad.size > 1 else ""
        if pd.isna(series.iloc[row]):
            what = f"missing value in column '{column}'{count}"
            raise DataError(what, where=where, hint="fill or drop missing values; fedprognos does not guess them")
        raw = series.iloc[row]
        if isinstance(raw, str):
            hint = "decimal commas? write 1.5, not 1,5" if re.fullmatch(r"-?\d+,\d+", raw.strip()) else ""
            hint = "write times as numbers (hours, cycles or seconds since the start)" if _is_date(raw) else hint
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

    def flags(self, column: str) -> NDArray[np.bool_]:
        """A column of yes and no (1/0, true/false)."""
        text = self.frame[column].astype(str).str.strip().str.lower()
        yes, no = text.isin(_YES).to_numpy(), text.isin(_NO).to_numpy()
        bad = np.flatnonzero(~(yes | no))
        if bad.size:
            row = int(bad[0])
            raise DataError(
                f"'{self.frame[column].iloc[row]}' in column '{column}' is neither yes nor no",
                where=self.at(row),
                hint="use 1/0 or true/false",
            )
        return np.asarray(yes, dtype=np.bool_)


def table_paths(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Files meant by a file, folder, pattern or list of those, sorted by name."""
    if not isinstance(source, (str, Path)):
        return [path for one in source for path in table_paths(one)]
    path = Path(source)
    if path.is_file():
        if not path.name.lower().endswith(SUFFIXES):
            raise DataError("not a .csv, .csv.gz or .parquet file", where=str(path))
        return [path]
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.name.lower().endswith(SUFFIXES) and p.is_file())
    else:
        found = sorted(Path(p) for p in glob.glob(str(source)) if p.lower().endswith(SUFFIXES))  # noqa: PTH207
    if not found:
        what = "no .csv, .csv.gz or .parquet file in this folder" if path.is_dir() else "no such file"
        raise DataNotFoundError(what, where=str(path), hint="check the path; it is relative to the experiment file")
    return found


def read_file(path: Path, text_columns: Sequence[str] = ()) -> Table:
    """One file as a table; `text_columns` keep their text (leading zeros of serial numbers)."""
    frame = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, text_columns)
    frame.columns = pd.Index([str(c).strip() for c in frame.columns])
    if frame.empty:
        raise DataError("no rows", where=str(path), hint="the file holds a header and nothing else")
    return Table(path, frame)


def _read_parquet(path: Path) -> pd.DataFrame:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet files")
    try:
        return pd.read_parquet(path, engine="pyarrow").reset_index(drop=True)
    except (ValueError, OSError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise DataError(f"not a readable Parquet file: {error}", where=str(path)) from None


def _read_csv(path: Path, text_columns: Sequence[str]) -> pd.DataFrame:
    try:
        header, delimiter = _header(path)
        twice = sorted({h for h in header if header.count(h) > 1})
        if twice:
            raise DataError(f"two columns are called '{twice[0]}'", where=str(path), hint="rename one of them")
        frame = read_exact_csv(
            path,
            sep=delimiter,
            encoding="utf-8-sig",
            dtype={h: str for h in header if h.strip() in text_columns},
            skip_blank_lines=False,
            low_memory=False,
        )
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("compressed file is damaged or truncated", where=str(path), hint="copy it again") from None
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text ({error.reason})", where=str(path), hint="save it as UTF-8 CSV") from None
    except pd.errors.ParserError as error:
        raise DataError(_parser_message(error), where=str(path), hint="is there a stray delimiter or quote?") from None
    if not isinstance(frame.index, pd.RangeIndex):
        raise DataError("rows have more fields than the header", where=str(path), hint="name every column")
    return frame.dropna(how="all")  # blank lines go, the index still tells the line


def _header(path: Path) -> tuple[list[str], str]:
    """Column names and delimiter from the first line."""
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8-sig", newline="") as stream
    ):
        line = stream.readline()
    if not line.strip():
        raise DataError("empty file", where=str(path), hint="the first line must name the columns")
    delimiter = max(_DELIMITERS, key=line.count)
    return next(csv.reader([line], delimiter=delimiter)), delimiter


def _parser_message(error: Exception) -> str:
    match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if match:
        return f"line {match[2]} has {match[3]} fields, the header has {match[1]}"
    return f"cannot be read as CSV: {error}"


def _is_date(text: str) -> bool:
    return re.match(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}", text) is not None
