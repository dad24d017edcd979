"""The HTTP interface of the calendar: which machines are due for maintenance, and when."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from fastapi import FastAPI, Query, Response
from pydantic_core import to_json

from fedprognos.prognosis import Health
from fedprognos.service.due_dates import Clock, due_date
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.fleet_view import SLOPE_VALUES, Status, forecast


@dataclass(frozen=True)
class CalendarEntry:
    """When maintenance of a machine is due.

    Parameters
    ----------
    date, earliest, latest
        As in the unit's `due_date`; all None where it is due now, but its value is not to be trusted.
    """

    unit: str
    status: Status
    date: str | None
    earliest: str | None
    latest: str | None


@dataclass(frozen=True)
class CalendarAnswer:
    """Machines that are due now, then those with a date, the earliest first.

    Parameters
    ----------
    total
        Machines that are due or have a date, also those that are not listed.
    undated
        Machines that are not due and have no date.
    """

    now: float
    total: int
    undated: int
    entries: list[CalendarEntry]


def add_calendar_routes(app: FastAPI, service: FleetService) -> None:
    """Put the route on the application."""
    view, stream = service.view, service.stream

    def latest_healths() -> dict[str, list[Health]]:
        """What a slope is taken from, by unit."""
        names, healths = stream.names(), defaultdict[str, list[Health]](list)
        for number, health in stream.store.latest_healths(SLOPE_VALUES):
            healths[names[number]].append(replace(health, unit=names[number]))
        return healths

    @app.get("/v1/calendar", response_model=CalendarAnswer)
    async def get_calendar(
        q: Annotated[str, Query(max_length=256, description="Part of the name")] = "",
        site: Annotated[
            str | None, Query(max_length=256, description='What names begin with before their first "/"')
        ] = None,
        limit: Annotated[int, Query(ge=1, le=20_000)] = 200,
    ) -> Response:
        """When maintenance of each machine is due: what is due now first, then by date."""
        recipe = service.predictor.recipe  # of the model in use; another one may be promoted
        time_measure = "" if recipe.cycle is not None else recipe.time_measure
        now = time.time()
        rates = await service.batcher.ask(partial(stream.rates, now))
        units = view.matching(q, None, site)
        if recipe.task == "rul":  # needs the latest value only, which is at hand
            healths = {unit.unit: [unit.health] for unit in units if unit.health is not None}
        else:
            healths = await service.batcher.ask(latest_healths)
        entries: list[CalendarEntry] = []
        for unit in units:
            expected = forecast(recipe.task, healths.get(unit.unit, []), view.threshold, recipe.ahead)
            due = due_date(expected, Clock.from_view(unit, time_measure, rates.get(unit.unit), now))
            if due is not None and due.date is not None:
                entries.append(CalendarEntry(unit.unit, unit.status, due.date, due.earliest, due.latest))
            elif unit.status == "due":
                entries.append(CalendarEntry(unit.unit, unit.status, None, None, None))
        entries.sort(key=lambda entry: (entry.status != "due", entry.date or "", entry.unit))
        answer = CalendarAnswer(now, len(entries), len(units) - len(entries), entries[:limit])
        return Response(to_json(answer), media_type="application/json")
