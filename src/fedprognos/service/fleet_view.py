"""The fleet as clients see it: the latest of every unit, most urgent first. Lives in memory, one thread."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Literal

from fedprognos.prognosis.faults import DISTRUSTED
from fedprognos.prognosis.health import Health
from fedprognos.service.durable_stream import Batch, DurableStream

Status = Literal["due", "soon", "unknown", "ok", "warming-up"]
STATUSES: tuple[Status, ...] = ("due", "soon", "unknown", "ok", "warming-up")
"""In order of urgency."""
SPARK = 40
"""Values of a sparkline."""


@dataclass(slots=True, eq=False)
class UnitView:
    """Where a unit stands.

    Parameters
    ----------
    received
        When its last row came, in seconds since 1970 by this machine's clock.
    spark
        Its latest values, oldest first.
    """

    unit: str
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
        return STATUSES.index(self.status), math.inf if value is None else value, self.unit


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
    >>> status_of(Health("a", 1, 90.0, 80.0, 99.0, flags=("stuck",)), threshold=25.0)
    'unknown'
    """
    if health is None or health.state == "warming-up":
        return "warming-up"
    if health.value is None:
        return "unknown"
    if threshold is None:
        return "ok"
    if health.value <= threshold:
        return "due"
    least = health.value - margin if health.low is None else health.low
    if least <= threshold:
        return "soon"
    return "unknown" if DISTRUSTED.intersection(health.flags) else "ok"


class FleetView:
    """All units, and how they stand; see :func:`status_of` for the parameters."""

    def __init__(self, threshold: float | None = None, margin: float = 0.0) -> None:
        self.threshold = threshold
        self.margin = margin
        self.units: dict[str, UnitView] = {}
        self._counts: Counter[Status] = Counter()
        self._sorted: list[UnitView] | None = None

    def load(self, stream: DurableStream) -> None:
        """Begin with what the state holds."""
        names = stream.names()
        for row in stream.store.latest_rows():
            self._add(UnitView(names[row.unit], row.position, row.received, row.cycle))
        for number, health in stream.store.latest_healths(SPARK):
            view = self.units.get(names[number])
            if view is not None:
                self._set_health(view, replace(health, unit=view.unit))
        self._sorted = None

    def apply(self, batch: Batch) -> list[UnitView]:
        """Note what became of rows; the units that changed."""
        changed: dict[str, UnitView] = {}
        for update in batch.updates:
            if not update.accepted:
                continue
            view = self.units.get(update.unit)
            if view is None:
                view = self._add(UnitView(update.unit, update.position, batch.received))
            view.position, view.cycle, view.received = update.position, update.cycle, batch.received
            for health in update.healths:
                self._set_health(view, health)
            changed[update.unit] = view
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
        self.units[view.unit] = view
        self._counts[view.status] += 1
        return view

    def _set_health(self, view: UnitView, health: Health) -> None:
        if health.value is not None:
            view.spark.append(round(health.value, 4))
        view.health = health
        self._counts[view.status] -= 1
        view.status = status_of(health, self.threshold, self.margin)
        self._counts[view.status] += 1

    def page(self, limit: int, offset: int, search: str = "") -> tuple[int, list[UnitView]]:
        """How many units match, and a part of them, the most urgent first."""
        if self._sorted is None:
            self._sorted = sorted(self.units.values(), key=lambda view: view.urgency)
        found = self._sorted
        if search:
            text = search.casefold()
            found = [view for view in found if text in view.unit.casefold()]
        return len(found), found[offset : offset + limit]

    def counts(self) -> dict[str, int]:
        """Units by status."""
        return {status: self._counts[status] for status in STATUSES}

    def flagged(self) -> int:
        """Units whose health is less trustworthy."""
        return sum(1 for view in self.units.values() if view.health is not None and view.health.flags)
