"""The fleet as clients see it: where every unit stands, most urgent first.

It lives in memory and is used from one thread.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fedprognos.errors import DataError
from fedprognos.prognosis import AT_CAP, DISTRUSTED, LONGEST_NAME, WORN, Health, Verdict, machine_and_life
from fedprognos.service.durable_stream import Batch, DurableStream
from fedprognos.service.maintenance import MaintenanceEvent

Status = Literal["due", "unknown", "soon", "ok", "warming-up", "ended"]
STATUSES: tuple[Status, ...] = ("due", "unknown", "soon", "ok", "warming-up")
"""In order of urgency. What cannot be judged comes right after what is due: it may be due as well. A life that another
one of the same machine has followed is "ended" and in none of them."""
MOST_SITES = 200
SPARK = 40
"""Values of a sparkline."""
LONGEST_REASON = 500
REFUSALS = 50
"""Refused rows that are remembered."""
SILENT_PAUSES, LEAST_SILENCE_IN_S = 20.0, 900.0
"""A unit is silent after so many of its usual pauses between rows, and not before a quarter of an hour."""
CAUTION = 2.0
"""A value is fine if twice as much as its interval reaches down still stays above the threshold. One true value in
twenty is below an interval of 90 %, which is too many to call fine."""


@dataclass(slots=True, eq=False)
class UnitView:
    """Where a unit stands.

    Parameters
    ----------
    received
        When its last row came, in seconds since 1970 by this machine's clock.
    spark
        Its latest values, oldest first.
    machine, life
        A repaired machine has several lives, each a unit: `pump`, `pump#2`, ... The latest stands for the machine.
    silent_since
        When its last row came, where it has been silent for much longer than usual; else None.
    """

    unit: str
    position: float
    received: float
    cycle: int | None = None
    health: Health | None = None
    status: Status = "warming-up"
    spark: deque[float] = field(default_factory=lambda: deque(maxlen=SPARK))
    machine: str = ""
    life: int = 1
    silent_since: float | None = None
    pause_in_s: float = 0.0  # smoothed time between two arrivals

    @property
    def value(self) -> float:
        """Its health, infinite where there is none."""
        return math.inf if self.health is None or self.health.value is None else self.health.value

    @property
    def site(self) -> str:
        """What its name begins with before the first "/", as in `north/pump 7`; empty where there is none."""
        return self.unit.partition("/")[0] if "/" in self.unit else ""


SORTS: dict[str, Callable[[UnitView], tuple[str | float, ...]]] = {
    "urgency": lambda view: (STATUSES.index(view.status), view.value, view.unit),
    "unit": lambda view: (view.unit,),
    "health": lambda view: (view.value, view.unit),
    "received": lambda view: (view.received, view.unit),
}
"""Orders of units: the most urgent first; by name; the lowest health first; those silent for longest first."""


def _cursor(sort: str, key: tuple[str | float, ...]) -> str:
    return urlsafe_b64encode(json.dumps([sort, *key]).encode()).decode()


def _read_cursor(cursor: str, sort: str) -> tuple[str | float, ...]:
    try:
        made_for, *key = json.loads(urlsafe_b64decode(cursor))
    except (ValueError, TypeError):
        raise DataError("this cursor is not one of this service") from None
    if made_for != sort or not key or not all(isinstance(part, str | int | float) for part in key):
        raise DataError("this cursor belongs to another order, or is none")
    return tuple(key)


def status_of(health: Health | None, threshold: float | None, margin: float = 0.0) -> Status:
    """How urgent a health is.

    Parameters
    ----------
    threshold
        Health at or below which maintenance is due.
    margin
        How near to it a value without an interval is too near to be called fine.

    Examples
    --------
    >>> status_of(Health("a", 1, 40.0, 20.0, 60.0), threshold=25.0)
    'soon'
    >>> status_of(Health("a", 1, 27.0), threshold=25.0, margin=10.0)
    'soon'
    >>> status_of(Health("a", 1, 20.0), threshold=25.0)
    'due'
    >>> status_of(Health("a", 1, 90.0, flags=("stuck",)), threshold=25.0)
    'unknown'
    """
    if health is None or health.state == "warming-up":
        return "warming-up"
    if health.value is None:
        return "unknown"
    if WORN in health.flags or (threshold is not None and health.value <= threshold):
        return "due"
    if DISTRUSTED.intersection(health.flags):
        return "unknown"  # the value may be far off, so being above the threshold says nothing
    if threshold is None:
        return "ok"
    below = margin if health.low is None else CAUTION * (health.value - health.low)
    return "soon" if health.value - below <= threshold else "ok"


@dataclass(frozen=True)
class Refusal:
    """A row that was not taken: whose it was (None where it did not say), why, and when it came."""

    unit: str | None
    reason: str
    received: float


class FleetView:
    """All units, and how they stand; see :func:`status_of` for the first parameters.

    Parameters
    ----------
    silent_after_in_s
        Seconds without a row after which a unit counts as silent; None for :data:`SILENT_PAUSES` times its usual
        pause, and never less than :data:`LEAST_SILENCE_IN_S`.
    """

    def __init__(
        self, threshold: float | None = None, margin: float = 0.0, silent_after_in_s: float | None = None
    ) -> None:
        self.threshold = threshold
        self.margin = margin
        self.silent_after_in_s = silent_after_in_s
        self.units: dict[str, UnitView] = {}
        self.refusals: deque[Refusal] = deque(maxlen=REFUSALS)
        self.refused = 0
        self.log_changes = 0  # of alerts, maintenance and models; the page loads the log again where this has changed
        self._counts: Counter[Status] = Counter()
        self._latest: dict[str, UnitView] = {}  # of each machine
        self._sorted: list[UnitView] | None = None
        self._begun: dict[str, str] = {}  # the life of each machine that a repair began

    def load(self, stream: DurableStream) -> None:
        """Begin with what the state holds."""
        names = stream.names()
        for row in stream.store.latest_rows():
            self._add(UnitView(names[row.unit], row.position, row.received, row.cycle))
        watched = set(names.values())
        for event in stream.store.maintenance.after(0):
            if event.begins in watched:
                self.begin_life(event)
        for number, values in stream.store.latest_values(SPARK):
            if names[number] in self.units:
                self.units[names[number]].spark.extend(round(value, 4) for value in values)
        for number, health in stream.store.latest_healths(1):
            view = self.units.get(names[number])
            if view is not None:
                view.health = replace(health, unit=view.unit)
                self._set_status(view)
        self._sorted = None

    def apply(self, batch: Batch) -> list[UnitView]:
        """Note what became of rows; the units that changed."""
        changed: dict[str, UnitView] = {}
        for update in batch.updates:
            if not update.accepted:
                if update.verdict is not Verdict.DUPLICATE:
                    self.refuse(update.unit if isinstance(update.unit, str) else None, update.reason, batch.received)
                continue
            view = self.units.get(update.unit)
            if view is None:
                view = self._add(UnitView(update.unit, update.position, batch.received))
            elif batch.received > view.received:
                pause = batch.received - view.received
                view.pause_in_s = pause if not view.pause_in_s else 0.9 * view.pause_in_s + 0.1 * pause
            view.position, view.cycle, view.received = update.position, update.cycle, batch.received
            view.silent_since = None
            for health in update.healths:
                self._set_health(view, health)
            if not update.healths and view.health is not None:
                self._set_status(view)
            changed[update.unit] = view
        if changed:
            self._sorted = None
        return list(changed.values())

    def change_model(self, margin: float, healths: Sequence[Health]) -> None:
        """Show what another model says of all units."""
        self.margin = margin
        for health in healths:
            view = self.units.get(health.unit)
            if view is not None:
                self._set_health(view, health)
        self._sorted = None

    def begin_life(self, event: MaintenanceEvent) -> list[UnitView]:
        """Show the life that a repair began, before its first row; the units that changed."""
        self._begun[event.machine] = event.begins
        if event.begins not in self.units:
            self._add(UnitView(event.begins, event.position or 0.0, event.recorded))
        self._sorted = None
        return [self.units[name] for name in (event.unit, event.begins) if name in self.units]

    def receiver(self, unit: str) -> UnitView | None:
        """The unit that rows of this name go to: after a repair its machine's new life."""
        return self.units.get(self._begun.get(unit, unit))

    def refuse(self, unit: str | None, reason: str, received: float) -> None:
        """Note a row that was not taken, so that somebody sees it."""
        self.refused += 1
        shown = None if unit is None else unit[:LONGEST_NAME]  # what was refused may be as long as a request
        self.refusals.append(Refusal(shown, reason[:LONGEST_REASON], received))

    def note_silence(self, now: float) -> list[UnitView]:
        """Mark units from which no row has come for too long; those that changed."""
        changed = []
        for view in self.units.values():
            if view.silent_since is None and now - view.received > self._silence_in_s(view):
                view.silent_since = view.received
                self._set_status(view)
                changed.append(view)
        if changed:
            self._sorted = None
        return changed

    def _silence_in_s(self, view: UnitView) -> float:
        if self.silent_after_in_s is not None:
            return self.silent_after_in_s
        return max(SILENT_PAUSES * view.pause_in_s, LEAST_SILENCE_IN_S)

    def forget(self, unit: str) -> None:
        """Show a unit no longer."""
        view = self.units.pop(unit, None)
        if view is None:
            return
        self._counts[view.status] -= 1
        self._sorted = None
        if self._latest.get(view.machine) is view:
            del self._latest[view.machine]
            earlier = [other for other in self.units.values() if other.machine == view.machine]
            if earlier:
                self._latest[view.machine] = max(earlier, key=lambda other: other.life)
                self._set_status(self._latest[view.machine])

    def lives(self, view: UnitView) -> list[str]:
        """Units of the same machine, the first life first."""
        same = [other for other in self.units.values() if other.machine == view.machine]
        return [other.unit for other in sorted(same, key=lambda other: other.life)]

    def _add(self, view: UnitView) -> UnitView:
        machine, life = machine_and_life(view.unit)
        if life > 1 and machine not in self._latest:
            machine, life = view.unit, 1  # a name that happens to end like this, of a machine without a first life
        view.machine, view.life = machine, life
        self.units[view.unit] = view
        self._counts[view.status] += 1
        before = self._latest.get(machine)
        if before is None or before.life < life:
            self._latest[machine] = view
        for other in (before, view):
            if other is not None:
                self._set_status(other)
        return view

    def _set_health(self, view: UnitView, health: Health) -> None:
        if health.value is not None:
            view.spark.append(round(health.value, 4))
        view.health = health
        self._set_status(view)

    def _set_status(self, view: UnitView) -> None:
        status = status_of(view.health, self.threshold, self.margin)
        if self._latest.get(view.machine) is not view:
            status = "ended"
        elif view.silent_since is not None and status == "ok":
            status = "unknown"  # it was fine when it was last heard of
        self._counts[view.status] -= 1
        view.status = status
        self._counts[status] += 1

    def matching(
        self, search: str = "", status: Status | None = None, site: str | None = None, sort: str = "urgency"
    ) -> list[UnitView]:
        """Machines that match, in order; ended lives are not among them.

        Parameters
        ----------
        search
            Part of the name.
        site
            What the name begins with before its first "/".
        sort
            A name of :data:`SORTS`; "-" before it turns the order round.
        """
        if self._sorted is None:
            current = (view for view in self.units.values() if view.status != "ended")
            self._sorted = sorted(current, key=SORTS["urgency"])
        text = search.casefold()
        matching = [
            view
            for view in self._sorted
            if text in view.unit.casefold() and status in (None, view.status) and site in (None, view.site)
        ]
        if sort != "urgency":
            matching.sort(key=SORTS[sort.removeprefix("-")], reverse=sort.startswith("-"))
        return matching

    def page(self, matching: Sequence[UnitView], sort: str, limit: int, cursor: str) -> tuple[list[UnitView], str]:
        """A part of machines in order, and the cursor of the next; empty where this is the last.

        A cursor holds the place of a part's last machine in the order. It keeps its meaning while machines come, go and
        change places.
        """
        key, begin = SORTS[sort.removeprefix("-")], 0
        if cursor:
            after, back = _read_cursor(cursor, sort), sort.startswith("-")

            def comes_later(view: UnitView) -> bool:
                return key(view) < after if back else key(view) > after

            try:
                begin = bisect(matching, False, key=comes_later)
            except TypeError:
                raise DataError("this cursor is not one of this service") from None
        part = list(matching[begin : begin + limit])
        more = begin + limit < len(matching)
        return part, _cursor(sort, key(part[-1])) if more else ""

    def sites(self) -> list[str]:
        """What names of machines begin with before their first "/"."""
        return sorted({view.site for view in self.units.values() if view.site and view.status != "ended"})[:MOST_SITES]

    def counts(self) -> dict[str, int]:
        """Units by status."""
        return {status: self._counts[status] for status in STATUSES}

    def flagged(self) -> int:
        """Units whose health is less trustworthy."""
        return sum(
            1
            for view in self.units.values()
            if view.status != "ended" and view.health is not None and set(view.health.flags) - {AT_CAP, WORN}
        )
