"""The HTTP interface of units: where they stand, one by one or as a list, why, and what they are expected to do."""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response

from fedprognos.errors import DataError
from fedprognos.features import Recipe
from fedprognos.files import spreadsheet_safe
from fedprognos.prognosis import Explanation, Health, dates, explain
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.fleet_view import FleetView, UnitView
from fedprognos.service.forecasts import Clock, DueDate, Forecast, Replacement, best_replacement, due_date, forecast
from fedprognos.service.http_answers import PROBLEM, refuse, refuse_unit, respond
from fedprognos.service.maintenance import MaintenanceEvent, MaintenanceReport, Recorded
from fedprognos.service.row_store import StoredRow

UNREADABLE: dict[int | str, dict[str, Any]] = {422: {"description": "A parameter cannot be read", **PROBLEM}}
ShownStatus = Literal["due", "unknown", "soon", "ok", "warming-up"]
Order = Literal["urgency", "-urgency", "unit", "-unit", "health", "-health", "received", "-received"]


@dataclass(frozen=True)
class UnitsAnswer:
    """A part of the fleet in the order asked for.

    Parameters
    ----------
    total
        Units that match, in all parts together.
    next
        Cursor of the next part; None where this is the last.
    """

    total: int
    now: float
    units: list[UnitView]
    next: str | None


@dataclass(frozen=True)
class Sample:
    """A row as it was taken."""

    position: float
    cycle: int | None
    received: float
    sensors: dict[str, float]
    settings: dict[str, float]


@dataclass(slots=True, eq=False, kw_only=True)
class UnitAnswer(UnitView):
    """A unit with its past and what is expected of it.

    Parameters
    ----------
    lives
        Units of the same machine, the first life first.
    maintenance
        What was done to the machine, the latest first.
    date, end_date
        Where positions are dates: of its health, and when the remaining life is over. No end is told at the cap, nor
        under a flag that says that the value is not to be trusted.
    due_date
        The forecast by the calendar; None where the forecast has no position at which maintenance is due.
    replacement
        The best moment to replace it; None where costs are not given, or the remaining life does not give one.
    """

    now: float
    lives: list[str]
    date: str | None
    end_date: str | None
    history: list[Health]
    forecast: Forecast | None
    due_date: DueDate | None
    replacement: Replacement | None
    samples: list[Sample]
    maintenance: list[MaintenanceEvent]


def _matching(
    request: Request,
    q: Annotated[str, Query(max_length=256, description="Part of the name")] = "",
    status: Annotated[ShownStatus | None, Query(description="Units with this status only")] = None,
    site: Annotated[
        str | None, Query(max_length=256, description='What names begin with before their first "/"')
    ] = None,
    sort: Annotated[Order, Query(description='"-" turns the order round')] = "urgency",
) -> tuple[list[UnitView], str]:
    """The units that a request asks for, and their order."""
    view: FleetView = request.app.state.service.view
    return view.matching(q, status, site, sort), sort


Chosen = Annotated[tuple[list[UnitView], str], Depends(_matching)]


def add_unit_routes(app: FastAPI, service: FleetService) -> None:
    """Put the routes on the application."""
    view, stream, cyclic = service.view, service.stream, service.inputs.cyclic

    @app.get("/v1/units", response_model=UnitsAnswer, responses=UNREADABLE)
    async def get_units(
        chosen: Chosen,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
        cursor: Annotated[str, Query(max_length=2000, description="`next` of the part before")] = "",
    ) -> Response:
        """Units, the most urgent first, or in another order; a part at a time."""
        units, sort = chosen
        part, following = view.page(units, sort, limit, cursor)
        return respond(UnitsAnswer(len(units), time.time(), part, following or None))

    @app.get("/v1/units.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}, **UNREADABLE})
    async def get_csv(chosen: Chosen) -> Response:
        """All units that match, for spreadsheets."""
        headers = {"content-disposition": 'attachment; filename="fleet.csv"'}
        return Response(_csv(chosen[0]), media_type="text/csv; charset=utf-8", headers=headers)

    @app.get("/v1/units/{unit:path}", response_model=UnitAnswer)
    async def get_unit(unit: str) -> Response:
        """One unit: its health, history and forecast, and its latest rows."""
        unit_view = view.units.get(unit)
        if unit_view is None:
            return refuse_unit(unit)
        recipe, now, ended = service.predictor.recipe, time.time(), unit_view.status == "ended"

        def read() -> tuple[tuple[list[Health], list[StoredRow]], list[MaintenanceEvent], float | None, float | None]:
            done = stream.store.maintenance.latest(100, machine=unit_view.machine)
            return stream.history(unit), done, stream.rate(unit, now), stream.first_position(unit)

        (healths, rows), done, rate, first = await service.batcher.ask(read)
        date = end_date = expected = replacement = None
        clock = Clock.from_view(unit_view, "" if cyclic else recipe.time_measure, rate, now)
        if unit_view.health is not None and not cyclic:
            date, end_date = dates(unit_view.health, recipe.time_measure, recipe.ahead)
        if not ended:
            expected = forecast(recipe.task, healths, view.threshold, recipe.ahead)
            calibration = service.predictor.calibration
            if service.costs is not None and calibration is not None and first is not None:
                replacement = best_replacement(service.costs, calibration, unit_view.health, first, clock)
        answer = UnitAnswer(
            **{field.name: getattr(unit_view, field.name) for field in fields(unit_view)},
            now=now,
            lives=view.lives(unit_view),
            date=date,
            end_date=None if ended else end_date,
            history=healths,
            forecast=expected,
            due_date=due_date(expected, clock),
            replacement=replacement,
            samples=[_sample(row, recipe) for row in rows],
            maintenance=done,
        )
        return respond(answer)

    @app.get(
        "/v1/why/{unit:path}",
        response_model=Explanation,
        responses={409: {"description": "There is no health to explain yet", **PROBLEM}},
    )
    async def get_why(unit: str) -> Response:
        """Why the unit's health is what it is: what each sensor changed since the first row that is stored."""
        rows = await service.batcher.ask(partial(service.stream.rows, unit))
        if rows is None:
            return refuse_unit(unit)
        try:  # beside the stream's thread, so that no row waits for it
            return respond(await asyncio.to_thread(explain, service.predictor, rows))
        except DataError as error:
            return refuse(409, error.what)

    @app.post("/v1/acknowledged/{unit:path}", status_code=204, response_class=Response)
    async def acknowledge_unit(unit: str) -> Response:
        """Somebody has looked at the unit: its latched flags are dropped. A fault that lasts is flagged again."""
        if unit not in view.units:
            return refuse_unit(unit)
        report = MaintenanceReport(unit=unit, kind="acknowledgement", at=datetime.now(UTC), who="not given")
        (result,) = await service.record([report])
        return refuse_unit(unit) if result.result is Recorded.REFUSED else Response(status_code=204)

    @app.delete("/v1/units/{unit:path}", status_code=204, response_class=Response)
    async def delete_unit(unit: str) -> Response:
        """Forget a unit: its window, rows and healths, here and on disk. Rows sent later begin it anew."""
        return Response(status_code=204) if await service.forget(unit) else refuse_unit(unit)


def _sample(row: StoredRow, recipe: Recipe) -> Sample:
    """A stored row with the names of its columns."""
    values, split = row.values, len(recipe.sensors)
    sensors = dict(zip(recipe.sensors, values[:split], strict=True))
    return Sample(
        row.position, row.cycle, row.received, sensors, dict(zip(recipe.settings, values[split:], strict=True))
    )


def _csv(units: Iterable[UnitView]) -> str:
    """Units as a table for spreadsheets."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("unit", "status", "position", "cycle", "value", "low", "high", "flags", "reason", "received"))
    for view in units:
        health = view.health or Health(view.unit, view.position, None)
        flags, received = " ".join(health.flags), datetime.fromtimestamp(view.received, UTC).isoformat("T", "seconds")
        numbers = (view.position, view.cycle, health.value, health.low, health.high)
        reason = spreadsheet_safe(health.reason)
        lines.writerow((spreadsheet_safe(view.unit), view.status, *numbers, flags, reason, received))
    return text.getvalue()
