"""Maintenance of machines: what was done, when and by whom, and what it means for the stream.

A failure, a repair or a replacement begins a new life: rows that come later belong to it, and the life before it stays
as history. A failure also says what the remaining life was, which models are compared by.
An exchanged sensor begins anew without the faults that latched. An inspection changes nothing. Events are numbered
together with rows, so that a restart applies both in the order in which they came.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from io import StringIO
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, ValidationError

from fedprognos.errors import DataError
from fedprognos.options import Options
from fedprognos.prognosis import LONGEST_NAME, Stream

Kind = Literal["failure", "repair", "replacement", "sensor-exchange", "inspection", "acknowledgement"]
NEW_LIFE = frozenset({"failure", "repair", "replacement"})
Who = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\u0000-\u001f\u007f]+$")]
Note = Annotated[str, Field(max_length=1000)]
TABLES = """
CREATE TABLE IF NOT EXISTS maintenance (id INTEGER PRIMARY KEY, machine TEXT NOT NULL, unit TEXT NOT NULL,
    kind TEXT NOT NULL, sensor TEXT NOT NULL, at REAL NOT NULL, position REAL, begins TEXT NOT NULL,
    who TEXT NOT NULL, note TEXT NOT NULL, recorded REAL NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS maintenance_once ON maintenance (machine, kind, sensor, at)
"""


def _with_zone(value: Any) -> Any:
    """A date without a zone is in UTC, as dates in rows are."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class MaintenanceReport(Options):
    """What somebody says was done. The same machine, kind, sensor and time is the same event."""

    unit: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\u0000-\u001f\u007f]+$")]
    kind: Kind
    at: Annotated[AwareDatetime, BeforeValidator(_with_zone)]
    """When it was done: an ISO date with time; in UTC where no zone is given."""
    who: Who
    note: Note = ""
    sensor: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    """Which sensor was exchanged."""


@dataclass(frozen=True, slots=True)
class MaintenanceEvent:
    """An event as it is stored.

    Parameters
    ----------
    id
        Its place among rows and events.
    machine, unit
        The machine, and the life that it was in.
    at, recorded
        When it was done, and when the service heard of it, in seconds since 1970.
    position
        Where the unit was when the event was recorded; None before its first row.
    begins
        The unit that is the machine's next life; empty where the event begins none.
    """

    id: int
    machine: str
    unit: str
    kind: Kind
    sensor: str
    at: float
    position: float | None
    begins: str
    who: str
    note: str
    recorded: float

    def apply(self, stream: Stream) -> None:
        """What the event means for a stream that has taken all rows before it."""
        if self.kind == "sensor-exchange":
            stream.acknowledge(self.unit, self.sensor)
        elif self.kind == "acknowledgement":
            stream.acknowledge(self.unit)


class Recorded(StrEnum):
    """What became of a report."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


@dataclass(frozen=True)
class ReportResult:
    """What became of one report; the event that is stored, where there is one."""

    result: Recorded
    reason: str = ""
    event: MaintenanceEvent | None = None


class MaintenanceLog:
    """The table of events in the store's database. Used in the thread of the stream."""

    def __init__(self, db: sqlite3.Connection, transaction: AbstractContextManager[None]) -> None:
        self._db = db
        with transaction:
            for statement in TABLES.split(";\n"):
                self._db.execute(statement)

    def write(self, event: MaintenanceEvent) -> None:
        """Add an event; call it within a transaction."""
        self._db.execute("INSERT INTO maintenance VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(event))

    def find(self, machine: str, kind: str, sensor: str, at: float) -> MaintenanceEvent | None:
        """The event that was recorded before."""
        query = "SELECT * FROM maintenance WHERE machine = ? AND kind = ? AND sensor = ? AND at = ?"
        record = self._db.execute(query, (machine, kind, sensor, at)).fetchone()
        return None if record is None else _event(record)

    def failures(self, limit: int) -> list[MaintenanceEvent]:
        """Lives that ended by a failure at a position, the latest first."""
        query = "SELECT * FROM maintenance WHERE kind = 'failure' AND position NOT NULL ORDER BY id DESC LIMIT ?"
        return [_event(record) for record in self._db.execute(query, (limit,))]

    def after(self, number: int) -> Iterator[MaintenanceEvent]:
        """Events with higher numbers, in the order they came."""
        return map(_event, self._db.execute("SELECT * FROM maintenance WHERE id > ? ORDER BY id", (number,)))

    def latest(self, limit: int, before: int | None = None, machine: str | None = None) -> list[MaintenanceEvent]:
        """Events, the latest first; those before an id, and of one machine, where these are given."""
        query = "SELECT * FROM maintenance WHERE id < ?1 AND (?2 IS NULL OR machine = ?2) ORDER BY id DESC LIMIT ?3"
        below = 2**62 if before is None else before
        return [_event(record) for record in self._db.execute(query, (below, machine, limit))]

    def forget(self, machine: str) -> None:
        """Drop all events of a machine; call it within a transaction."""
        self._db.execute("DELETE FROM maintenance WHERE machine = ?", (machine,))


def _event(record: Sequence[Any]) -> MaintenanceEvent:
    return MaintenanceEvent(**dict(zip((field.name for field in fields(MaintenanceEvent)), record, strict=True)))


def read_report(value: Any, sensors: Sequence[str]) -> MaintenanceReport | str:
    """A report, or why it is none.

    >>> done = {"unit": "pump", "kind": "repair", "at": "2026-11-18T07:00", "who": "Mia"}
    >>> read_report(done, ("heat",)).at.isoformat()
    '2026-11-18T07:00:00+00:00'
    >>> read_report({**done, "kind": "sensor-exchange", "sensor": "haet"}, ("heat",))
    "sensor 'haet' is none of this model's: heat"
    """
    try:
        report = MaintenanceReport.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = first.get("ctx", {}).get("key") or ".".join(str(part) for part in first["loc"]) or "an event"
        return f"{str(key)[:40]}: {first['msg']}"
    if report.kind == "sensor-exchange" and report.sensor not in sensors:
        return f"sensor '{report.sensor[:40]}' is none of this model's: {', '.join(sensors)}"
    if report.kind != "sensor-exchange" and report.sensor:
        return "'sensor' belongs to a sensor-exchange only"
    return report


def parse_events(text: str) -> list[dict[str, str]]:
    """Events of a CSV text with a head line; cells that are empty count as not given.

    >>> parse_events("unit,kind,at,who,note\\npump,repair,2026-11-18T07:00,Mia,\\n")
    [{'unit': 'pump', 'kind': 'repair', 'at': '2026-11-18T07:00', 'who': 'Mia'}]
    """
    reader = csv.DictReader(StringIO(text.removeprefix("\ufeff")), strict=True)
    events = []
    try:
        for line in reader:
            if None in line or None in line.values():
                raise DataError(f"line {reader.line_num} has another number of cells than the head line")
            events.append({key.strip(): cell.strip() for key, cell in line.items() if cell.strip()})
    except csv.Error as error:
        raise DataError(f"not CSV: {error}") from None
    return events
