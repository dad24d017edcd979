"""Flower's database: made beside its place and renamed, so that neither a kill nor a full disk leaves half of one.

It holds Flower's own notes only: which keys are let in, which messages wait. Whatever a run needs to continue is in its
folder, so a database that cannot be read is set aside and made anew.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from alembic.script import ScriptDirectory
from flwr.supercore.state.alembic.utils import build_alembic_config, run_migrations
from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from fedprognos.errors import OutputError
from fedprognos.files import replacing

BESIDE = ("", "-wal", "-shm", "-journal")
"""Endings of the files that belong to a database of SQLite's."""


def prepare_database(path: Path) -> Path | None:
    """Make a database that this version of Flower can use; where one that it cannot use went, or None."""
    if path.is_file() and _usable(path):
        return None
    aside = None
    for ending in BESIDE:
        if (old := path.with_name(path.name + ending)).exists():
            aside = path.with_name(f"{path.name}.damaged")
            old.replace(aside.with_name(aside.name + ending))
    with replacing(path) as temporary:
        engine = create_engine(f"sqlite:///{temporary}")
        try:
            run_migrations(engine)
        except SQLAlchemyError as error:
            raise OutputError(
                f"the coordinator's database cannot be written: {getattr(error, 'orig', None) or error}",
                where=str(path),
                hint="Free some space, then start the coordinator again.",
            ) from error
        finally:
            engine.dispose()
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
    return aside


def _usable(path: Path) -> bool:
    """Whether a database is whole and of this version of Flower."""
    newest = ScriptDirectory.from_config(build_alembic_config(create_engine("sqlite://"))).get_heads()
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=5.0)) as database:
        [[sound]] = database.execute("PRAGMA quick_check(1)").fetchall()
        found = [version for (version,) in database.execute("SELECT version_num FROM alembic_version")]
        return bool(sound == "ok") and sorted(found) == sorted(newest)
    return False
