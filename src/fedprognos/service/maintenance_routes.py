"""The HTTP interface of maintenance: what was done to machines, sent as JSON or CSV, and the log of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from fedprognos.errors import DataError
from fedprognos.service.alert_routes import machine_of
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.http_answers import refuse, respond
from fedprognos.service.incoming_rows import parse
from fedprognos.service.maintenance import (
    MaintenanceEvent,
    MaintenanceReport,
    Recorded,
    ReportResult,
    parse_events,
    read_report,
)

MOST_EVENTS = 1000


@dataclass(frozen=True)
class MaintenanceAnswer:
    """What became of events, in their order. Recorded ones are on disk."""

    recorded: int
    duplicates: int
    refused: int
    results: list[ReportResult]


@dataclass(frozen=True)
class MaintenanceLogAnswer:
    """A part of the log, the latest event first."""

    now: float
    events: list[MaintenanceEvent]


def add_maintenance_routes(app: FastAPI, service: FleetService) -> None:
    """Put the routes on the application."""
    log, sensors = service.stream.store.maintenance, service.predictor.recipe.sensors
    none_recorded = {"model": MaintenanceAnswer, "description": "No event was recorded"}

    @app.post(
        "/v1/maintenance",
        response_model=MaintenanceAnswer,
        responses={422: none_recorded},
        openapi_extra={"requestBody": _body()},
    )
    async def post_maintenance(request: Request) -> Response:
        """Say what was done to machines: one event, a list, or a CSV table; answered when they are on disk.

        A repair or replacement begins a new life of the machine. The same event sent again is a duplicate.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await request.body()
        if kind == "application/json":
            given = parse(body)
        elif kind == "text/csv":
            given = _table(body)
        else:
            return refuse(415, "send application/json or text/csv")
        if not 1 <= len(given) <= MOST_EVENTS:
            return refuse(400, f"send 1 to {MOST_EVENTS} events, not {len(given)}")
        read = [read_report(value, sensors) for value in given]
        stored = iter(await service.record([report for report in read if isinstance(report, MaintenanceReport)]))
        results = [ReportResult(Recorded.REFUSED, each) if isinstance(each, str) else next(stored) for each in read]
        counts = Counter(result.result for result in results)
        refused = counts[Recorded.REFUSED]
        answer = MaintenanceAnswer(counts[Recorded.RECORDED], counts[Recorded.DUPLICATE], refused, results)
        return respond(answer, 422 if refused == len(results) else 200)

    @app.get("/v1/maintenance", response_model=MaintenanceLogAnswer)
    async def get_maintenance(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[int, Query(ge=0, le=2**53, description="`id` of the last event shown")] = 0,
        unit: Annotated[str, Query(max_length=256, description="Events of its machine only")] = "",
    ) -> Response:
        """What was done to machines, the latest first."""
        machine = machine_of(service, unit) if unit else None
        events = await service.batcher.ask(lambda: log.latest(limit, before or None, machine))
        return respond(MaintenanceLogAnswer(time.time(), events))


def _table(body: bytes) -> list[dict[str, str]]:
    try:
        return parse_events(body.decode())
    except UnicodeDecodeError:
        raise DataError("the table is not UTF-8") from None


def _body() -> dict[str, Any]:
    event = MaintenanceReport.model_json_schema()
    events = {"type": "array", "minItems": 1, "maxItems": MOST_EVENTS, "items": event}
    table = {"type": "string", "description": "A head line, then one event a line"}
    content = {"application/json": {"schema": {"anyOf": [event, events]}}, "text/csv": {"schema": table}}
    return {"required": True, "content": content}
