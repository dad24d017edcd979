"""Alerts on disk: what was raised, who was told, who took care of it, and which machines are muted.

The log shares the database of the store. An alert is written in the transaction that stores the row which raised it,
together with one line in the outbox for each sink. A sink's line is closed after the sink has confirmed the alert. So
a killed process loses no alert. One that a sink confirmed at the moment of the kill is sent again, with the same id.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from pydantic_core import from_json, to_json

from fedprognos.prognosis import Health
from fedprognos.service.alerts import Alert, Standing

KEPT_ALERTS = 10_000
TABLES = """
CREATE TABLE IF NOT EXISTS alerts (id INTEGER PRIMARY KEY, unit TEXT NOT NULL, machine TEXT NOT NULL,
    status TEXT NOT NULL, before TEXT NOT NULL, raised REAL NOT NULL, health TEXT NOT NULL, reason TEXT NOT NULL,
    muted_by TEXT NOT NULL, acknowledged REAL, acknowledged_by TEXT NOT NULL, note TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS alerts_of_machine ON alerts (machine, id);
CREATE TABLE IF NOT EXISTS outbox (alert INTEGER NOT NULL, sink TEXT NOT NULL, delivered REAL, refused TEXT NOT NULL,
    PRIMARY KEY (sink, alert)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (sink, alert) WHERE delivered IS NULL;
CREATE TABLE IF NOT EXISTS standings (machine TEXT PRIMARY KEY, status TEXT NOT NULL, life INTEGER NOT NULL,
    streak INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mutes (machine TEXT PRIMARY KEY, until REAL NOT NULL, since REAL NOT NULL,
    who TEXT NOT NULL, note TEXT NOT NULL) WITHOUT ROWID;
"""


class AlertReceiver(Protocol):
    """A sink as the log sees it: its name, and the statuses that it is told about."""

    @property
    def name(self) -> str: ...

    @property
    def statuses(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Mute:
    """No sink is told about a machine until then (seconds since 1970)."""

    machine: str
    until: float
    since: float
    who: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class SinkState:
    """How far a sink has got: alerts that wait for it, and those that it refused for good."""

    name: str
    waiting: int
    refused: int


class AlertLog:
    """The tables of alerts in the store's database. Used in the thread of the stream.

    Parameters
    ----------
    transaction
        Opens a transaction of the store.
    """

    def __init__(self, db: sqlite3.Connection, transaction: Callable[[], AbstractContextManager[None]]) -> None:
        self._db = db
        self._change = transaction
        self.sinks: Sequence[AlertReceiver] = ()
        with self._change():
            for statement in TABLES.split(";\n"):
                self._db.execute(statement)
            series = secrets.token_hex(4)  # so that ids of two state folders differ
            self._db.execute("INSERT OR IGNORE INTO facts VALUES ('alerts', ?)", (series,))
        (self.series,) = self._db.execute("SELECT value FROM facts WHERE name = 'alerts'").fetchone()

    # --- writing -----------------------------------------------------------------------------

    def write(self, alerts: Iterable[Alert], standings: Mapping[str, Standing | None]) -> None:
        """Add alerts and what was announced; call it within a transaction."""
        for alert in alerts:
            muted_by = self._muted_by(alert.machine, alert.raised)
            number = _number(alert.id)
            self._db.execute(
                "INSERT INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, '', '')",
                (
                    number,
                    alert.unit,
                    alert.machine,
                    alert.status,
                    alert.before,
                    alert.raised,
                    to_json(alert.health).decode(),
                    alert.reason,
                    muted_by,
                ),
            )
            for sink in () if muted_by else self.sinks:
                if {alert.status, alert.before}.intersection(sink.statuses):  # a sink that heard of it hears of its end
                    self._db.execute("INSERT INTO outbox VALUES (?, ?, NULL, '')", (number, sink.name))
        for machine, standing in standings.items():
            if standing is None:
                self._db.execute("DELETE FROM standings WHERE machine = ?", (machine,))
            else:
                self._db.execute(
                    "INSERT OR REPLACE INTO standings VALUES (?, ?, ?, ?)",
                    (machine, standing.status, standing.life, standing.streak),
                )

    def write_alone(self, alerts: Iterable[Alert], standings: Mapping[str, Standing | None]) -> None:
        """The same, in a transaction of its own."""
        with self._change():
            self.write(alerts, standings)

    def mark_delivered(self, sink: str, alerts: Iterable[Alert], now: float, refused: str = "") -> None:
        """A sink has confirmed alerts, or refused them for good for a reason."""
        with self._change():
            self._db.executemany(
                "UPDATE outbox SET delivered = ?, refused = ? WHERE sink = ? AND alert = ?",
                [(now, refused, sink, _number(alert.id)) for alert in alerts],
            )

    def acknowledge(self, alert_id: str, who: str, note: str, now: float) -> Alert | None:
        """Note that somebody takes care of an alert; the first one stays. None where there is no such alert."""
        alert = self.find(alert_id)
        if alert is None or alert.acknowledged is not None:
            return alert
        with self._change():
            self._db.execute(
                "UPDATE alerts SET acknowledged = ?, acknowledged_by = ?, note = ? WHERE id = ?",
                (now, who, note, _number(alert_id)),
            )
        return replace(alert, acknowledged=now, acknowledged_by=who, note=note)

    def mute(self, mute: Mute) -> None:
        """Tell no sink about a machine for a while."""
        with self._change():
            self._db.execute(
                "INSERT OR REPLACE INTO mutes VALUES (?, ?, ?, ?, ?)",
                (mute.machine, mute.until, mute.since, mute.who, mute.note),
            )

    def unmute(self, machine: str) -> bool:
        """Tell sinks again; whether the machine was muted."""
        with self._change():
            return self._db.execute("DELETE FROM mutes WHERE machine = ?", (machine,)).rowcount > 0

    def prune(self, now: float) -> None:
        """Drop mutes that are over, and all but the latest alerts; those that wait for a sink stay."""
        with self._change():
            self._db.execute("DELETE FROM mutes WHERE until <= ?", (now,))
            self._db.execute(
                "DELETE FROM alerts WHERE id <= (SELECT id FROM alerts ORDER BY id DESC LIMIT 1 OFFSET ?) "
                "AND id NOT IN (SELECT alert FROM outbox WHERE delivered IS NULL)",
                (KEPT_ALERTS,),
            )
            self._db.execute("DELETE FROM outbox WHERE alert NOT IN (SELECT id FROM alerts)")

    def drop_other_sinks(self) -> int:
        """Forget what waits for sinks that are not configured any more; how many alerts that were."""
        names = [sink.name for sink in self.sinks]
        marks = ", ".join("?" * len(names))
        with self._change():
            return self._db.execute(
                f"DELETE FROM outbox WHERE delivered IS NULL AND sink NOT IN ({marks})",  # noqa: S608 - question marks
                names,
            ).rowcount

    # --- reading -----------------------------------------------------------------------------

    def standings(self) -> dict[str, Standing]:
        """What was announced of each machine."""
        return {
            machine: Standing(status, life, streak)
            for machine, status, life, streak in self._db.execute("SELECT * FROM standings")
        }

    def last_number(self) -> int:
        """The number of the latest alert, 0 for none; a restored state goes on from a higher one."""
        (number,) = self._db.execute("SELECT ifnull(max(id), 0) FROM alerts").fetchone()
        record = self._db.execute("SELECT value FROM facts WHERE name = 'alerts_after'").fetchone()
        return max(int(number), 0 if record is None else int(record[0]))

    def latest(self, limit: int, before: str | None = None, machine: str | None = None) -> list[Alert]:
        """Alerts, the latest first; those before an id, and of one machine, where these are given."""
        query = "SELECT * FROM alerts WHERE id < ?1 AND (?2 IS NULL OR machine = ?2) ORDER BY id DESC LIMIT ?3"
        below = 2**62 if before is None else _number(before)
        return [self._alert(record) for record in self._db.execute(query, (below, machine, limit))]

    def find(self, alert_id: str) -> Alert | None:
        """The alert with an id."""
        series, _, number = alert_id.rpartition("-")
        if series != self.series or not number.isdecimal() or len(number) > 18:
            return None
        record = self._db.execute("SELECT * FROM alerts WHERE id = ?", (int(number),)).fetchone()
        return None if record is None else self._alert(record)

    def waiting(self, sink: str, limit: int) -> list[Alert]:
        """The oldest alerts that a sink has not confirmed, in their order."""
        query = (
            "SELECT * FROM alerts WHERE id IN (SELECT alert FROM outbox WHERE sink = ? AND delivered IS NULL "
            "ORDER BY alert LIMIT ?) ORDER BY id"
        )
        return [self._alert(record) for record in self._db.execute(query, (sink, limit))]

    def sink_states(self) -> list[SinkState]:
        """How far each sink has got."""
        query = "SELECT sum(delivered IS NULL), sum(refused != '') FROM outbox WHERE sink = ?"
        states = []
        for sink in self.sinks:
            waiting, refused = self._db.execute(query, (sink.name,)).fetchone()
            states.append(SinkState(sink.name, waiting or 0, refused or 0))
        return states

    def mutes(self, now: float) -> list[Mute]:
        """Machines that are muted now."""
        return [Mute(*record) for record in self._db.execute("SELECT * FROM mutes WHERE until > ?", (now,))]

    def _muted_by(self, machine: str, now: float) -> str:
        record = self._db.execute("SELECT who FROM mutes WHERE machine = ? AND until > ?", (machine, now)).fetchone()
        return "" if record is None else str(record[0])

    def _alert(self, record: Sequence[Any]) -> Alert:
        values = dict(zip((field.name for field in fields(Alert)), record, strict=True))
        health = from_json(values["health"])
        if health is not None:
            health = Health(**{**health, "flags": tuple(health["flags"])})
        return Alert(**{**values, "id": f"{self.series}-{values['id']}", "health": health})


def _number(alert_id: str) -> int:
    return int(alert_id.rpartition("-")[2])
