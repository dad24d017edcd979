"""How fast machines move along their clocks: where each was at the end of each day, and the rate that follows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedprognos.service.row_store import StoredRow

DAY_IN_S = 86400.0
KEPT_DAYS = 14
LEAST_DAYS = 3
"""Days with rows that a rate needs. Fewer may be the import of an old file and the first evening."""
TABLE = """
CREATE TABLE IF NOT EXISTS arrivals (unit INTEGER NOT NULL, day INTEGER NOT NULL, received REAL NOT NULL,
    first REAL NOT NULL, position REAL NOT NULL, PRIMARY KEY (unit, day)) WITHOUT ROWID
"""


class ArrivalLog:
    """The table of arrivals in the store's database: first and last position of each unit and day (UTC).

    The day of a unit's first row is kept for good, because it says where its life began. Used in the thread of the
    stream.
    """

    def __init__(self, db: sqlite3.Connection, transaction: AbstractContextManager[None]) -> None:
        self._db = db
        with transaction:
            self._db.execute(TABLE)

    def write(self, rows: Iterable[StoredRow]) -> None:
        """Note accepted rows; call it within a transaction."""
        days: dict[tuple[int, int], tuple[float, float, float]] = {}
        for row in rows:
            if row.accepted:
                position = row.position if row.cycle is None else float(row.cycle)
                place = row.unit, int(row.received // DAY_IN_S)
                first = days[place][1] if place in days else position
                days[place] = row.received, first, position
        self._db.executemany(
            "INSERT INTO arrivals VALUES (?, ?, ?, ?, ?) ON CONFLICT (unit, day) "
            "DO UPDATE SET received = excluded.received, position = excluded.position",
            ((*place, *values) for place, values in days.items()),
        )

    def prune(self, now: float) -> None:
        """Drop days that no rate looks at any more; call it within a transaction."""
        self._db.execute(
            "DELETE FROM arrivals WHERE day < ? AND day > "
            "(SELECT min(day) FROM arrivals AS earlier WHERE earlier.unit = arrivals.unit)",
            (int(now // DAY_IN_S) - KEPT_DAYS,),
        )

    def forget(self, unit: int) -> None:
        """Drop a unit; call it within a transaction."""
        self._db.execute("DELETE FROM arrivals WHERE unit = ?", (unit,))

    def rates(self, now: float, unit: int | None = None) -> dict[int, float]:
        """Positions a second of all units, or of one; those whose rate is not known are left out."""
        where = "" if unit is None else "unit = ?2 AND "
        query = f"SELECT unit, received, position FROM arrivals WHERE {where}received > ?1 ORDER BY unit, day"  # noqa: S608 - no value in it
        values = (now - KEPT_DAYS * DAY_IN_S, *(() if unit is None else (unit,)))
        records = self._db.execute(query, values).fetchall()
        return rates(np.array(records, np.float64).reshape(-1, 3), now)

    def first_positions(self, unit: int | None = None) -> dict[int, float]:
        """Where the rows of all units began, or those of one."""
        where = "" if unit is None else "WHERE unit = ?"
        query = f"SELECT unit, first, min(day) FROM arrivals {where} GROUP BY unit"  # noqa: S608 - no value in it
        return {number: first for number, first, _ in self._db.execute(query, () if unit is None else (unit,))}


def rates(arrivals: NDArray[np.float64], now: float) -> dict[int, float]:
    """Positions a second of each unit: the median slope over all pairs of days that are at least 24 hours apart.

    Parameters
    ----------
    arrivals
        Unit, time and position of the last row of each day, in the order of units and times: (days, 3).
    now
        A unit that has been silent for a day stands since: that counts as one more day with its last position.

    Examples
    --------
    >>> days = np.array([[7, 0.0, 100.0], [7, 86400.0, 110.0], [7, 172800.0, 120.0], [8, 0.0, 1.0]])
    >>> {unit: rate * 86400 for unit, rate in rates(days, 172800.0).items()}
    {7: 10.0}
    """
    units, begins, days = np.unique(arrivals[:, 0], return_index=True, return_counts=True)
    enough = days >= LEAST_DAYS
    units, begins, days = units[enough], begins[enough], days[enough]
    if not len(units):
        return {}
    places = np.arange(int(days.max()) + 1)
    rows = np.minimum(begins[:, None] + places, len(arrivals) - 1)
    times, positions = arrivals[rows, 1], arrivals[rows, 2]
    last = begins + days - 1
    silent = places == np.where(now - arrivals[last, 1] >= DAY_IN_S, days, -1)[:, None]
    times, positions = np.where(silent, now, times), np.where(silent, arrivals[last, 2][:, None], positions)
    times = np.where((places < days[:, None]) | silent, times, np.nan)
    earlier, later = np.triu_indices(len(places), 1)
    apart = times[:, later] - times[:, earlier]
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (positions[:, later] - positions[:, earlier]) / apart
    slopes = np.where(apart >= DAY_IN_S, slopes, np.nan)
    usable = np.isfinite(slopes).any(axis=1)
    medians = np.nanmedian(slopes[usable], axis=1)
    return {int(unit): float(rate) for unit, rate in zip(units[usable], medians, strict=True) if rate > 0}
