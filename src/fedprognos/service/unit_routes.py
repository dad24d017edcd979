"""The HTTP interface of units: rows in, health and dates out, one by one or as a fleet."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from fedprognos.errors import DataError
from fedprognos.prognosis import Explanation, Health, Row, Verdict, dates, explain
from fedprognos.service import json_shapes
from fedprognos.service.due_dates import Clock, due_date
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.fleet_view import SLOPE_VALUES, FleetView, Status, UnitView, forecast
from fedprognos.service.http_guards import only_known_parameters
from fedprognos.service.json_shapes import PROBLEM, parse, read_row, refuse, refuse_unit, respond
from fedprognos.service.maintenance import MaintenanceReport, Recorded
from fedprognos.service.replacement import Replacement, best_replacement
from fedprognos.tables import SECONDS

UNREADABLE: dict[int | str, dict[str, Any]] = {422: {"description": "A parameter cannot be read", **PROBLEM}}


ShownStatus = Literal["due", "unknown", "soon", "ok", "warming-up"]
Order = Literal["urgency", "-urgency", "unit", "-unit", "health", "-health", "received", "-received"]


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


class _Direct(APIRoute):
    """A route that hands the raw request to its function: what FastAPI does around it costs more than a row does."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = answer


def add_unit_routes(app: FastAPI, service: FleetService) -> None:
    """Put the routes on the application."""
    _add_rows(app, service)
    _add_answers(app, service)
    _add_calendar(app, service)


def _add_rows(app: FastAPI, service: FleetService) -> None:
    no_row_taken = {"model": json_shapes.RowsAnswer, "description": "No row was taken"}
    conflict = {**no_row_taken, "description": "No row was taken: one was there already, with other values"}
    body = json_shapes.rows_body(service.predictor.recipe, service.options.max_rows, service.predictor.policies)

    async def post_rows(request: Request) -> Response:
        """Send one row, or a list of rows of any units; answered when the accepted ones are on disk.

        Rows are judged one by one. A row sent again is a duplicate, which does no harm.
        """
        only_known_parameters(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return refuse(415, "send application/json")
        given = parse(await request.body())
        if not 1 <= len(given) <= service.options.max_rows:
            return refuse(400, f"send 1 to {service.options.max_rows} rows, not {len(given)}")
        read = [read_row(value) for value in given]
        rows = [row for row in read if isinstance(row, Row)]
        updates = iter(await service.batcher.submit(rows) if rows else ())
        for reason in (row for row in read if isinstance(row, str)):
            service.view.refuse(None, reason, time.time())
        service.metrics.refused(len(read) - len(rows))
        results = [json_shapes.row_result(row if isinstance(row, str) else next(updates)) for row in read]
        accepted = sum(result.result is Verdict.ACCEPTED for result in results)
        duplicates = sum(result.result is Verdict.DUPLICATE for result in results)
        answer = json_shapes.RowsAnswer(accepted, duplicates, len(results) - accepted - duplicates, results)
        if accepted or duplicates:
            return respond(answer)
        return respond(answer, 409 if any(result.result is Verdict.CONFLICT for result in results) else 422)

    app.router.add_api_route(
        "/v1/rows",
        post_rows,
        methods=["POST"],
        response_model=json_shapes.RowsAnswer,
        responses={409: conflict, 422: no_row_taken},
        openapi_extra={"requestBody": body},
        route_class_override=_Direct,
    )


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


def _add_answers(app: FastAPI, service: FleetService) -> None:
    view, inputs = service.view, service.inputs
    cyclic, layout = inputs.cyclic, inputs.table

    @app.get("/v1/units", response_model=json_shapes.UnitsAnswer, responses=UNREADABLE)
    async def get_units(
        chosen: Chosen,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
        cursor: Annotated[str, Query(max_length=2000, description="`next` of the part before")] = "",
    ) -> Response:
        """Units, the most urgent first, or in another order; a part at a time."""
        units, sort = chosen
        part, following = view.page(units, sort, limit, cursor)
        return respond(json_shapes.UnitsAnswer(len(units), time.time(), part, following or None))

    @app.get("/v1/units.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}, **UNREADABLE})
    async def get_csv(chosen: Chosen) -> Response:
        """All units that match, for spreadsheets."""
        headers = {"content-disposition": 'attachment; filename="fleet.csv"'}
        return Response(json_shapes.fleet_csv(chosen[0]), media_type="text/csv; charset=utf-8", headers=headers)

    @app.get("/v1/units/{unit:path}", response_model=json_shapes.UnitAnswer)
    async def get_unit(unit: str) -> Response:
        """One unit: its health, history and forecast, and its latest rows."""
        unit_view = view.units.get(unit)
        if unit_view is None:
            return refuse_unit(unit)
        recipe = service.predictor.recipe
        healths, rows = await service.batcher.ask(partial(service.stream.history, unit))
        log = service.stream.store.maintenance
        done = await service.batcher.ask(partial(log.latest, 100, machine=unit_view.machine))
        now = time.time()
        rate = await service.batcher.ask(partial(service.stream.rate, unit, now))
        date, end_date = None, None
        ended = unit_view.status == "ended"
        if unit_view.health is not None and not cyclic:
            date, end_date = dates(unit_view.health, recipe.time_measure, recipe.ahead)
        expected = None if ended else forecast(recipe.task, healths, view.threshold, recipe.ahead)
        clock = Clock.from_view(unit_view, "" if cyclic else recipe.time_measure, rate, now)
        answer = json_shapes.unit_answer(
            unit_view,
            now=now,
            lives=view.lives(unit_view),
            date=date,
            end_date=None if ended else end_date,
            history=healths,
            forecast=expected,
            due_date=due_date(expected, clock),
            replacement=await _replacement(service, unit_view, clock),
            samples=[json_shapes.sample(row, recipe) for row in rows],
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

    @app.get("/v1/fleet", response_model=json_shapes.FleetAnswer)
    async def get_fleet() -> Response:
        """The fleet in numbers, and what its model is about."""
        recipe = service.predictor.recipe
        answer = json_shapes.FleetAnswer(
            units=sum(view.counts().values()),
            counts=view.counts(),
            flagged=view.flagged(),
            threshold=view.threshold,
            margin=view.margin,
            task=recipe.task,
            target=recipe.target,
            target_measure="" if recipe.relative else recipe.target_measure,
            position_name="cycle" if cyclic or recipe.time_measure == "cycles" else recipe.time_measure,
            cyclic=cyclic,
            time_measure=recipe.time_measure,
            time_in_s=None if cyclic else SECONDS.get(recipe.time_measure),
            filled=sum(service.stream.stream.filled.values()),
            refused=view.refused,
            refusals=list(view.refusals),
            sites=view.sites(),
            normal=json_shapes.normal_levels(recipe),
            table=None if layout is None else layout.model_dump(mode="json", exclude_defaults=True),
            policies=service.predictor.policies,
            sensors=recipe.sensors,
            settings=recipe.settings,
            cap=recipe.cap,
            coverage=None if service.predictor.calibration is None else service.options.coverage,
            no_intervals=service.predictor.no_intervals,
            signed_by=service.predictor.signed_by,
            origin=json_shapes.ModelOrigin.from_provenance(service.predictor.provenance),
            now=time.time(),
        )
        return respond(answer)


async def _replacement(service: FleetService, unit: UnitView, clock: Clock) -> Replacement | None:
    """The best moment to replace a unit; None where costs are not given, or nothing can be said."""
    calibration = service.predictor.calibration
    if service.costs is None or calibration is None or unit.status == "ended":
        return None
    first = await service.batcher.ask(partial(service.stream.first_position, unit.unit))
    return None if first is None else best_replacement(service.costs, calibration, unit.health, first, clock)


def _add_calendar(app: FastAPI, service: FleetService) -> None:
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
        return respond(CalendarAnswer(now, len(entries), len(units) - len(entries), entries[:limit]))
