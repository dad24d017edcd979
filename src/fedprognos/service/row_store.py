"""State on disk (SQLite): rows as they were taken, and the healths they gave.

A write-ahead log with `synchronous=FULL`: what :meth:`Store.write` has returned from survives the death of the
process and of the machine. One fsync serves all rows of a batch, so it costs little. The database is held
exclusively: a second service on the same folder is refused.

Rows are kept until a snapshot of the stream covers them. After that the latest of each unit stay, to be looked at and
to go on from when the model changes; a model of whole lives needs all of them for that.
"""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from pydantic_core import from_json

from fedprognos.errors import DataError, OutputError
from fedprognos.prognosis import Health
from fedprognos.service.alert_log import AlertLog
from fedprognos.service.alerts import Alert, Standing
from fedprognos.service.arrivals import ArrivalLog
from fedprognos.service.maintenance import MaintenanceEvent, MaintenanceLog
from fedprognos.service.model_log import ModelChange, ModelLog

FORMAT = "3"
DATABASE = "state.sqlite"
KEPT_ROWS = 120
"""Rows a unit that stay to be looked at."""
KEPT_HEALTHS = 500
PROBE_IN_BYTES = 65_536
PAGES_COPIED_AT_ONCE = 256
PAUSE_IN_COPY_IN_S = 0.001
"""Between two steps of a copy, so that rows do not wait for all of it."""
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS units (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS forgotten (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, unit INTEGER NOT NULL, cycle INTEGER, position REAL NOT NULL,
    ends INTEGER NOT NULL, received REAL NOT NULL, accepted INTEGER NOT NULL, numbers BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS healths (id INTEGER PRIMARY KEY, unit INTEGER NOT NULL, received REAL NOT NULL,
    position REAL NOT NULL, value REAL, low REAL, high REAL, state TEXT NOT NULL, reason TEXT NOT NULL,
    flags TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS rows_of_unit ON rows (unit, id);
CREATE INDEX IF NOT EXISTS healths_of_unit ON healths (unit, id);
"""


class StoredRow(NamedTuple):
    """A row as it was taken, in the columns of its table.

    Parameters
    ----------
    accepted
        False for a row whose clock jumped: refused, but the stream remembers where it led.
    numbers
        Sensors and settings in the recipe's order, NaN where a value was blank.
    """

    id: int
    unit: int
    cycle: int | None
    position: float
    end: bool
    received: float
    accepted: bool
    numbers: bytes

    @property
    def values(self) -> list[float]:
        numbers: list[float] = np.frombuffer(self.numbers, dtype=np.float64).tolist()
        return numbers


class Store:
    """A state folder, opened.

    Parameters
    ----------
    folder
        Made where it is missing; None for a state in memory.
    columns
        What the numbers of a row are; a folder with rows of other columns is refused.
    kept_rows
        Rows a unit that stay when a snapshot covers them; None for all.

    Attributes
    ----------
    model_changed
        The folder was last used with another model.
    alerts, maintenance, arrivals, models
        The logs of alerts, of maintenance, of arrivals and of models, in the same database.
    """

    def __init__(self, folder: Path | None, columns: str, kept_rows: int | None = KEPT_ROWS) -> None:
        self.folder = folder
        self.model_changed = False
        self._kept_rows = kept_rows
        path = ":memory:" if folder is None else str(_private(folder) / DATABASE)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
        try:
            self._open(columns)
            self.alerts = AlertLog(self._db, self._transaction)
            self.maintenance = MaintenanceLog(self._db, self._transaction())
            self.arrivals = ArrivalLog(self._db, self._transaction())
            self.models = ModelLog(self._db, self._transaction())
        except sqlite3.Error as error:
            self._db.close()
            raise _cannot_open(folder, error) from None
        except DataError:
            self._db.close()
            raise

    def _open(self, columns: str) -> None:
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with self._transaction():
            for statement in _TABLES.split(";\n"):
                self._db.execute(statement)
            for name, value, other in (("format", FORMAT, "version"), ("columns", columns, "model's columns")):
                if self.fact(name) not in {None, value}:
                    raise DataError(
                        f"this state belongs to another {other}",
                        where=str(self.folder),
                        hint="use the version and model that wrote it, or give another --state folder",
                    )
                self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))

    def use_model(self, model: str, change: ModelChange | None) -> None:
        """Belong to a model from now on; a snapshot of another one is passed over."""
        with self._transaction():
            if change is not None:
                self.models.write(change)
            last_model = self.fact("model")
            if last_model != model:
                self.model_changed = last_model is not None
                self._db.execute("INSERT OR REPLACE INTO facts VALUES ('model', ?)", (model,))
                self._db.execute("DELETE FROM facts WHERE name = 'snapshot'")
                self._db.execute("DELETE FROM forgotten")

    # --- writing -----------------------------------------------------------------------------

    def write(
        self,
        units: Iterable[tuple[int, str]],
        rows: Sequence[StoredRow],
        healths: Iterable[tuple[int, Health]],
        received: float,
        alerts: Iterable[Alert] = (),
        standings: Mapping[str, Standing | None] = MappingProxyType({}),
    ) -> None:
        """Add to the state as a whole or not at all; on disk when this returns."""
        with self._transaction():
            self.alerts.write(alerts, standings)
            self._db.executemany("INSERT INTO units VALUES (?, ?)", units)
            self._db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self.arrivals.write(rows)
            self._write_healths(healths, received)

    def _write_healths(self, healths: Iterable[tuple[int, Health]], received: float) -> None:
        self._db.executemany(
            "INSERT INTO healths VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (unit, received, h.position, h.value, h.low, h.high, h.state, h.reason, ",".join(h.flags))
                for unit, h in healths
            ),
        )

    def write_event(
        self,
        event: MaintenanceEvent,
        units: Iterable[tuple[int, str]],
        alerts: Iterable[Alert],
        standings: Mapping[str, Standing | None],
    ) -> None:
        """Add a maintenance event, and the unit that it begins; on disk when this returns."""
        with self._transaction():
            self.alerts.write(alerts, standings)
            self.maintenance.write(event)
            self._db.executemany("INSERT INTO units VALUES (?, ?)", units)

    def forget(
        self,
        number: int,
        name: str,
        alerts: Iterable[Alert],
        standings: Mapping[str, Standing | None],
        last_life_of: str | None,
    ) -> None:
        """Drop a unit. The snapshot still holds it, so its name is kept and skipped on restore.

        Parameters
        ----------
        last_life_of
            The machine of which no unit is left; its events are dropped, too.
        """
        with self._transaction():
            self.alerts.write(alerts, standings)
            if last_life_of is not None:
                self.maintenance.forget(last_life_of)
            self._db.execute("DELETE FROM rows WHERE unit = ?", (number,))
            self._db.execute("DELETE FROM healths WHERE unit = ?", (number,))
            self.arrivals.forget(number)
            self._db.execute("DELETE FROM units WHERE id = ?", (number,))
            self._db.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (name,))

    def swap_models(self, model: str, change: ModelChange, through: int, healths: Iterable[tuple[int, Health]]) -> None:
        """Let another model serve, with its snapshot and what it says now; as a whole or not at all."""
        with self._transaction():
            self.models.write(change)
            for name, value in (("model", model), ("snapshot", str(through))):
                self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
            self._db.execute("DELETE FROM forgotten")
            self._write_healths(healths, change.at)

    def snapshot_written(self, through: int) -> None:
        """Remember that a snapshot holds all rows up to a number, and no unit that was forgotten."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('snapshot', ?)", (str(through),))
            self._db.execute("DELETE FROM forgotten")

    def prune(self, units: Iterable[int], now: float) -> None:
        """Drop all but the latest rows and healths of some units, and arrivals of long ago."""
        tables = {"healths": KEPT_HEALTHS}
        if self._kept_rows is not None:
            tables["rows"] = self._kept_rows
        with self._transaction():
            self.arrivals.prune(now)
            for unit in units:
                for table, kept in tables.items():
                    self._db.execute(
                        f"DELETE FROM {table} WHERE unit = ?1 AND id <= "  # noqa: S608 - two names, both above
                        f"(SELECT id FROM {table} WHERE unit = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                        (unit, kept),
                    )

    def probe(self) -> None:
        """Write some bytes and delete them again; raises if the disk is full."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('probe', ?)", ("x" * PROBE_IN_BYTES,))
        with self._transaction():
            self._db.execute("DELETE FROM facts WHERE name = 'probe'")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # --- reading -----------------------------------------------------------------------------

    def fact(self, name: str) -> str | None:
        """A fact about the whole state; None if it was never set."""
        record = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if record is None else str(record[0])

    def last_id(self) -> int:
        """The highest number of a row or event so far, 0 for none; the unit that had it may be forgotten by now."""
        query = "SELECT max((SELECT ifnull(max(id), 0) FROM rows), (SELECT ifnull(max(id), 0) FROM maintenance))"
        (highest,) = self._db.execute(query).fetchone()
        return max(int(highest), self.snapshot())

    def snapshot(self) -> int:
        """The number of the last row that the snapshot holds, 0 where there is no snapshot."""
        return int(self.fact("snapshot") or 0)

    def forgotten(self) -> list[str]:
        """Units that the snapshot holds though they were forgotten."""
        return [name for (name,) in self._db.execute("SELECT name FROM forgotten")]

    def units(self) -> dict[str, int]:
        """Numbers of all units by name."""
        return {name: number for number, name in self._db.execute("SELECT id, name FROM units ORDER BY id")}

    def rows_after(self, number: int) -> Iterator[StoredRow]:
        """Rows with higher numbers, in the order they came."""
        for record in self._db.execute("SELECT * FROM rows WHERE id > ? ORDER BY id", (number,)):
            yield _row(record)

    def latest_rows(self) -> list[StoredRow]:
        """The last accepted row of each unit."""
        query = "SELECT * FROM rows WHERE id IN (SELECT max(id) FROM rows WHERE accepted GROUP BY unit)"
        return [_row(record) for record in self._db.execute(query)]

    def rows_of(self, unit: int, limit: int = KEPT_ROWS) -> list[StoredRow]:
        """Latest accepted rows of a unit, oldest first."""
        query = "SELECT * FROM rows WHERE unit = ? AND accepted ORDER BY id DESC LIMIT ?"
        return [_row(record) for record in self._db.execute(query, (unit, limit))][::-1]

    def has_row(self, unit: int, position: float, cycle: int | None, numbers: bytes) -> bool:
        """Whether this very row is stored."""
        query = "SELECT 1 FROM rows WHERE unit = ? AND position = ? AND cycle IS ? AND numbers = ? LIMIT 1"
        return self._db.execute(query, (unit, position, cycle, numbers)).fetchone() is not None

    def healths_of(self, unit: int, name: str) -> list[Health]:
        """Latest healths of a unit, oldest first."""
        query = "SELECT * FROM healths WHERE unit = ? ORDER BY id DESC LIMIT ?"
        return [_health(name, record) for record in self._db.execute(query, (unit, KEPT_HEALTHS))][::-1]

    def latest_healths(self, limit: int) -> Iterator[tuple[int, Health]]:
        """The latest healths of all units, oldest first, with the number of their unit; they name none."""
        query = (
            "SELECT healths.* FROM units JOIN healths ON healths.id IN "
            "(SELECT id FROM healths WHERE unit = units.id ORDER BY id DESC LIMIT ?) ORDER BY healths.id"
        )
        for record in self._db.execute(query, (limit,)):
            yield record[1], _health("", record)

    def latest_values(self, limit: int) -> Iterator[tuple[int, list[float]]]:
        """The latest values of each unit, oldest first, with its number."""
        query = (
            "SELECT id, (SELECT json_group_array(value) FROM (SELECT value FROM healths "
            "WHERE unit = units.id AND value IS NOT NULL ORDER BY id DESC LIMIT ?)) FROM units"
        )
        for number, values in self._db.execute(query, (limit,)):
            yield number, from_json(values)[::-1]

    def copy_to(self, path: Path, go_on: Callable[[], None]) -> None:
        """Copy the database while it is used; what is stored meanwhile is in the copy, too.

        This runs in a thread of its own. SQLite brings pages that change up to date in the copy, because it is made
        over the same connection. `go_on` is called between two steps and may raise to give up.
        """

        def rest(status: int, remaining: int, total: int) -> None:
            go_on()
            time.sleep(PAUSE_IN_COPY_IN_S)

        with closing(sqlite3.connect(path, isolation_level=None)) as target:
            target.execute("PRAGMA journal_mode=OFF")  # a copy that is not finished is thrown away
            target.execute("PRAGMA synchronous=OFF")  # the whole file is flushed when it is complete
            self._db.backup(target, pages=PAGES_COPIED_AT_ONCE, progress=rest, sleep=0.005)

    def layout(self) -> set[tuple[str, str, str]]:
        """Kind, name and definition of everything in the database."""
        return layout_of(self._db)

    def close(self) -> None:
        """Close the database, which unlocks the folder."""
        self._db.close()


def layout_of(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Kind, name and definition of everything in a database."""
    records = db.execute("SELECT type, name, ifnull(sql, '') FROM sqlite_master")
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in records}


def _row(record: Sequence[object]) -> StoredRow:
    number, unit, cycle, position, end, received, accepted, values = record
    return StoredRow(number, unit, cycle, position, bool(end), received, bool(accepted), values)  # type: ignore[arg-type]


def _health(name: str, record: Sequence[object]) -> Health:
    position, value, low, high, state, reason, flags = record[3:10]
    kept = tuple(str(flags).split(",")) if flags else ()
    return Health(name, position, value, low, high, state, reason, kept)  # type: ignore[arg-type]


def _private(folder: Path) -> Path:
    """The folder, created if it is missing, readable by its owner only.

    An empty folder, or one that holds a state, becomes private. A folder with other files is refused: to change its
    mode could lock out other programs.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o077:
            if (folder / DATABASE).exists() or not any(folder.iterdir()):
                folder.chmod(0o700)
            else:
                raise OutputError(
                    f"other users can read this folder (mode {mode:04o})",
                    where=str(folder),
                    hint=f"chmod 700 '{folder}', or give an empty folder with --state",
                )
        (folder / DATABASE).touch(0o600)
        (folder / DATABASE).chmod(0o600)
    except OSError as error:
        hint = "give a folder that you may write to with --state"
        raise OutputError(f"cannot keep state here: {error.strerror}", where=str(folder), hint=hint) from None
    return folder


def _cannot_open(folder: Path | None, error: sqlite3.Error) -> OutputError:
    if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return OutputError("another service is using this state", where=str(folder), hint="give another --state folder")
    return OutputError(f"the state cannot be used: {error}", where=str(folder), hint="give another --state folder")
