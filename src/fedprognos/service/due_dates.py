"""When maintenance is due by the calendar: positions turned into dates."""

from __future__ import annotations

from dataclasses import dataclass

from fedprognos.service.arrivals import DAY_IN_S, LEAST_DAYS
from fedprognos.service.fleet_view import Forecast, UnitView
from fedprognos.tables import SECONDS, date_of


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
