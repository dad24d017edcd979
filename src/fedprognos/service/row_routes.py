"""The HTTP interface of rows: what machines send, and what became of each row."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from fedprognos.features import Recipe
from fedprognos.prognosis import LONGEST_NAME, Health, Row, Update, Verdict
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.http_answers import refuse, respond
from fedprognos.service.http_guards import only_known_parameters
from fedprognos.service.row_readers import parse, read_row
from fedprognos.tables import LARGEST_WHOLE, SECONDS

NAME = r"^[^\u0000-\u001f\u007f]+$"


@dataclass(frozen=True)
class RowResult:
    """What became of one row."""

    unit: str | None
    position: float | None
    result: Verdict
    reason: str
    health: Health | None


@dataclass(frozen=True)
class RowsAnswer:
    """What became of the rows, in their order. Accepted ones are on disk."""

    accepted: int
    duplicates: int
    refused: int
    results: list[RowResult]


class _Direct(APIRoute):
    """A route that hands the raw request to its function: what FastAPI does around it costs more than a row does."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = answer


def add_row_routes(app: FastAPI, service: FleetService) -> None:
    """Put the route on the application."""
    no_row_taken = {"model": RowsAnswer, "description": "No row was taken"}
    conflict = {**no_row_taken, "description": "No row was taken: one was there already, with other values"}
    body = _body(service.predictor.recipe, service.options.max_rows, service.predictor.policies)

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
        results = [_result(row if isinstance(row, str) else next(updates)) for row in read]
        accepted = sum(result.result is Verdict.ACCEPTED for result in results)
        duplicates = sum(result.result is Verdict.DUPLICATE for result in results)
        answer = RowsAnswer(accepted, duplicates, len(results) - accepted - duplicates, results)
        if accepted or duplicates:
            return respond(answer)
        return respond(answer, 409 if any(result.result is Verdict.CONFLICT for result in results) else 422)

    app.router.add_api_route(
        "/v1/rows",
        post_rows,
        methods=["POST"],
        response_model=RowsAnswer,
        responses={409: conflict, 422: no_row_taken},
        openapi_extra={"requestBody": body},
        route_class_override=_Direct,
    )


def _result(update: Update | str) -> RowResult:
    """What became of a row, or of something that is no row for the reason given."""
    if isinstance(update, str):
        return RowResult(None, None, Verdict.REFUSED, update, None)
    unit: object = update.unit
    position: object = update.position
    return RowResult(
        unit[:LONGEST_NAME] if isinstance(unit, str) else None,
        position if type(position) in (int, float) and abs(position) <= LARGEST_WHOLE else None,  # type: ignore[arg-type]
        update.verdict,
        update.reason,
        update.health,
    )


def _body(recipe: Recipe, max_rows: int, policies: Sequence[str]) -> dict[str, Any]:
    """OpenAPI request body of rows, with the names of the model's sensors."""
    whole = {"type": "integer", "minimum": -LARGEST_WHOLE, "maximum": LARGEST_WHOLE}
    position: dict[str, Any] = {"type": "number", "minimum": -LARGEST_WHOLE, "maximum": LARGEST_WHOLE}
    if recipe.cycle is None and recipe.time_measure in SECONDS:
        position = {"anyOf": [position, {"type": "string", "format": "date-time"}]}
    row: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["unit", "position", "sensors"],
        "properties": {
            "unit": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": NAME},
            "life": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
            "position": position,
            "sensors": _numbers(recipe.sensors, policies),
            "settings": _numbers(recipe.settings, policies[len(recipe.sensors) :]),
        },
    }
    if recipe.settings:
        row["required"].append("settings")
    if recipe.cycle is not None:
        row["properties"]["cycle"] = whole
        row["properties"]["end"] = {"type": "boolean", "description": "Whether this sample is the cycle's last"}
        row["required"].append("cycle")
    rows = {"type": "array", "minItems": 1, "maxItems": max_rows, "items": row}
    return {"required": True, "content": {"application/json": {"schema": {"anyOf": [row, rows]}}}}


def _numbers(names: tuple[str, ...], policies: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(names),
        "properties": {
            name: {"type": "number" if policy == "refuse" else ["number", "null"]}
            for name, policy in zip(names, policies, strict=False)
        },
    }
