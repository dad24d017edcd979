"""From CSV, Excel and Parquet files, and from data frames, to tables that DuckDB reads."""

from __future__ import annotations

import csv
import datetime
import glob
import importlib.util
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from fedprognos.errors import DataError, DataNotFoundError, MissingExtraError
from fedprognos.tables.battery_files import is_cycle_list, read_cycles
from fedprognos.tables.csv_format import (
    CsvFormat,
    FileFormat,
    check_names,
    check_width,
    csv_rows,
    find_csv_format,
    find_heading,
    open_text,
    plain_copy,
    plain_separator,
)
from fedprognos.tables.database import connection, literal, quoted
from fedprognos.tables.table import NAMELESS, Kind, Table, readable_error

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".xlsx", ".parquet", ".mat")
ALL_SHEETS = "*"
_TEXT_SUFFIX = ".txt"
"""Read where it is named; in a folder it is rarely a table."""
_HEADING_ROWS = 200


def table_paths(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Files meant by a file, folder, pattern or list of those, sorted by name; a folder may hold folders of files."""
    if not isinstance(source, (str, Path)):
        return [path for item in source for path in table_paths(item)]
    path, kinds = Path(source), ", ".join(SUFFIXES)
    if path.is_file():
        if not _is_table(path) and path.suffix.lower() != _TEXT_SUFFIX:
            raise DataError(f"not a table: none of {kinds}", where=str(path), hint="save it as CSV")
        return [path]
    if path.is_dir():
        inside = sorted(path.iterdir())
        files = [p for p in inside if _is_table(p) and p.is_file()]
        files = files or [p for d in inside if d.is_dir() for p in sorted(d.iterdir()) if _is_table(p) and p.is_file()]
    else:
        matching = map(Path, glob.glob(str(source)))  # noqa: PTH207 - a pattern may be absolute
        files = sorted(p for p in matching if _is_table(p) or p.suffix.lower() == _TEXT_SUFFIX)
    if not files:
        what = f"none of {kinds} in this folder" if path.is_dir() else "no such file"
        raise DataNotFoundError(what, where=str(path), hint="check the path")
    return files


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and not path.name.startswith((".", "~$"))  # Excel's lock files


def open_tables(
    source: str | Path | Sequence[str | Path], file_format: FileFormat | None = None, text_columns: Sequence[str] = ()
) -> list[Table]:
    """The tables of files: one a file, or one a sheet where several are asked for.

    Parameters
    ----------
    file_format
        What is said about the format of the files; the rest is found out.
    text_columns
        Columns of names, which say nothing about how numbers are written.
    """
    file_format = file_format or FileFormat()
    tables: list[Table] = []
    for path in table_paths(source):
        if path.suffix.lower() == ".mat" or is_cycle_list(path):
            tables.append(_open_cycles(path, file_format))
        elif path.suffix.lower() == ".xlsx":
            tables += _open_excel(path, file_format)
        elif path.suffix.lower() == ".parquet":
            tables.append(_open_parquet(path, file_format))
        else:
            tables.append(_open_csv(path, file_format, text_columns))
    return tables


def table_from_frame(frame: pd.DataFrame, name: str, file_format: FileFormat | None = None) -> Table:
    """A table in memory; its index says nothing."""
    check_names(map(str, frame.columns), name)
    place = lambda rows: [f"row {row}" for row in rows]  # noqa: E731
    return in_memory_table(frame.reset_index(drop=True), None, name, place, file_format or FileFormat())


def unit_files(tables: Sequence[Table]) -> list[str]:
    """Names of units where every file is one: like the file, after its folder where files lie in several."""
    folders = [table.path.parent.name if table.path is not None else "" for table in tables]
    several = len(set(folders)) > 1
    return [f"{folder}/{t.stem}" if several else t.stem for folder, t in zip(folders, tables, strict=True)]


def _open_cycles(path: Path, file_format: FileFormat) -> Table:
    """Samples of NASA's battery files."""
    frame = read_cycles(path)
    place = lambda rows: [f"sample {row} (cycle {frame['cycle'].iloc[row]})" for row in rows]  # noqa: E731
    return in_memory_table(frame, path, path.name, place, file_format)


def _open_csv(path: Path, file_format: FileFormat, text_columns: Sequence[str]) -> Table:
    form = find_csv_format(path, file_format, text_columns)
    folder = tempfile.TemporaryDirectory(prefix="fedprognos-") if form.needs_copy else None
    source = path if folder is None else plain_copy(path, form, Path(folder.name))
    columns = ", ".join(f"'c{k}': 'VARCHAR'" for k in range(len(form.names)))
    options = [
        *(
            "auto_detect=false",
            "header=false",
            "null_padding=true",
            f"skip={form.first_line}",
            f"columns={{{columns}}}",
        ),
        *(f"delim={literal(plain_separator(form))}", "quote='\"'", "escape='\"'"),
        # Short rows are padded. The parallel scanner cannot do that across quoted line breaks.
        *(["parallel=false"] if _has_quoted_line_break(path, form) else []),
    ]
    names = [name.strip() for name in form.names]
    return _without_nameless(
        Table(
            path=path,
            name=path.name,
            names=tuple(names),
            kinds=_texts(len(names)),
            relation=f"read_csv({literal(str(source))}, {', '.join(options)})",
            place=lambda rows: _csv_lines(path, form, rows),
            count=max(form.rows, 1.0),
            note=form.note(),
            decimal=form.decimal,
            thousands=form.thousands,
            blanks=file_format.blanks,
            kept=(folder,),
        )
    )


def _has_quoted_line_break(path: Path, form: CsvFormat) -> bool:
    """Whether a cell of the file has a line break; a file without quotes has none."""
    with open_text(path, form) as text:
        if not any('"' in block for block in iter(lambda: text.read(1 << 20), "")):
            return False
    with open_text(path, form) as text:
        return any("\n" in cell for row in csv_rows(text, form.separator) for cell in row)


def _csv_lines(path: Path, form: CsvFormat, rows: Sequence[int]) -> list[str]:
    """Lines of rows. DuckDB counts rows, not lines, so the file is walked once more; errors are rare."""
    wanted, places = set(rows), dict[int, str]()
    with open_text(path, form) as text:
        for _ in range(form.first_line):
            text.readline()
        line, row, last = form.first_line + 1, 0, max(rows)
        for cells in _counted(text, form):
            if cells[0]:
                if row in wanted:
                    places[row] = f"line {line}"
                row += 1
                if row > last:
                    break
            line = form.first_line + 1 + cells[1]
    return [places[row] for row in rows]


def _counted(text: Iterable[str], form: CsvFormat) -> Iterator[tuple[bool, int]]:
    """Whether each record is a row to DuckDB, and how many lines there are up to its end."""
    reader = csv.reader(text, delimiter=form.separator, skipinitialspace=form.separator == " ")
    for record in reader:
        # DuckDB passes over empty lines, but not where they may be the blank cell of the only column.
        yield bool(record) or len(form.names) == 1, reader.line_num


def _without_nameless(table: Table) -> Table:
    """The table with names for nameless columns that hold anything; the others cannot be asked for."""
    nameless = [k for k, name in enumerate(table.names) if not name]
    if not nameless:
        return table
    counts = table.query([f"count(c{k})" for k in nameless])[0]
    kept = [k for k, name in enumerate(table.names) if name or dict(zip(nameless, counts, strict=True))[k]]
    names = tuple(table.names[k] or f"{NAMELESS}{k}" for k in kept)
    selected = ", ".join(f"c{k} AS c{n}" for n, k in enumerate(kept))
    relation = f"(SELECT {selected} FROM {table.relation})"
    return replace(table, names=names, kinds=_texts(len(names)), relation=relation)


def _open_parquet(path: Path, file_format: FileFormat) -> Table:
    database = connection()
    file = f"read_parquet({literal(str(path))})"
    try:
        described = database.execute(f"DESCRIBE SELECT * FROM {file}").fetchall()
        count = database.execute(f"SELECT num_rows FROM parquet_file_metadata({literal(str(path))})").fetchone()
    except duckdb.Error as error:
        raise readable_error(error, str(path), "Parquet") from None
    check_width(len(described), str(path))
    # The numbered index of a data frame says nothing; an index of dates does.
    columns = [
        (str(name), str(kind))
        for name, kind, *_ in described
        if not str(name).startswith("__index_level_") or str(kind).startswith("TIMESTAMP")
    ]
    names = [name.strip() for name, _ in columns]
    check_names(names, str(path))
    selected = ", ".join(f"{_plain(quoted(name), kind)} AS c{k}" for k, (name, kind) in enumerate(columns))
    return Table(
        path=path,
        name=path.name,
        names=tuple(names),
        kinds=tuple(_kind(kind) for _, kind in columns),
        relation=f"(SELECT {selected} FROM {file})",
        place=lambda rows: [f"row {row}" for row in rows],
        count=max(count[0] if count else 1, 1),
        blanks=file_format.blanks,
        database=database,
    )


def _texts(count: int) -> tuple[Kind, ...]:
    text: Kind = "text"
    return (text,) * count


def _kind(duckdb_type: str) -> Kind:
    if duckdb_type.startswith(("TIMESTAMP", "DATE")):
        return "date"
    numbers = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
    return "number" if duckdb_type.startswith((*numbers, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")) else "text"


def _plain(column: str, duckdb_type: str) -> str:
    """A column as one of the three kinds."""
    if duckdb_type == "DATE":
        return f"CAST({column} AS TIMESTAMP)"
    if duckdb_type == "BOOLEAN":
        return f"CAST({column} AS TINYINT)"
    return column if _kind(duckdb_type) != "text" else f"CAST({column} AS VARCHAR)"


def in_memory_table(
    frame: pd.DataFrame,
    path: Path | None,
    name: str,
    place: Callable[[Sequence[int]], list[str]],
    file_format: FileFormat,
    sheet: str | None = None,
) -> Table:
    """A table of a data frame."""
    columns = {f"c{k}": _scannable(frame.iloc[:, k]) for k in range(frame.shape[1])}
    held = pd.DataFrame(columns, index=frame.index, copy=False)
    database, view = connection(), f"frame_{id(held)}"
    database.register(view, held)
    described = database.execute(f"DESCRIBE SELECT * FROM {view}").fetchall()
    selected = ", ".join(f"{_plain(name, kind)} AS {name}" for name, kind, *_ in described)
    return Table(
        path=path,
        name=name,
        names=tuple(str(c).strip() for c in frame.columns),
        kinds=tuple(_kind(str(kind)) for _, kind, *_ in described),
        relation=f"(SELECT {selected} FROM {view})",
        place=place,
        count=max(len(frame), 1),
        sheet=sheet,
        blanks=file_format.blanks,
        database=database,
        kept=(held,),
    )


def _scannable(series: pd.Series) -> pd.Series:
    """A column that DuckDB can scan: cells of mixed types become texts."""
    if series.dtype != object and not isinstance(series.dtype, (pd.PeriodDtype, pd.IntervalDtype)):
        values = series.to_numpy(copy=False) if isinstance(series.dtype, np.dtype) else None
        # DuckDB cannot scan a column backwards, as frame[::-1] holds it.
        return series.copy() if values is not None and values.strides[0] < 0 else series
    inferred = series.infer_objects()
    if inferred.dtype != object and not pd.api.types.is_timedelta64_dtype(inferred):
        return inferred
    missing = series.isna()
    texts = [None if gap else _cell_text(value) for value, gap in zip(series, missing, strict=True)]
    return pd.Series(texts, index=series.index, dtype=object)


def _cell_text(value: object) -> str:
    return value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else str(value)


# --- Excel ------------------------------------------------------------------------------------


def _open_excel(path: Path, file_format: FileFormat) -> list[Table]:
    """The largest sheet, the one that is named, or all with the columns of the largest."""
    if importlib.util.find_spec("openpyxl") is None:
        raise MissingExtraError("openpyxl", "excel", "reading Excel files")
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            wanted = None if file_format.sheet in (None, ALL_SHEETS) else file_format.sheet
            names = [str(name) for name in book.sheet_names]
            if wanted is not None and wanted not in names:
                raise DataError(f"no sheet '{wanted}'", where=str(path), hint=f"sheets here: {', '.join(names)}")
            sheets = [wanted] if wanted else None
            cells = pd.read_excel(book, sheet_name=sheets, header=None, dtype=object, na_filter=False)
    except (ValueError, OSError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"not a readable Excel file: {error}", where=str(path), hint="save it again as .xlsx") from None
    filled = {str(name): sheet.replace("", None) for name, sheet in cells.items() if not sheet.empty}
    if not filled:
        raise DataError("empty sheet", where=str(path), hint="the first row must name the columns")
    largest = max(filled, key=lambda name: filled[name].size)
    if file_format.sheet != ALL_SHEETS:
        return [_sheet(path, None, filled[largest], file_format)]
    tables = {name: _sheet(path, name, sheet, file_format) for name, sheet in filled.items() if len(sheet) > 1}
    like = [name for name, table in tables.items() if set(table.names) == set(tables[largest].names)]
    return [tables[name] if len(like) > 1 else replace(tables[name], sheet=None) for name in like]


def sheet_names(path: Path) -> list[str]:
    """Names of the sheets of a file; none where it cannot be read, which reading it says."""
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            return [str(name) for name in book.sheet_names]
    except (ImportError, ValueError, OSError, KeyError, zlib.error, zipfile.BadZipFile):
        return []


def _sheet(path: Path, sheet: str | None, cells: pd.DataFrame, file_format: FileFormat) -> Table:
    top = cells.iloc[:_HEADING_ROWS]
    rows = [["" if pd.isna(cell) else str(cell).strip() for cell in row] for row in top.to_numpy()]
    names_at, first = find_heading(rows, None if file_format.header is None else min(file_format.header, len(rows)) - 1)
    names = rows[names_at]
    check_width(len(names), str(path))
    check_names(names, str(path))
    frame = cells.iloc[first:].reset_index(drop=True)
    kept = [k for k, name in enumerate(names) if name or frame.iloc[:, k].notna().any()]
    frame = frame.iloc[:, kept].set_axis([names[k] or f"{NAMELESS}{k}" for k in kept], axis=1)
    place = lambda rows: [f"row {first + row + 1}" for row in rows]  # noqa: E731
    return in_memory_table(frame, path, path.name, place, file_format, sheet)
