"""Tables of rows to predict, read piece by piece: files may be larger than memory."""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError, DataError, MissingExtraError
from fedprognos.features import Recipe
from fedprognos.fleet.exact_csv import read_exact_csv
from fedprognos.fleet.file_format import find_csv_format
from fedprognos.fleet.roles import pick
from fedprognos.fleet.table_files import Table, read_file
from fedprognos.fleet.time_axis import SECONDS, seconds_since_1970, time_format
from fedprognos.prognosis.health import RowTable

CHUNK = 20_000
WHOLE_FILE = "-"
"""In place of a unit column: every file is one unit, named like the file."""


@dataclass(frozen=True)
class Columns:
    """Which column is what; `unit` is :data:`WHOLE_FILE` where every file is one unit."""

    unit: str
    time: str
    cycle: str | None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a file, where they stand in it, and the share of the file that is read."""

    rows: RowTable
    table: Table
    done: float


def find_columns(
    path: Path, recipe: Recipe, unit: str | None = None, time: str | None = None, cycle: str | None = None
) -> Columns:
    """Columns of a file: as told, else guessed from their names among those the recipe does not use.

    Raises
    ------
    DataError
        Where a column is missing or cannot be guessed, listing what there is.
    """
    header = _header(path)
    Table(path, pd.DataFrame(columns=pd.Index(header))).require(
        [*recipe.sensors, *recipe.settings, *(c for c in (unit, time, cycle) if c is not None and c != WHOLE_FILE)]
    )
    free = [c for c in header if c not in (*recipe.sensors, *recipe.settings, unit, time, cycle)]
    if recipe.cycle is None:
        if cycle is not None:
            raise ConfigError("this model takes no cycle column", hint="the cycle number is the time: --time COLUMN")
    else:
        cycle = cycle or _guess(path, free, "cycle", ("cycle",))
        free = [c for c in free if c != cycle]
    time = time or _guess(path, free, "time", ("time",) if recipe.cycle else ("cycle", "time"))
    free = [c for c in free if c != time]
    if unit is None:
        unit = _guess(path, free, "unit", ("unit",)) if free else WHOLE_FILE
    return Columns(unit, time, cycle)


def _guess(path: Path, free: Sequence[str], role: str, kinds: Sequence[str]) -> str:
    for kind in kinds:
        if (column := pick(free, kind, lambda _: True, named=True)) is not None:
            return column
    more = f"; --unit {WHOLE_FILE} where every file is one unit" if role == "unit" else ""
    raise DataError(
        f"cannot tell which column is the {role}",
        where=str(path),
        hint=f"give --{role} COLUMN, one of: {', '.join(free) or 'none left'}{more}",
    )


def chunks(path: Path, columns: Columns, recipe: Recipe, rows: int = CHUNK) -> Iterator[Chunk]:
    """Rows of a file, `rows` at a time; every complaint names file, line and column."""
    single = [c for c in (columns.unit, columns.time, columns.cycle) if c is not None and c != WHOLE_FILE]
    wanted = list(dict.fromkeys([*single, *recipe.sensors, *recipe.settings]))
    read = {".parquet": _parquet, ".xlsx": _excel}.get(path.suffix.lower(), _csv)
    empty, starts = True, dict[str, float]()
    for frame, done in read(path, wanted, columns.unit, rows):
        if frame.empty:
            continue
        empty = False
        table = Table(path, frame)
        units = [table.stem] * len(frame) if columns.unit == WHOLE_FILE else table.names(columns.unit)
        width = len(recipe.sensors)
        names = [name for name in wanted if name not in (columns.unit, columns.time)]
        numbers = {name: table.numbers(name, units) for name in names}
        numbers[columns.time] = _times(table, columns.time, units, recipe.time_measure, starts)
        values = np.column_stack([numbers[name] for name in (*recipe.sensors, *recipe.settings)])
        cycles: list[int | None] = [None] * len(frame)
        if columns.cycle is not None:
            cycles = _cycles(table, numbers[columns.cycle], units, columns.cycle)
        times, ends = numbers[columns.time].tolist(), [False] * len(frame)
        yield Chunk(RowTable(units, times, cycles, ends, values[:, :width], values[:, width:]), table, done)
    if empty:
        raise DataError("no rows", where=str(path), hint="the file holds a header and nothing else")


def _times(table: Table, column: str, units: list[str], measure: str, starts: dict[str, float]) -> FloatArray:
    """Numbers as they stand; dates as time since the unit's first row, in the measure the model was trained with."""
    form = time_format(table.frame[column])
    if form == "number" or measure not in SECONDS:
        return table.numbers(column, units)
    times = seconds_since_1970(table, column, form, units) / SECONDS[measure]
    begin = [starts.setdefault(unit, time) for unit, time in zip(units, times.tolist(), strict=True)]
    return np.asarray(times - np.array(begin), dtype=np.float64)


def _cycles(table: Table, numbers: FloatArray, units: list[str], column: str) -> list[int | None]:
    broken = np.flatnonzero((numbers != np.round(numbers)) | (np.abs(numbers) >= 2**53))
    if broken.size:
        k = int(broken[0])
        raise DataError(f"cycle number {numbers[k]:g} in column '{column}' is not whole", where=table.at(k, units[k]))
    return [int(n) for n in numbers]


def _csv(path: Path, wanted: list[str], unit: str, rows: int) -> Iterator[tuple[pd.DataFrame, float]]:
    found, size = find_csv_format(path, text_columns=[unit]), max(path.stat().st_size, 1)
    try:
        with path.open("rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if path.name.lower().endswith(".gz") else raw
            pieces: Any = read_exact_csv(
                stream,
                **found.options(),
                header=0,
                names=[name.strip() for name in found.header],
                index_col=False,
                usecols=wanted,
                dtype={unit: str},
                skip_blank_lines=False,
                chunksize=rows,
            )
            for frame in pieces:
                yield frame.dropna(how="all"), min(raw.tell() / size, 1.0)  # the index still tells the line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("compressed file is damaged or truncated", where=str(path), hint="copy it again") from None
    except UnicodeDecodeError as error:
        what = f"not {found.encoding} text ({error.reason})"
        raise DataError(what, where=str(path), hint="save it as UTF-8 CSV") from None
    except pd.errors.ParserError as error:
        raise DataError(
            f"cannot be read as CSV: {error}", where=str(path), hint="is there a stray delimiter?"
        ) from None


def _parquet(path: Path, wanted: list[str], unit: str, rows: int) -> Iterator[tuple[pd.DataFrame, float]]:
    file = _open_parquet(path)
    read, total = 0, max(file.metadata.num_rows, 1)
    try:
        for batch in file.iter_batches(batch_size=rows, columns=wanted):
            frame = batch.to_pandas()
            frame.index = pd.RangeIndex(read, read + len(frame))
            read += len(frame)
            yield frame, read / total
    except (ValueError, OSError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise DataError(f"not a readable Parquet file: {error}", where=str(path)) from None


def _open_parquet(path: Path) -> Any:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet files")
    from pyarrow import parquet  # type: ignore[import-untyped]

    try:
        return parquet.ParquetFile(path)
    except (ValueError, OSError) as error:
        raise DataError(f"not a readable Parquet file: {error}", where=str(path)) from None


def _excel(path: Path, wanted: list[str], unit: str, rows: int) -> Iterator[tuple[pd.DataFrame, float]]:
    frame = read_file(path, [unit]).frame[wanted]
    for start in range(0, len(frame), rows):
        yield frame.iloc[start : start + rows], min((start + rows) / len(frame), 1.0)


def _header(path: Path) -> list[str]:
    """Column names."""
    if path.suffix.lower() == ".parquet":
        return [str(name) for name in _open_parquet(path).schema_arrow.names]
    if path.suffix.lower() == ".xlsx":
        return [str(name) for name in read_file(path).frame.columns]
    return [name.strip() for name in find_csv_format(path).header]
