"""When people are told that a machine's status has changed.

A status is announced once it has lasted for some healths: a few where it is more urgent than the last one announced,
more where it is less urgent. So a value that wavers around the threshold does not raise an alert with every row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pydantic_core import to_json

from fedprognos.prognosis import AT_CAP, DISTRUSTED, WORN, Health, machine_and_life

AlertStatus = Literal["due", "unknown", "soon", "ok", "ended"]
URGENCY: dict[str, int] = {"due": 3, "unknown": 2, "soon": 1, "ok": 0}
"""Of a status that can be announced. A unit that warms up says nothing yet."""
WORDS = {"due": "due", "unknown": "to be checked", "soon": "due soon", "ok": "fine", "ended": "ended"}
RAISE_AFTER, CLEAR_AFTER = 3, 20


@dataclass(frozen=True, slots=True)
class Alert:
    """A machine's status has changed.

    Parameters
    ----------
    id
        The same whenever the alert is sent, and of no other alert: receivers can tell a repeated one.
    unit
        The life of the machine that changed.
    status, before
        The status from now on and the one announced before it; "ended" where the unit was forgotten or repaired.
    raised
        Seconds since 1970 by this machine's clock.
    reason
        What is known beside the health, such as that no rows come.
    muted_by
        Who had muted the machine, so that no sink was told; empty where they were.
    acknowledged, acknowledged_by, note
        When somebody took care of it, who, and what they wrote.
    """

    id: str
    unit: str
    machine: str
    status: AlertStatus
    before: AlertStatus
    raised: float
    health: Health | None
    reason: str = ""
    muted_by: str = ""
    acknowledged: float | None = None
    acknowledged_by: str = ""
    note: str = ""

    @property
    def payload(self) -> bytes:
        """The alert as JSON, as sinks send it."""
        return to_json({**asdict(self), "text": self.text})

    @property
    def text(self) -> str:
        """The alert in one line.

        >>> health = Health("pump", 312, 125.0, 108.0, None, flags=("at-cap",))
        >>> Alert("9f-1", "pump", "pump", "unknown", "ok", 0.0, health, "no row for 15 min").text
        'pump is to be checked, was fine; health 125 or more at 312; no row for 15 min'
        """
        doubts = self.reason or ("" if self.health is None else self.health.reason)
        parts = [f"{self.unit} is {WORDS[self.status]}, was {WORDS[self.before]}", _health_words(self.health), doubts]
        return "; ".join(part for part in parts if part)


def _health_words(health: Health | None) -> str:
    """A health in words, no surer than it is: at the cap it is a lower bound; a distrusted one promises nothing."""
    if health is None or health.value is None:
        return ""
    value, at = f"{health.value:.4g}", f"at {health.position:.12g}"
    if WORN in health.flags:
        return f"worn {at}"
    if DISTRUSTED.intersection(health.flags):
        return f"health {value} {at}, not to be trusted"
    if AT_CAP in health.flags:
        return f"health {value} or more {at}"
    if health.low is None:
        return f"health {value} {at}"
    upper = "or more" if health.high is None else f"to {health.high:.4g}"
    return f"health {value} ({health.low:.4g} {upper}) {at}"


def _for_long(seconds: float) -> str:
    """A time span as people say it.

    >>> _for_long(910.0), _for_long(45.0), _for_long(200_000.0)
    ('15 min', '45 s', '56 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


@dataclass(frozen=True, slots=True)
class Standing:
    """What was announced of a machine, and what has come since.

    Parameters
    ----------
    life
        The latest life of the machine; rows of earlier ones say nothing about it.
    streak
        Healths in a row that are more urgent than the status (above 0) or less urgent (below 0).
    """

    status: AlertStatus = "ok"
    life: int = 1
    streak: int = 0


class AlertRule:
    """Decides which healths are announced. Used in the thread of the stream.

    Parameters
    ----------
    judge
        The status of a health.
    raise_after, clear_after
        Healths in a row until a more urgent status is announced, and a less urgent one.

    Examples
    --------
    >>> rule = AlertRule(lambda health: "due" if health.value < 25 else "ok", raise_after=2, clear_after=3)
    >>> values = [30, 24, 26, 24, 23, 26, 24, 26, 27, 28]
    >>> alerts = [rule.note_health(Health("pump", k, value), 0.0) for k, value in enumerate(values)]
    >>> [(alert.status, alert.health.position) for alert in alerts if alert]
    [('due', 4), ('ok', 9)]
    """

    def __init__(
        self, judge: Callable[[Health], str], raise_after: int = RAISE_AFTER, clear_after: int = CLEAR_AFTER
    ) -> None:
        self._judge = judge
        self._raise_after, self._clear_after = raise_after, clear_after
        self._standings: dict[str, Standing] = {}
        self._changed: dict[str, Standing | None] = {}
        self._series, self._number = "alert", 0
        self._units: Container[str] = ()

    def restore(self, standings: Mapping[str, Standing], series: str, last_number: int, units: Container[str]) -> None:
        """Continue from what is stored; ids continue after the last alert of the series.

        Parameters
        ----------
        units
            All units that are watched, also those that come later.
        """
        self._standings, self._changed = dict(standings), {}
        self._series, self._number = series, last_number
        self._units = units

    def take_changes(self) -> dict[str, Standing | None]:
        """Standings that changed since the last call, to be stored with the alerts; None for one that is gone."""
        changed, self._changed = self._changed, {}
        return changed

    def note_health(self, health: Health, now: float) -> Alert | None:
        """Follow a health; an alert where it settles a change of status."""
        status = self._judge(health)
        if status not in URGENCY:
            return None
        machine, life = self._machine(health.unit)
        standing = self._standings.get(machine, Standing())
        if life < standing.life:
            return None
        if life > standing.life:
            standing = replace(standing, streak=0)
        step = URGENCY[status] - URGENCY[standing.status]
        streak = 0
        if step > 0:
            streak = max(standing.streak, 0) + 1
        elif step < 0:
            streak = min(standing.streak, 0) - 1
        if streak >= self._raise_after or -streak >= self._clear_after:
            return self._announce(machine, health.unit, life, status, now, health)
        if (life, streak) != (standing.life, standing.streak):
            self._set(machine, replace(standing, life=life, streak=streak))
        return None

    def note_silence(self, unit: str, health: Health | None, silent_since: float, now: float) -> Alert | None:
        """No rows come from a unit that was fine: nobody knows how it stands now."""
        machine, life = self._machine(unit)
        standing = self._standings.get(machine, Standing())
        if life < standing.life or URGENCY["unknown"] <= URGENCY[standing.status]:
            return None
        reason = f"no row for {_for_long(now - silent_since)}"
        return self._announce(machine, unit, life, "unknown", now, health, reason)

    def forget(self, unit: str, now: float) -> Alert | None:
        """A unit is dropped; an alert where people were told that something is wrong with it."""
        machine, life = self._machine(unit)
        standing = self._standings.get(machine)
        if standing is None or standing.life != life:
            return None
        alert = None
        if standing.status != "ok":
            alert = self._announce(machine, unit, life, "ended", now, None, "the unit was forgotten")
        del self._standings[machine]
        self._changed[machine] = None
        return alert

    def end_life(self, unit: str, next_life: int, now: float, reason: str) -> Alert | None:
        """A repair ends a life; an alert where people were told that something is wrong with it."""
        machine, life = self._machine(unit)
        standing = self._standings.get(machine)
        if standing is None or standing.life > life:
            return None
        alert = None
        if standing.status != "ok":
            alert = self._announce(machine, unit, life, "ended", now, None, reason)
        self._set(machine, Standing("ok", next_life))
        return alert

    def _machine(self, unit: str) -> tuple[str, int]:
        """Machine and number of its life. A name such as `pump#2` is a later life only if an earlier life is known."""
        machine, life = machine_and_life(unit)
        if life > 1 and machine not in self._units and machine not in self._standings:
            return unit, 1
        return machine, life

    def _announce(
        self,
        machine: str,
        unit: str,
        life: int,
        status: str,
        now: float,
        health: Health | None,
        reason: str = "",
    ) -> Alert:
        before = self._standings.get(machine, Standing()).status
        self._number += 1
        announced: AlertStatus = status  # type: ignore[assignment]  # a key of URGENCY, or "ended"
        self._set(machine, Standing(announced, life))
        return Alert(f"{self._series}-{self._number}", unit, machine, announced, before, now, health, reason)

    def _set(self, machine: str, standing: Standing) -> None:
        self._standings[machine] = self._changed[machine] = standing
