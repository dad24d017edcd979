"""The HTTP application: its routes, the page's files, and errors as answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import PurePath
from typing import Any, Literal

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from fedprognos import __version__
from fedprognos.errors import DataError, OutputError
from fedprognos.prognosis import Predictor
from fedprognos.service.batching import BusyError
from fedprognos.service.fleet_routes import add_fleet_routes
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.http_answers import PROBLEM, refuse, respond
from fedprognos.service.http_guards import HEALTH_CHECKS, Guard, TooLargeError, only_known_parameters
from fedprognos.service.log_routes import add_log_routes
from fedprognos.service.model_routes import add_model_routes
from fedprognos.service.row_routes import add_row_routes
from fedprognos.service.service_metrics import ServiceMetrics
from fedprognos.service.service_options import ServiceOptions
from fedprognos.service.unit_routes import add_unit_routes

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": HTTPStatus(code).phrase, **PROBLEM} for code in (400, 401, 403, 404, 405, 413, 415, 429, 503)
}
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE = files("fedprognos.service") / "page"
FILES = {
    "/" if file.name == "index.html" else f"/{file.name}": file
    for file in PAGE.iterdir()
    if PurePath(file.name).suffix in CONTENT_TYPES
}
"""The page's files by their addresses."""


@dataclass(frozen=True)
class Ready:
    """Whether rows can be taken."""

    status: Literal["alive", "ready"]


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
        dependencies=[Depends(only_known_parameters)],
    )
    app.state.service = service
    app.add_middleware(Guard, options=options, files=frozenset(FILES))
    add_row_routes(app, service)
    add_unit_routes(app, service)
    add_fleet_routes(app, service)
    add_log_routes(app, service)
    add_model_routes(app, service)
    _add_operation(app, service)
    _add_page(app)
    _add_problems(app, options, service.metrics)
    _add_security(app, options)
    return app


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


def _add_operation(app: FastAPI, service: FleetService) -> None:
    @app.get("/v1/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
    async def get_events() -> Response:
        """Server-sent events: `update` with units that changed or were forgotten, `reload` where they are too many."""
        if service.events.full:
            return refuse(503, "too many clients follow events", {"retry-after": "30"})
        return StreamingResponse(service.events.follow(), media_type="text/event-stream")

    @app.get("/healthz", response_model=Ready)
    async def healthz() -> Response:
        """Whether the process lives."""
        return respond(Ready("alive"))

    @app.get("/readyz", response_model=Ready)
    async def readyz() -> Response:
        """Whether rows can be taken and stored."""
        problem = await service.problem()
        return refuse(503, problem) if problem else respond(Ready("ready"))

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus metrics."""
        service.metrics.followers.set(service.events.followers)
        service.metrics.waiting.set(service.batcher.waiting)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    """Routes for the page; its files are read once."""
    for path, file in FILES.items():
        kind = CONTENT_TYPES[PurePath(file.name).suffix]
        app.router.add_route(path, partial(_served, file.read_bytes(), kind), include_in_schema=False)


async def _served(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


def _add_problems(app: FastAPI, options: ServiceOptions, metrics: ServiceMetrics) -> None:
    """Handlers that turn exceptions into JSON answers."""

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> Response:
        return refuse(503, error.what, {"retry-after": "1"})

    @app.exception_handler(OutputError)
    async def not_stored(_: Request, error: OutputError) -> Response:
        metrics.failed.inc()
        return refuse(503, f"{error.what}; {error.hint}", {"retry-after": "10"})

    @app.exception_handler(TooLargeError)
    async def too_large(_: Request, __: TooLargeError) -> Response:
        detail = f"the body is larger than {options.max_body_in_bytes} bytes"
        return refuse(413, detail, {"connection": "close"})

    @app.exception_handler(DataError)
    async def bad_data(_: Request, error: DataError) -> Response:
        return refuse(400, error.what)

    @app.exception_handler(RequestValidationError)
    async def bad_query(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return refuse(422, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> Response:
        return refuse(error.status_code, str(error.detail), dict(error.headers or {}))
