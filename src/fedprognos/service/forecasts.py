"""When maintenance will be due: at which position, on which day, and when a replacement costs least.

The best moment follows from what a breakdown and a planned replacement cost. A life that is ended on purpose after t
more cycles costs N(t) = R + (B - R) F(t) on average, where R is the cost of a replacement, B that of a breakdown, and
F(t) the chance of a breakdown before. It lasts D(t) = age + integral of 1 - F. The best moment has the lowest cost per
cycle, g = N / D (age replacement, Barlow & Proschan, 1965, with the predicted distribution of this machine in place of
the fleet's). Any other moment costs N(t) - g D(t) more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.networks import Calibration
from fedprognos.prognosis import AT_CAP, DISTRUSTED, MID_LIFE, WORN, Health
from fedprognos.service.arrivals import DAY_IN_S, LEAST_DAYS
from fedprognos.tables import SECONDS, date_of

if TYPE_CHECKING:
    from fedprognos.service.fleet_view import UnitView

SLOPE_VALUES, LEAST_SLOPE_VALUES = 40, 5
"""Latest values that a slope of SoH is taken from, and the fewest that give one."""
COST_STEPS, SHOWN_COSTS = 200, 10


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


def forecast(
    task: str, healths: Sequence[Health], threshold: float | None, ahead: float | None = None
) -> Forecast | None:
    """Extrapolate the latest health, which is of a moment `ahead` of its row.

    None without a usable value, as at the cap or with a broken sensor.

    A remaining useful life falls by one a cycle by definition. A state of health keeps its recent slope: the median
    of the slopes between all pairs of the last values (Theil, 1950; Sen, 1968), which outliers hardly change.

    Examples
    --------
    >>> forecast("rul", [Health("pump", 100, 40.0, 30.0, 55.0)], 25.0)
    Forecast(slope=-1.0, due=115.0, due_low=105.0, due_high=130.0, basis='one cycle less with every cycle')
    """
    with_value = [h for h in healths if h.value is not None]
    if not with_value or with_value[-1] is not healths[-1]:
        return None
    last = with_value[-1]
    if {AT_CAP, *DISTRUSTED}.intersection(last.flags):
        return None  # a value at the cap is only a lower bound, and a distrusted value gives no date
    if task == "rul":
        slope, basis = -1.0, "one cycle less with every cycle"
    else:
        recent = _of_one_model(with_value)[-SLOPE_VALUES:]
        if len(recent) < LEAST_SLOPE_VALUES:
            return None
        slope, basis = _median_slope(recent), f"as over the last {len(recent)} values"

    def meets(value: float | None) -> float | None:
        if value is None or threshold is None or slope >= 0:
            return None
        later = (value - threshold) / -slope + (ahead or 0.0)
        return last.position + max(later, 0.0)

    return Forecast(slope, meets(last.value), meets(last.low), meets(last.high), basis)


def _of_one_model(healths: Sequence[Health]) -> Sequence[Health]:
    """The latest healths that one model gave: one that begins to serve says first where units stand already."""
    begins = [k for k in range(1, len(healths)) if healths[k].position <= healths[k - 1].position]
    return healths[begins[-1] if begins else 0 :]


def _median_slope(healths: Sequence[Health]) -> float:
    x = np.array([h.position for h in healths])
    y = np.array([h.value for h in healths], dtype=np.float64)
    first, second = np.triu_indices(len(x), 1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


@dataclass(frozen=True)
class Clock:
    """From positions of one unit to dates.

    Parameters
    ----------
    position, moment
        Where the unit is, and since when, in seconds since 1970.
    rate
        Positions a second; None where it is not known.
    measure
        Of positions that are dates themselves; empty for all others.
    """

    position: float
    moment: float
    rate: float | None
    measure: str = ""

    @classmethod
    def from_view(cls, view: UnitView, time_measure: str, rate: float | None, now: float) -> Clock:
        """The clock of a unit.

        Parameters
        ----------
        time_measure
            Of its positions; empty where they count cycles of many rows.
        rate
            Positions a second, as rows came. Where positions are a time, it is at most that of real time: old rows
            that were sent late came faster than the machine ran.
        """
        position = view.position if view.cycle is None else float(view.cycle)
        if date_of(position, time_measure) is not None:
            return cls(position, view.received, None, time_measure)
        if rate is not None and time_measure in SECONDS:
            rate = min(rate, 1 / SECONDS[time_measure])
        stands = now - view.received >= DAY_IN_S  # and goes on from now at the earliest
        return cls(position, now if stands else view.received, rate)

    def date(self, position: float | None) -> str | None:
        """The date of a position, in UTC; None where it is not known, or not in this century.

        >>> Clock(100.0, 1.8e9, 10 / 86400).date(120.0)
        '2027-01-17T08:00:00'
        """
        if position is None or self.measure:
            return None if position is None else date_of(position, self.measure)
        if position <= self.position:
            return date_of(self.moment, "seconds")
        if self.rate is None:
            return None
        return date_of(self.moment + (position - self.position) / self.rate, "seconds")


@dataclass(frozen=True)
class DueDate:
    """A forecast by the calendar.

    Parameters
    ----------
    date
        When the health meets the threshold, in UTC; None where that is not known.
    earliest, latest
        The same for the ends of the interval; None where they are not bounded.
    per_day
        Positions a day as rows came lately; None where positions are dates, or the rate is not known.
    reason
        Why there is no date; empty where there is one.
    """

    date: str | None
    earliest: str | None
    latest: str | None
    per_day: float | None
    reason: str


def due_date(forecast: Forecast | None, clock: Clock) -> DueDate | None:
    """The dates of a forecast; None where it has no position at which maintenance is due."""
    if forecast is None or forecast.due is None:
        return None
    date = clock.date(forecast.due)
    reason = ""
    if date is None:
        unknown = not clock.measure and clock.rate is None
        reason = f"rows have come on fewer than {LEAST_DAYS} days" if unknown else "it is too far off"
    per_day = None if clock.rate is None else clock.rate * DAY_IN_S
    return DueDate(date, clock.date(forecast.due_low), clock.date(forecast.due_high), per_day, reason)


@dataclass(frozen=True)
class Costs:
    """What a breakdown and a planned replacement cost, in any currency."""

    breakdown: float
    replacement: float


@dataclass(frozen=True)
class WaitingCost:
    """What a replacement at another moment than the best costs more, and the chance of a breakdown before it."""

    position: float
    date: str | None
    cost: float
    breakdown: float


@dataclass(frozen=True)
class Replacement:
    """The best moment to replace a machine.

    Parameters
    ----------
    best
        The moment with the lowest cost per step of the position; None where that is later than the model can say.
    cost_rate
        That cost per step of the position.
    waiting
        Moments from now on, evenly spread.
    """

    best: WaitingCost | None
    cost_rate: float
    waiting: list[WaitingCost]


def best_replacement(
    costs: Costs, calibration: Calibration, health: Health | None, first: float, clock: Clock
) -> Replacement | None:
    """The best moment from a remaining life; None where the life cannot be trusted, or its age is not known.

    Parameters
    ----------
    first
        Position at which the life began.
    """
    unusable = {AT_CAP, MID_LIFE, WORN, *DISTRUSTED}
    if health is None or health.value is None or unusable.intersection(health.flags):
        return None
    scale = float(calibration.scale(np.array([health.value]))[0])
    farthest = health.value + 2 * scale
    if calibration.cap is not None:
        farthest = min(farthest, calibration.cap)
    ahead = np.linspace(0.0, farthest, COST_STEPS + 1)
    failed = calibration.chance_below(health.value, ahead)
    failed = (failed - failed[0]) / max(1 - failed[0], 1e-9)  # the machine runs now
    alive = 1 - failed
    spent = costs.replacement + (costs.breakdown - costs.replacement) * failed
    lived = np.concatenate([[0.0], np.cumsum((alive[1:] + alive[:-1]) / 2 * np.diff(ahead))])
    lived += max(health.position - first, 0.0)
    rates = spent / np.maximum(lived, 1e-9)
    best = int(np.flatnonzero(rates <= rates.min() * (1 + 1e-9))[-1])
    extra = np.maximum(spent - rates[best] * lived, 0.0)

    def moment(k: int) -> WaitingCost:
        position = health.position + float(ahead[k])
        return WaitingCost(position, clock.date(position), float(extra[k]), float(failed[k]))

    shown = [moment(k) for k in range(0, COST_STEPS + 1, COST_STEPS // SHOWN_COSTS)]
    return Replacement(None if best == COST_STEPS else moment(best), float(rates[best]), shown)
