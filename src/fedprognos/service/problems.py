"""Errors as clients see them: a status and a sentence."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from fedprognos.errors import DataError, OutputError
from fedprognos.service.batching import BusyError
from fedprognos.service.guards import TooLargeError, refuse
from fedprognos.service.metrics import Metrics
from fedprognos.service.options import ServiceOptions


def add_problems(app: FastAPI, options: ServiceOptions, metrics: Metrics) -> None:
    """Handlers that turn errors into answers."""

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
