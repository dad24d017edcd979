"""The HTTP application: its routes, the page's files, and errors as answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from fedprognos import __version__
from fedprognos.errors import DataError, OutputError
from fedprognos.prognosis import Explanation, Predictor, Row, Verdict, dates, explain
from fedprognos.service import json_shapes
from fedprognos.service.alert_routes import add_alert_routes
from fedprognos.service.batching import BusyError
from fedprognos.service.calendar_routes import add_calendar_routes
from fedprognos.service.due_dates import Clock, due_date
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.fleet_view import FleetView, UnitView, forecast
from fedprognos.service.http_guards import HEALTH_CHECKS, Guard, TooLargeError, refuse
from fedprognos.service.json_shapes import PROBLEM, parse, read_row
from fedprognos.service.maintenance import MaintenanceReport, Recorded
from fedprognos.service.maintenance_routes import add_maintenance_routes
from fedprognos.service.model_routes import add_model_routes
from fedprognos.service.replacement import Replacement, best_replacement
from fedprognos.service.service_metrics import ServiceMetrics
from fedprognos.service.service_options import ServiceOptions
from fedprognos.tables import SECONDS

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": HTTPStatus(code).phrase, **PROBLEM} for code in (400, 401, 403, 404, 405, 413, 415, 429, 503)
}
UNREADABLE: dict[int | str, dict[str, Any]] = {422: {"description": "A parameter cannot be read", **PROBLEM}}


SCRIPT = "text/javascript; charset=utf-8"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/words.js": ("words.js", SCRIPT),
    "/link.js": ("link.js", SCRIPT),
    "/chart.js": ("chart.js", SCRIPT),
    "/unit.js": ("unit.js", SCRIPT),
    "/alerts.js": ("alerts.js", SCRIPT),
    "/maintenance.js": ("maintenance.js", SCRIPT),
    "/models.js": ("models.js", SCRIPT),
    "/calendar.js": ("calendar.js", SCRIPT),
    "/page.js": ("page.js", SCRIPT),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}
ShownStatus = Literal["due", "unknown", "soon", "ok", "warming-up"]
Order = Literal["urgency", "-urgency", "unit", "-unit", "health", "-health", "received", "-received"]


class _Direct(APIRoute):
    """A route that hands the raw request to its function: FastAPI's parsing is too slow for many rows."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint


def create_app(predictor: Predictor, options: ServiceOptions) -> FastAPI:
    """The application over a state folder; it locks the folder until it shuts down."""
    options.check()
    service = FleetService(predictor, options)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="fedprognos",
        version=__version__,
        summary="Health of units from the rows they send",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
        redirect_slashes=False,
        dependencies=[Depends(_only_known_parameters)],
    )
    app.state.service = service
    app.add_middleware(Guard, options=options, files=frozenset(FILES))
    _add_rows(app, service)
    _add_answers(app, service)
    add_alert_routes(app, service)
    add_maintenance_routes(app, service)
    add_model_routes(app, service)
    add_calendar_routes(app, service)
    _add_operation(app, service)
    _add_page(app)
    _add_problems(app, options, service.metrics)
    _add_security(app, options)
    return app


def _only_known_parameters(request: Request) -> None:
    """Refuse a request with a parameter that its address does not know: a misspelt filter would show everything."""
    if not request.scope["query_string"]:
        return
    dependant = get_flat_dependant(request.scope["route"].dependant)
    allowed = {parameter.alias for parameter in dependant.query_params}
    unknown = sorted(request.query_params.keys() - allowed)
    if unknown:
        there = f"there are {', '.join(sorted(allowed))}" if allowed else "there are none here"
        raise HTTPException(400, f"unknown parameter '{unknown[0][:40]}'; {there}")


def _add_security(app: FastAPI, options: ServiceOptions) -> None:
    """Say in the OpenAPI document how clients show the token."""
    plain = app.openapi

    def document() -> dict[str, Any]:
        schema = plain()
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        if options.token is not None:
            schema["security"] = [{"token": []}]
            for path in HEALTH_CHECKS:
                schema["paths"][path]["get"]["security"] = []
        return schema

    app.openapi = document  # type: ignore[method-assign]


def _add_rows(app: FastAPI, service: FleetService) -> None:
    no_row_taken = {"model": json_shapes.RowsAnswer, "description": "No row was taken"}
    conflict = {**no_row_taken, "description": "No row was taken: one was there already, with other values"}
    body = json_shapes.rows_body(service.predictor.recipe, service.options.max_rows, service.predictor.policies)

    async def post_rows(request: Request) -> Response:
        """Send one row, or a list of rows of any units; answered when the accepted ones are on disk.

        Rows are judged one by one. A row sent again is a duplicate, which does no harm.
        """
        _only_known_parameters(request)
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
            return _json(answer)
        return _json(answer, 409 if any(result.result is Verdict.CONFLICT for result in results) else 422)

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
        return _json(json_shapes.UnitsAnswer(len(units), time.time(), part, following or None))

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
            return _unknown(unit)
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
        return _json(answer)

    @app.get(
        "/v1/why/{unit:path}",
        response_model=Explanation,
        responses={409: {"description": "There is no health to explain yet", **PROBLEM}},
    )
    async def get_why(unit: str) -> Response:
        """Why the unit's health is what it is: what each sensor changed since the first row that is stored."""
        rows = await service.batcher.ask(partial(service.stream.rows, unit))
        if rows is None:
            return _unknown(unit)
        try:  # beside the stream's thread, so that no row waits for it
            return _json(await asyncio.to_thread(explain, service.predictor, rows))
        except DataError as error:
            return refuse(409, error.what)

    @app.post("/v1/acknowledged/{unit:path}", status_code=204, response_class=Response)
    async def acknowledge_unit(unit: str) -> Response:
        """Somebody has looked at the unit: its latched flags are dropped. A fault that lasts is flagged again."""
        if unit not in view.units:
            return _unknown(unit)
        report = MaintenanceReport(unit=unit, kind="acknowledgement", at=datetime.now(UTC), who="not given")
        (result,) = await service.record([report])
        return _unknown(unit) if result.result is Recorded.REFUSED else Response(status_code=204)

    @app.delete("/v1/units/{unit:path}", status_code=204, response_class=Response)
    async def delete_unit(unit: str) -> Response:
        """Forget a unit: its window, rows and healths, here and on disk. Rows sent later begin it anew."""
        return Response(status_code=204) if await service.forget(unit) else _unknown(unit)

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
        return _json(answer)

    @app.get("/v1/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
    async def get_events() -> Response:
        """Server-sent events: `update` with units that changed or were forgotten, `reload` where they are too many."""
        if service.events.full:
            return refuse(503, "too many clients follow events", {"retry-after": "30"})
        return StreamingResponse(service.events.follow(), media_type="text/event-stream")


async def _replacement(service: FleetService, unit: UnitView, clock: Clock) -> Replacement | None:
    """The best moment to replace a unit; None where costs are not given, or nothing can be said."""
    calibration = service.predictor.calibration
    if service.costs is None or calibration is None or unit.status == "ended":
        return None
    first = await service.batcher.ask(partial(service.stream.first_position, unit.unit))
    return None if first is None else best_replacement(service.costs, calibration, unit.health, first, clock)


def _add_operation(app: FastAPI, service: FleetService) -> None:
    @app.get("/healthz", response_model=json_shapes.Ready)
    async def healthz() -> Response:
        """Whether the process lives."""
        return _json(json_shapes.Ready("alive"))

    @app.get("/readyz", response_model=json_shapes.Ready)
    async def readyz() -> Response:
        """Whether rows can be taken and stored."""
        problem = await service.problem()
        return refuse(503, problem) if problem else _json(json_shapes.Ready("ready"))

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus metrics."""
        service.metrics.followers.set(service.events.followers)
        service.metrics.waiting.set(service.batcher.waiting)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    """Routes for the page; its files are read once."""
    folder = files("fedprognos.service") / "page"
    for path, (name, kind) in FILES.items():
        app.router.add_route(path, partial(_served, (folder / name).read_bytes(), kind), include_in_schema=False)


async def _served(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


def _add_problems(app: FastAPI, options: ServiceOptions, metrics: ServiceMetrics) -> None:
    """Handlers that turn exceptions into JSON answers."""

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> JSONResponse:
        return refuse(503, error.what, {"retry-after": "1"})

    @app.exception_handler(OutputError)
    async def not_stored(_: Request, error: OutputError) -> JSONResponse:
        metrics.failed.inc()
        return refuse(503, f"{error.what}; {error.hint}", {"retry-after": "10"})

    @app.exception_handler(TooLargeError)
    async def too_large(_: Request, __: TooLargeError) -> JSONResponse:
        detail = f"the body is larger than {options.max_body_in_bytes} bytes"
        return refuse(413, detail, {"connection": "close"})

    @app.exception_handler(DataError)
    async def bad_data(_: Request, error: DataError) -> JSONResponse:
        return refuse(400, error.what)

    @app.exception_handler(RequestValidationError)
    async def bad_query(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return refuse(422, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> JSONResponse:
        return refuse(error.status_code, str(error.detail), dict(error.headers or {}))


def _json(value: Any, status: int = 200) -> Response:
    return Response(to_json(value, inf_nan_mode="null"), status, media_type="application/json")


def _unknown(unit: str) -> Response:
    return refuse(404, f"no unit '{unit[:256]}' is watched")
