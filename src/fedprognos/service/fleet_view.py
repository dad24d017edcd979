"""The fleet as clients see it: the latest of every unit, most urgent first. Lives in memory, one thread."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from fedprognos.prognosis.health import Health
from fedprognos.service.keeper import Keeper, Outcome

Status = Literal["due", "soon", "unknown", "ok", "warming-up"]
STATUSES: tuple[Status, ...] = ("due", "soon", "unknown", "ok", "warming-up")
"""In order of urgency."""
SPARK = 40
"""Values of a sparkline."""


@dataclass(slots=True, eq=False)
class UnitView:
    """The latest of one unit.

    Parameters
    ----------
    received
        When its last row came, in seconds since 1970 by this machine's clock.
    spark
        Its latest values, oldest first.
    """

    name: str
    position: float
    received: float
    cycle: int | None = None
    health: Health | None = None
    status: Status = "warming-up"
    spark: deque[float] = field(default_factory=lambda: deque(maxlen=SPARK))

    @property
    def urgency(self) -> tuple[int, float, str]:
        """Sorts the most urgent first."""
        value = self.health.value if self.health is not None else None
        return STATUSES.index(self.status), math.inf if value is None else value, self.name


def status_of(health: Health | None, threshold: float | None) -> Status:
    """How urgent a health is.

    Examples
    --------
    >>> status_of(Health("a", 1, 40.0, 20.0, 60.0), threshold=25.0)
    'soon'
    >>> status_of(Health("a", 1, 20.0), threshold=25.0)
    'due'
    """
    if health is None or health.state == "warming-up":
        return "warming-up"
    if health.state == "cannot-say" or health.value is None:
        return "unknown"
    if threshold is None:
        return "ok"
    if health.value <= threshold:
        return "due"
    return "soon" if health.low is not None and health.low <= threshold else "ok"


class FleetView:
    """All units, and how they stand.

    Parameters
    ----------
    threshold
        Health at or below which maintenance is due.
    """

    def __init__(self, threshold: float | None = None) -> None:
        self.threshold = threshold
        self.units: dict[str, UnitView] = {}
        self._counts: Counter[Status] = Counter()
        self._sorted: list[UnitView] | None = None

    def load(self, keeper: Keeper) -> None:
        """Begin with what the state holds."""
        names = keeper.names()
        for row in keeper.store.latest_rows():
            self._add(UnitView(names[row.unit], row.position, row.received, row.cycle))
        for number, _, health in keeper.store.latest_healths(SPARK):
            view = self.units.get(names[number])
            if view is not None:
                self._set_health(view, Health(**{**_parts(health), "unit": view.name}))
        self._sorted = None

    def apply(self, outcomes: Iterable[Outcome]) -> list[UnitView]:
        """Note what became of rows; the units that changed."""
        changed: dict[str, UnitView] = {}
        for outcome in outcomes:
            if outcome.result != "accepted":
                continue
            view = self.units.get(outcome.unit)
            if view is None:
                view = self._add(UnitView(outcome.unit, outcome.position, outcome.received))
            view.position, view.cycle, view.received = outcome.position, outcome.cycle, outcome.received
            if outcome.health is not None:
                self._set_health(view, outcome.health)
            changed[outcome.unit] = view
        if changed:
            self._sorted = None
        return list(changed.values())

    def forget(self, unit: str) -> None:
        """Show a unit no longer."""
        view = self.units.pop(unit, None)
        if view is not None:
            self._counts[view.status] -= 1
            self._sorted = None

    def _add(self, view: UnitView) -> UnitView:
        self.units[view.name] = view
        self._counts[view.status] += 1
        return view

    def _set_health(self, view: UnitView, health: Health) -> None:
        if health.value is not None:
            view.spark.append(health.value)
        view.health = health
        self._counts[view.status] -= 1
        view.status = status_of(health, self.threshold)
        self._counts[view.status] += 1

    def ordered(self) -> list[UnitView]:
        """All units, the most urgent first."""
        if self._sorted is None:
            self._sorted = sorted(self.units.values(), key=lambda view: view.urgency)
        return self._sorted

    def page(self, limit: int, offset: int, search: str = "") -> tuple[int, list[UnitView]]:
        """How many units match, and a part of them."""
        found = self.ordered()
        if search:
            text = search.casefold()
            found = [view for view in found if text in view.name.casefold()]
        return len(found), found[offset : offset + limit]

    def counts(self) -> dict[str, int]:
        """Units by status."""
        return {status: self._counts[status] for status in STATUSES}

    def flagged(self) -> int:
        """Units whose health is less trustworthy."""
        return sum(1 for view in self.units.values() if view.health is not None and view.health.flags)


def health_json(health: Health) -> dict[str, Any]:
    """A health as clients see it."""
    return {
        "position": health.position,
        "value": health.value,
        "low": health.low,
        "high": health.high,
        "state": health.state,
        "reason": health.reason,
        "flags": list(health.flags),
    }


def summary_json(view: UnitView) -> dict[str, Any]:
    """A unit as clients see it."""
    return {
        "unit": view.name,
        "status": view.status,
        "position": view.position,
        "cycle": view.cycle,
        "received": view.received,
        "health": None if view.health is None else health_json(view.health),
        "spark": [round(value, 4) for value in view.spark],
    }


def _parts(health: Health) -> dict[str, Any]:
    return {name: getattr(health, name) for name in health.__dataclass_fields__}
