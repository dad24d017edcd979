"""Tables that are not one row a measurement: one row a sensor, rows twice, dates and times of day apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.fleet import roles
from fedprognos.fleet.table_files import Table
from fedprognos.fleet.time_axis import SECONDS, date_format, is_clock, seconds_since_1970


def check_wide(path: Path, frame: pd.DataFrame, units: pd.Series, time: str) -> None:
    """Refuse a table with a row a sensor instead of a column a sensor."""
    rows = pd.concat([units, frame[time]], axis=1)
    others = [c for c in map(str, frame.columns) if c not in (time, units.name)]
    free = [c for c in others if not roles.constant_within(frame[c], units)]
    values = [c for c in free if pd.api.types.is_numeric_dtype(frame[c])]
    if len(values) != 1 or not rows.duplicated().any():
        return
    for column in roles.without(free, values[0]):
        several = 2 <= frame[column].nunique() <= len(rows) / 10
        if several and not pd.concat([rows, frame[column]], axis=1).duplicated().any():
            keys = [str(units.name), time] if units.name in frame.columns else [time]
            pivot = f"table.pivot(index={keys}, columns='{column}', values='{values[0]}').reset_index()"
            raise DataError(
                f"every row holds one sensor: column '{column}' names it, '{values[0]}' is its value",
                where=str(path),
                hint=f"write one row a measurement and one column a sensor; in pandas: {pivot}",
            )


def check_once(table: Table, keys: Sequence[pd.Series], time: str) -> None:
    """Refuse two rows of a unit (and cycle) that have the same time."""
    twice = np.flatnonzero(pd.concat(list(keys), axis=1).duplicated().to_numpy())
    if twice.size:
        raise DataError(
            f"two rows of a unit have the same {time} ({twice.size} such rows)",
            where=table.at(int(twice[0])),
            hint="keep one row for each time of a unit, or take the mean of them",
        )


def clocked(table: Table) -> tuple[str, str] | None:
    """A column of dates and one of times of day, where a table keeps them apart."""
    frame = table.frame
    clocks = [str(c) for c in frame.columns if is_clock(frame[c])]
    for column in map(str, frame.columns) if clocks else ():
        form = None if column in clocks else date_format(frame[column])
        if form is None:
            continue
        seconds = seconds_since_1970(table, column, form, [""] * len(frame))
        if not (seconds % SECONDS["days"]).any():
            return column, clocks[0]
    return None
