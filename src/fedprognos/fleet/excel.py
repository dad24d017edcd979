"""Tables in Excel files: which sheets, and where on them the table begins."""

from __future__ import annotations

import importlib.util
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedprognos.errors import DataError, MissingExtraError
from fedprognos.fleet.file_format import NO_VALUE, FileFormat, check_names, check_width
from fedprognos.fleet.header import find_heading

ALL_SHEETS = "*"
_LOOKED_AT = 200


def read_excel(path: Path, text_columns: Sequence[str], known: FileFormat) -> dict[str, pd.DataFrame]:
    """Tables by the name of their sheet; the index of a row is its row on the sheet less two."""
    if importlib.util.find_spec("openpyxl") is None:
        raise MissingExtraError("openpyxl", "excel", "reading Excel files")
    blanks = [*NO_VALUE, *known.blanks]
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            wanted = None if known.sheet in (None, ALL_SHEETS) else known.sheet
            names = [str(name) for name in book.sheet_names]
            if wanted is not None and wanted not in names:
                raise DataError(f"no sheet '{wanted}'", where=str(path), hint=f"sheets here: {', '.join(names)}")
            cells = pd.read_excel(
                book, sheet_name=[wanted] if wanted else None, header=None, dtype=object, na_values=blanks
            )
    except (ValueError, OSError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        raise DataError(f"not a readable Excel file: {error}", where=str(path), hint="save it again as .xlsx") from None
    filled = {str(name): sheet for name, sheet in cells.items() if not sheet.empty}
    if not filled:
        raise DataError("empty sheet", where=str(path), hint="the first row must name the columns")
    largest = max(filled, key=lambda name: filled[name].size)
    first = _table(path, filled[largest], text_columns, known)
    if known.sheet != ALL_SHEETS:
        return {largest: first}
    found = {name: _table(path, sheet, text_columns, known) for name, sheet in filled.items() if len(sheet) > 1}
    return {name: frame for name, frame in found.items() if set(frame.columns) == set(first.columns)}


def sheet_names(path: Path) -> list[str]:
    """Names of the sheets of a file; none where it cannot be read, which reading it says."""
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            return [str(name) for name in book.sheet_names]
    except (ImportError, ValueError, OSError, KeyError, zlib.error, zipfile.BadZipFile):
        return []


def _table(path: Path, cells: pd.DataFrame, text_columns: Sequence[str], known: FileFormat) -> pd.DataFrame:
    top = cells.iloc[:_LOOKED_AT]
    rows = [["" if pd.isna(cell) else str(cell).strip() for cell in row] for row in top.to_numpy()]
    heading = find_heading(rows, None if known.header is None else min(known.header, len(rows)) - 1)
    names = rows[heading.names]
    check_width(len(names), str(path))
    check_names(names, str(path))
    frame = cells.iloc[heading.first_row :]
    frame = frame.set_axis(pd.RangeIndex(heading.first_row - 1, heading.first_row - 1 + len(frame)), axis=0)
    frame = frame.set_axis([name or f"Unnamed: {k}" for k, name in enumerate(names)], axis=1)
    return frame.assign(**{c: frame[c].infer_objects() for c in frame.columns if c not in text_columns})
