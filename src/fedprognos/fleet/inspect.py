"""Looking at files nobody has described yet: which column is probably what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.fleet import roles
from fedprognos.fleet.excel import ALL_SHEETS
from fedprognos.fleet.file_format import FileFormat
from fedprognos.fleet.guess import Guess
from fedprognos.fleet.look import Look, NoTimeError
from fedprognos.fleet.table_files import Table, read_tables, table_paths, unit_files


def inspect_table(path: str | Path, given: Mapping[str, Any] | None = None) -> Guess:
    """Read whole files and guess the role of every column from its name and its values.

    Parameters
    ----------
    path
        A file, or a folder of files.
    given
        Roles that are known already, as options of :class:`Columns`; None means that there is no such column.
    """
    given = given or {}
    tables, known = _read(path)
    frame = pd.concat([t.frame for t in tables], ignore_index=True) if len(tables) > 1 else tables[0].frame
    names, folders = unit_files(tables), {t.path.parent.name for t in tables if t.path is not None}
    files = pd.Series(np.repeat(names, [len(t.frame) for t in tables]), index=frame.index)
    whole = tables[0] if len(tables) == 1 else Table(Path(path), frame)
    look = Look(Path(path), whole, files, given)
    try:
        found = look.guess()
    except NoTimeError as error:
        found = look.sorted_guess(error)
    if len(folders) > 1 and found.columns.unit is None:
        found = replace(found, sites=tuple(sorted(folders)))
    return replace(found, note=tables[0].note, known=known)


def _read(path: str | Path) -> tuple[list[Table], FileFormat]:
    """All tables, with the sheets and the texts among numbers that have to be named to read them so again."""
    paths, known = table_paths(path), FileFormat(sheet=ALL_SHEETS)
    tables = [table for one in paths for table in read_tables(one, known=known)]
    if len(tables) == len(paths):
        known = FileFormat()
    found = [text for t in tables for c in t.frame.columns for text in roles.stray_texts(str(c), t.frame[c])]
    if found:
        known = known.model_copy(update={"blanks": tuple(dict.fromkeys(found))})
        tables = [table for one in paths for table in read_tables(one, known=known)]
    return tables, known
