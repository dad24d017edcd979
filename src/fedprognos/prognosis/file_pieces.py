"""Tables of files, read piece by piece."""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedprognos.errors import DataError, MissingExtraError
from fedprognos.fleet.exact_csv import read_exact_csv
from fedprognos.fleet.excel import ALL_SHEETS, sheet_names
from fedprognos.fleet.file_format import FileFormat, find_csv_format
from fedprognos.fleet.table_files import Table, parquet_names, read_file, read_tables


def pieces_of(
    path: Path, wanted: list[str], texts: list[str], rows: int, known: FileFormat | None
) -> Iterator[tuple[Table, float]]:
    """Some columns of a file, at most `rows` rows at a time, each with the share of the file that is read.

    Parameters
    ----------
    texts
        Columns that keep their text.
    """
    read = {".parquet": _parquet, ".xlsx": _excel}.get(path.suffix.lower(), _csv)
    return read(path, wanted, texts, rows, known)


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
        raise DataError(f"not a readable Parquet file: {error}", where=str(path), hint="copy it again") from None


def _open_parquet(path: Path) -> Any:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet files")
    from pyarrow import parquet  # type: ignore[import-untyped]

    try:
        return parquet.ParquetFile(path)
    except (ValueError, OSError) as error:
        raise DataError(f"not a readable Parquet file: {error}", where=str(path), hint="copy it again") from None


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


def header_of(path: Path, known: FileFormat | None) -> list[str]:
    """Column names."""
    if path.suffix.lower() == ".parquet":
        return parquet_names(_open_parquet(path))
    if path.suffix.lower() == ".xlsx":
        return [str(name) for name in read_file(path, known=_of_this_book(path, known)).frame.columns]
    return [name.strip() for name in find_csv_format(path, known).header]
