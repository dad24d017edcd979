"""The fleet as clients see it: where every unit stands, most urgent first, and when maintenance will be due.

It lives in memory and is used from one thread.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedprognos.prognosis.health import Health
from fedprognos.prognosis.sensor_faults import DISTRUSTED
from fedprognos.service.durable_stream import Batch, DurableStream

Status = Literal["due", "soon", "unknown", "ok", "warming-up"]
STATUSES: tuple[Status, ...] = ("due", "soon", "unknown", "ok", "warming-up")
"""In order of urgency."""
SPARK = 40
"""Values of a sparkline."""
SLOPE_VALUES, LEAST_SLOPE_VALUES = 40, 5
"""Latest values that a slope of SoH is taken from, and the fewest that give one."""


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


@dataclass(frozen=True)
class Forecast:
    """A straight line from the latest health.

    Parameters
    ----------
    slope
        Change of health per position.
    due
        Position at which the line meets the threshold; None where it does not, or there is no threshold.
    due_low, due_high
        The same for the ends of the interval: earliest and latest; None where they are not bounded.
    basis
        What the line rests on, in words.
    """

    slope: float
    due: float | None
    due_low: float | None
    due_high: float | None
    basis: str


def forecast(task: str, healths: Sequence[Health], threshold: float | None) -> Forecast | None:
    """Carry the latest health on; None where nothing can be said.

    A remaining useful life falls by one a cycle by definition. A state of health falls as it did lately: the median
    of the slopes between all pairs of the last values (Theil, 1950; Sen, 1968), which single odd values do not move.

    Examples
    --------
    >>> forecast("rul", [Health("pump", 100, 40.0, 30.0, 55.0)], 25.0)
    Forecast(slope=-1.0, due=115.0, due_low=105.0, due_high=130.0, basis='one cycle less with every cycle')
    """
    known = [h for h in healths if h.value is not None]
    if not known or known[-1] is not healths[-1]:
        return None
    last = known[-1]
    if task == "rul":
        slope, basis = -1.0, "one cycle less with every cycle"
    else:
        recent = known[-SLOPE_VALUES:]
        if len(recent) < LEAST_SLOPE_VALUES:
            return None
        slope, basis = _median_slope(recent), f"as over the last {len(recent)} values"

    def meets(value: float | None) -> float | None:
        if value is None or threshold is None or slope >= 0:
            return None
        return last.position + max(value - threshold, 0.0) / -slope

    return Forecast(slope, meets(last.value), meets(last.low), meets(last.high), basis)


def _median_slope(healths: Sequence[Health]) -> float:
    x = np.array([h.position for h in healths])
    y = np.array([h.value for h in healths], dtype=np.float64)
    first, second = np.triu_indices(len(x), 1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))
