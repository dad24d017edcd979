"""Tables of rows to predict, read piece by piece: files may be larger than memory."""

from __future__ import annotations

import gzip
import importlib.util
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError, DataError, MissingExtraError
from fedprognos.fleet.exact_csv import read_exact_csv
from fedprognos.fleet.excel import ALL_SHEETS, sheet_names
from fedprognos.fleet.file_format import FileFormat, find_csv_format
from fedprognos.fleet.missing import Policy
from fedprognos.fleet.roles import pick
from fedprognos.fleet.table_files import Table, parquet_names, read_file, read_tables
from fedprognos.fleet.table_layout import TableLayout
from fedprognos.fleet.time_axis import SECONDS, seconds_since_1970, time_format, with_clock
from fedprognos.prognosis.health import RowTable
from fedprognos.prognosis.health_model import HealthModel
from fedprognos.prognosis.lives import Lives

CHUNK = 20_000
WHOLE_FILE = "-"
"""In place of a unit column: every file is one unit, named like the file."""


@dataclass(frozen=True)
class Inputs:
    """What a model wants of a row, and what it remembers of the tables it was trained on.

    Parameters
    ----------
    policies : (sensors + settings,)
        What stands in for blank cells.
    """

    sensors: tuple[str, ...]
    settings: tuple[str, ...]
    cyclic: bool
    time_measure: str
    policies: tuple[Policy, ...]
    table: TableLayout | None = None

    @staticmethod
    def of(model: HealthModel) -> Inputs:
        """What a model wants."""
        recipe = model.recipe
        return Inputs(
            recipe.sensors, recipe.settings, recipe.cycle is not None, recipe.time_measure, model.policies, model.table
        )


@dataclass(frozen=True)
class FileColumns:
    """Which column is what; `unit` is :data:`WHOLE_FILE` where every file is one unit."""

    unit: str
    time: str
    cycle: str | None
    life: str | None = None
    clock: str | None = None
    failed: str | None = None

    @property
    def named(self) -> list[str]:
        """Those that are columns."""
        all_ = (self.unit, self.time, self.cycle, self.life, self.clock, self.failed)
        return [c for c in all_ if c is not None and c != WHOLE_FILE]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a file, where they stand in it, and the share of the file that is read."""

    rows: RowTable
    table: Table
    done: float


def find_columns(
    path: Path, inputs: Inputs, unit: str | None = None, time: str | None = None, cycle: str | None = None
) -> FileColumns:
    """Columns of a file: as given, else as they were in training, else guessed from the names of those left.

    Raises
    ------
    DataError
        Where a column is missing or cannot be guessed, listing what there is.
    """
    known = inputs.table
    header = _header(path, known)
    life = clock = failed = None
    if known is not None:
        unit = unit or (WHOLE_FILE if known.unit is None else _there(known.unit, header))
        time, life = time or _there(known.time, header), _there(known.life, header)
        cycle = cycle or _there(known.cycle, header)
        clock = _there(known.clock, header) if time == known.time else None
        failed = _there(known.failed, header) if known.new_life == "failed" else None
    Table(path, pd.DataFrame(columns=pd.Index(header))).require(
        [*inputs.sensors, *inputs.settings, *(c for c in (unit, time, cycle) if c is not None and c != WHOLE_FILE)]
    )
    free = [c for c in header if c not in (*inputs.sensors, *inputs.settings, unit, time, cycle, life, clock)]
    if not inputs.cyclic:
        if cycle is not None:
            raise ConfigError("this model takes no cycle column", hint="the cycle number is the time: --time COLUMN")
    else:
        cycle = cycle or _guess(path, free, "cycle", ("cycle",))
        free = [c for c in free if c != cycle]
    time = time or _guess(path, free, "time", ("time",) if inputs.cyclic else ("cycle", "time"))
    free = [c for c in free if c != time]
    if unit is None:
        unit = _guess(path, free, "unit", ("unit",)) if free else WHOLE_FILE
    return FileColumns(unit, time, cycle, life, clock, failed)


def _there(column: str | None, header: Sequence[str]) -> str | None:
    """A column of the training table, where this one has it too."""
    return column if column in header else None


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


def chunks(
    path: Path, columns: FileColumns, inputs: Inputs, rows: int = CHUNK, lives: Lives | None = None
) -> Iterator[Chunk]:
    """Rows of a file, `rows` at a time; every complaint names file, line and column.

    Parameters
    ----------
    lives
        Where machines have got to in the files before.
    """
    known = inputs.table
    lives = lives or Lives(known)
    measured = (*inputs.sensors, *inputs.settings)
    wanted = list(dict.fromkeys([*columns.named, *measured]))
    read = {".parquet": _parquet, ".xlsx": _excel}.get(path.suffix.lower(), _csv)
    texts = [c for c in (columns.unit, columns.life) if c is not None]
    empty, width = True, len(inputs.sensors)
    sort = known is not None and known.sort  # needs all of them at once
    for piece, done in read(path, wanted, texts, sys.maxsize if sort else rows, known):
        frame = piece.frame
        if frame.empty:
            continue
        empty = False
        table = with_clock(piece, columns.time, columns.clock)
        units = [table.stem] * len(frame) if columns.unit == WHOLE_FILE else table.names(columns.unit)
        values = np.column_stack(
            [
                table.numbers(name, units, gaps=policy != "refuse")
                for name, policy in zip(measured, inputs.policies, strict=True)
            ]
        )
        cycles: list[int | None] = [None] * len(frame)
        if columns.cycle is not None:
            cycles = _cycles(table, table.numbers(columns.cycle, units), units, columns.cycle)
        times, dated = _times(table, columns.time, units, inputs)
        if sort:
            order = np.lexsort((times, np.asarray([c or 0 for c in cycles])))
            table, units, times = replace(table, frame=table.frame.iloc[order]), [units[k] for k in order], times[order]
            values, cycles = values[order], [cycles[k] for k in order]
        labels = None if columns.life is None else table.names(columns.life)
        flags = None if columns.failed is None else table.flags(columns.failed)
        units, times = lives.of(units, times, labels, flags, dated=dated)
        for k in range(0, len(units), rows):
            part = slice(k, k + rows)
            found = RowTable(
                units[part],
                times[part].tolist(),
                cycles[part],
                [False] * len(units[part]),
                values[part, :width],
                values[part, width:],
            )
            yield Chunk(
                found, replace(table, frame=table.frame.iloc[part]), done * min(k + rows, len(units)) / len(units)
            )
    if empty:
        raise DataError("no rows", where=str(path), hint="the file holds a header and nothing else")


def _times(table: Table, column: str, units: list[str], inputs: Inputs) -> tuple[FloatArray, bool]:
    """Numbers as they stand; dates as time since 1970, in the measure the model was trained with; and which it was."""
    form = None if inputs.table is None else inputs.table.time_format
    form = form or time_format(table.frame[column])
    if form == "number" or inputs.time_measure not in SECONDS or inputs.cyclic:
        return table.numbers(column, units), False
    return seconds_since_1970(table, column, form, units) / SECONDS[inputs.time_measure], True


def _cycles(table: Table, numbers: FloatArray, units: list[str], column: str) -> list[int | None]:
    broken = np.flatnonzero((numbers != np.round(numbers)) | (np.abs(numbers) >= 2**53))
    if broken.size:
        k = int(broken[0])
        raise DataError(f"cycle number {numbers[k]:g} in column '{column}' is not whole", where=table.at(k, units[k]))
    return [int(n) for n in numbers]


def _csv(
    path: Path, wanted: list[str], texts: list[str], rows: int, known: FileFormat | None
) -> Iterator[tuple[Table, float]]:
    found, size = find_csv_format(path, known, texts), max(path.stat().st_size, 1)
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
                dtype=dict.fromkeys(texts, str),
                skip_blank_lines=False,
                chunksize=rows,
            )
            for frame in pieces:
                frame.index = frame.index + len(found.skipped)  # the index tells the line
                yield Table(path, found.with_numbers(frame, texts).dropna(how="all")), min(raw.tell() / size, 1.0)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError("compressed file is damaged or truncated", where=str(path), hint="copy it again") from None
    except UnicodeDecodeError as error:
        what = f"not {found.encoding} text ({error.reason})"
        raise DataError(what, where=str(path), hint="save it as UTF-8 CSV") from None
    except pd.errors.ParserError as error:
        raise DataError(
            f"cannot be read as CSV: {error}", where=str(path), hint="is there a stray delimiter?"
        ) from None


def _parquet(
    path: Path, wanted: list[str], texts: list[str], rows: int, known: FileFormat | None
) -> Iterator[tuple[Table, float]]:
    file = _open_parquet(path)
    read, total = 0, max(file.metadata.num_rows, 1)
    try:
        for batch in file.iter_batches(batch_size=rows, columns=wanted):
            frame = batch.to_pandas(ignore_metadata=True)
            frame.index = pd.RangeIndex(read, read + len(frame))
            read += len(frame)
            yield Table(path, frame), read / total
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


def _excel(
    path: Path, wanted: list[str], texts: list[str], rows: int, known: FileFormat | None
) -> Iterator[tuple[Table, float]]:
    sheets = read_tables(path, texts, _of_this_book(path, known))
    parts = [(sheet, start) for sheet in sheets for start in range(0, len(sheet.frame), rows)]
    for k, (sheet, start) in enumerate(parts, 1):
        yield replace(sheet, frame=sheet.frame[wanted].iloc[start : start + rows]), k / len(parts)


def _of_this_book(path: Path, known: FileFormat | None) -> FileFormat | None:
    """What is known of Excel files, without the name of a sheet that this one does not have."""
    if known is None or known.sheet is None or known.sheet in sheet_names(path):
        return known
    return known.model_copy(update={"sheet": ALL_SHEETS if known.sheet == ALL_SHEETS else None})


def _header(path: Path, known: FileFormat | None) -> list[str]:
    """Column names."""
    if path.suffix.lower() == ".parquet":
        return parquet_names(_open_parquet(path))
    if path.suffix.lower() == ".xlsx":
        return [str(name) for name in read_file(path, known=_of_this_book(path, known)).frame.columns]
    return [name.strip() for name in find_csv_format(path, known).header]
