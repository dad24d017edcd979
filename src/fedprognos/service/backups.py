"""Backups of a state folder, written while rows come in, and unpacked into an empty folder.

A backup is one file: the database, the stream's snapshot in a table of it, and a last line with the digest of all bytes
before. The digest shows damage. It does not show who wrote the file, so the contents are checked as a stranger's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from fedprognos.errors import DataError, OutputError
from fedprognos.files import replacing
from fedprognos.service.durable_stream import DurableStream, snapshot_name
from fedprognos.service.row_store import FORMAT, Store, layout_of

MARK = b"\nfedprognos-backup-1 "
TRAILER_IN_BYTES = len(MARK) + 64 + 1
PART_IN_BYTES = 1 << 24
"""Larger values than a few parts of this size do not fit into one cell of SQLite."""
PARTS = "CREATE TABLE snapshot_parts (part INTEGER PRIMARY KEY, data BLOB NOT NULL)"


class StoppedError(Exception):
    """The service stops; the backup is given up."""


def backups_in(folder: Path, series: str) -> list[Path]:
    """Complete backups of one state, the oldest first; a state and what was restored from it have one series."""
    return sorted(folder.glob(f"fedprognos-{series}-*.backup"))


def write_backup(stream: DurableStream, folder: Path, kept: int, stopping: Callable[[], bool]) -> Path:
    """Write a backup beside the running stream, and drop all but the latest `kept`.

    Call it in a thread of its own. Rows that come in meanwhile are part of the backup if they are stored before its
    last page is copied.
    """
    series = stream.store.alerts.series
    for leftover in folder.glob(f".fedprognos-{series}-*"):  # of a backup that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    path = folder / f"fedprognos-{series}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.backup"

    def go_on() -> None:
        if stopping():
            raise StoppedError

    with replacing(path) as temporary:
        _make_private(temporary)
        try:
            with stream.keeping_snapshots():
                stream.store.copy_to(temporary, go_on)
                _add_snapshot(temporary, stream.store.folder or Path())
        except sqlite3.Error as error:
            raise OutputError(f"no backup could be written: {error}", where=str(folder)) from None
        with temporary.open("r+b") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.write(MARK + digest.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        go_on()
    flush_folder(folder)
    older = [backup for backup in backups_in(folder, series) if backup != path]
    for backup in older[: max(0, len(older) + 1 - kept)]:
        backup.unlink(missing_ok=True)
    return path


def _make_private(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def flush_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _open(path: Path) -> sqlite3.Connection:
    """A copied database, not in use by anybody else. What its schema says is not trusted."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "locking_mode=EXCLUSIVE", "journal_mode=DELETE"):
            db.execute(f"PRAGMA {setting}")
    except sqlite3.Error:  # not a database
        db.close()
        raise
    return db


def _fact(db: sqlite3.Connection, name: str) -> str | None:
    record = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if record is None else str(record[0])


def _add_snapshot(database: Path, folder: Path) -> None:
    """Put the snapshot that the copied database names into the copy."""
    with closing(_open(database)) as db:
        db.execute("BEGIN")
        db.execute(PARTS)
        through = int(_fact(db, "snapshot") or 0)
        if through:
            with (folder / snapshot_name(through)).open("rb") as file:
                while part := file.read(PART_IN_BYTES):
                    db.execute("INSERT INTO snapshot_parts VALUES (NULL, ?)", (part,))
        db.execute("COMMIT")


def unpack_backup(file: Path, database: Path, columns: str, models: Collection[str]) -> Path | None:
    """Write the database of a backup to a path, and the snapshot beside it; the snapshot's path, if there is one.

    Raises
    ------
    DataError
        Where the backup is damaged, of another version, or of another model.
    """
    _copy_checked(file, database)
    try:
        with closing(_open(database)) as db:
            _check_contents(db, file, columns, models)
            db.execute("BEGIN")
            snapshot = _take_snapshot(db, database.parent)
            db.execute("DROP TABLE snapshot_parts")
            # The service that is lost may have sent alerts after the backup. Receivers drop an id that they have, so
            # no number is used twice.
            db.execute("INSERT OR REPLACE INTO facts VALUES ('alerts_after', ?)", (str(int(time.time())),))
            db.execute("COMMIT")
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise _damaged(file, str(error)) from None
    return snapshot


def _copy_checked(file: Path, database: Path) -> None:
    """Copy all but the last line, and compare the digest there."""
    digest = hashlib.sha256()
    try:
        if not file.is_file():
            raise DataError("there is no such file", where=str(file), hint="give a file that --backup-to wrote")
        left = file.stat().st_size - TRAILER_IN_BYTES
        with file.open("rb") as source, database.open("xb") as target:
            while left > 0 and (part := source.read(min(left, PART_IN_BYTES))):
                digest.update(part)
                target.write(part)
                left -= len(part)
            trailer = source.read()
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        raise OutputError(f"cannot copy the backup: {error.strerror}", where=str(file)) from None
    if trailer != MARK + digest.hexdigest().encode() + b"\n":
        raise _damaged(file, "its digest does not match" if trailer.startswith(MARK) else "its end is missing")
    database.chmod(0o600)


def _check_contents(db: sqlite3.Connection, file: Path, columns: str, models: Collection[str]) -> None:
    """Refuse a database that this version would not have written: also one with triggers or views of its own."""
    with closing(Store(None, columns)) as fresh:
        expected = fresh.layout() | {("table", "snapshot_parts", PARTS)}
    if layout_of(db) != expected or _fact(db, "format") != FORMAT:
        hint = "restore it with the version that wrote it"
        raise DataError("this backup has another layout than this version writes", where=str(file), hint=hint)
    problems = [str(text) for (text,) in db.execute("PRAGMA integrity_check(1)")]
    if problems != ["ok"]:
        raise _damaged(file, problems[0])
    for table in sorted(name for kind, name, _ in expected if kind == "table"):
        for _, column, kind, *_ in db.execute("SELECT * FROM pragma_table_info(?)", (table,)).fetchall():
            query = f"SELECT 1 FROM {table} WHERE typeof({column}) NOT IN ('null', ?)"  # noqa: S608 - of this version
            if db.execute(query, (kind.lower(),)).fetchone() is not None:
                raise _damaged(file, f"'{column}' of table '{table}' holds something else than {kind}")
    if not re.fullmatch("[0-9a-f]{8}", _fact(db, "alerts") or ""):  # names of files are made of it
        raise _damaged(file, "its series of alerts has no name")
    for name, allowed, kind in (("columns", {columns}, "model with other columns"), ("model", models, "model")):
        if _fact(db, name) not in allowed:
            hint = "give the bundle that the service ran with; a new model can be given at the next start"
            raise DataError(f"this backup belongs to another {kind}", where=str(file), hint=hint)


def _take_snapshot(db: sqlite3.Connection, folder: Path) -> Path | None:
    through = int(_fact(db, "snapshot") or 0)
    if not through:
        return None
    if not 0 < through < 2**63:
        raise ValueError(f"there is no snapshot {through}")
    path = folder / snapshot_name(through)
    _make_private(path)
    with path.open("wb") as file:
        for (part,) in db.execute("SELECT data FROM snapshot_parts ORDER BY part"):
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return path


def _damaged(file: Path, why: str) -> DataError:
    return DataError(f"this backup is damaged: {why}", where=str(file), hint="restore an older backup")
