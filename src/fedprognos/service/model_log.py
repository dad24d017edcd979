"""Which model served when, which one ran along, and who changed it. The last change says who serves now."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import Literal

ChangeKind = Literal["start", "promote", "rollback"]
TABLE = """
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL,
    serving TEXT NOT NULL, shadow TEXT NOT NULL, who TEXT NOT NULL, note TEXT NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class ModelChange:
    """Roles of models from a moment on.

    Parameters
    ----------
    at
        When, in seconds since 1970.
    kind
        "start" where the service was started with other models than before.
    serving, shadow
        Fingerprints of the models; the second is empty where none runs along.
    who
        Empty for a start.
    """

    at: float
    kind: ChangeKind
    serving: str
    shadow: str
    who: str = ""
    note: str = ""


class ModelLog:
    """The table of changes in the store's database. Used in the thread of the stream."""

    def __init__(self, db: sqlite3.Connection, transaction: AbstractContextManager[None]) -> None:
        self._db = db
        with transaction:
            self._db.execute(TABLE)

    def write(self, change: ModelChange) -> None:
        """Add a change; call it within a transaction."""
        self._db.execute("INSERT INTO models VALUES (NULL, ?, ?, ?, ?, ?, ?)", astuple(change))

    def latest(self, limit: int) -> list[ModelChange]:
        """Changes, the latest first."""
        query = "SELECT at, kind, serving, shadow, who, note FROM models ORDER BY id DESC LIMIT ?"
        return [ModelChange(*record) for record in self._db.execute(query, (limit,))]

    def last(self) -> ModelChange | None:
        """The change that says who serves now; None for a state that no model has used yet."""
        return next(iter(self.latest(1)), None)
