"""The HTTP interface of the log: alerts and who took care of them, mutes, and what was done to machines."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from pydantic import Field

from fedprognos.errors import DataError
from fedprognos.options import Options
from fedprognos.prognosis import machine_and_life
from fedprognos.service.alert_log import Mute, SinkState
from fedprognos.service.alerts import Alert
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.http_answers import refuse, refuse_unit, respond
from fedprognos.service.maintenance import (
    MaintenanceEvent,
    MaintenanceReport,
    Note,
    Recorded,
    ReportResult,
    Who,
    parse_events,
    read_report,
)
from fedprognos.service.row_readers import parse

MOST_EVENTS = 1000
LONGEST_MUTE_IN_S = 366 * 86400


class Acknowledgement(Options):
    """Somebody takes care of an alert."""

    who: Who
    note: Note = ""


class MuteRequest(Options):
    """No sink is to be told about a machine for so many seconds."""

    who: Who
    for_in_s: Annotated[float, Field(gt=0, le=LONGEST_MUTE_IN_S)]
    note: Note = ""


@dataclass(frozen=True)
class AlertsAnswer:
    """A part of the log, the latest alert first; machines that are muted; sinks, and why some take nothing."""

    now: float
    alerts: list[Alert]
    mutes: list[Mute]
    sinks: list[SinkState]
    problems: dict[str, str]


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


def add_log_routes(app: FastAPI, service: FleetService) -> None:
    """Put the routes on the application."""
    _add_alerts(app, service)
    _add_maintenance(app, service)


def _add_alerts(app: FastAPI, service: FleetService) -> None:
    log = service.alert_log

    def changed() -> None:
        service.view.log_changes += 1
        service.events.publish(())

    @app.get("/v1/alerts", response_model=AlertsAnswer)
    async def get_alerts(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[str, Query(max_length=40, pattern=r"^([0-9a-f]{8}-[0-9]{1,15})?$")] = "",
        unit: Annotated[str, Query(max_length=256, description="Alerts of its machine only")] = "",
    ) -> Response:
        """Changes of status that were announced, the latest first; `before` is the id of the last one shown."""

        def read() -> AlertsAnswer:
            now, machine = time.time(), _machine_of(service, unit) if unit else None
            alerts = log.latest(limit, before or None, machine)
            return AlertsAnswer(now, alerts, log.mutes(now), log.sink_states(), dict(service.delivery.problems))

        return respond(await service.batcher.ask(read))

    @app.post("/v1/alerts/{alert_id}/acknowledged", response_model=Alert)
    async def acknowledge_alert(alert_id: str, by: Acknowledgement) -> Response:
        """Say who takes care of an alert. The first one stays."""
        alert = await service.batcher.ask(partial(log.acknowledge, alert_id, by.who, by.note, time.time()))
        if alert is None:
            return refuse(404, f"no alert '{alert_id[:40]}'")
        changed()
        return respond(alert)

    @app.put("/v1/mutes/{unit:path}", response_model=Mute)
    async def mute_unit(unit: str, by: MuteRequest) -> Response:
        """Tell no sink about a machine for a while. Its alerts are in the log all the same."""
        if unit not in service.view.units:
            return refuse_unit(unit)
        now = time.time()
        mute = Mute(_machine_of(service, unit), now + by.for_in_s, now, by.who, by.note)
        await service.batcher.ask(partial(log.mute, mute))
        changed()
        return respond(mute)

    @app.delete("/v1/mutes/{unit:path}", status_code=204, response_class=Response)
    async def unmute_unit(unit: str) -> Response:
        """Tell sinks about a machine again."""
        if not await service.batcher.ask(partial(log.unmute, _machine_of(service, unit))):
            return refuse(404, f"'{unit[:256]}' is not muted")
        changed()
        return Response(status_code=204)


def _add_maintenance(app: FastAPI, service: FleetService) -> None:
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
        machine = _machine_of(service, unit) if unit else None
        events = await service.batcher.ask(lambda: log.latest(limit, before or None, machine))
        return respond(MaintenanceLogAnswer(time.time(), events))


def _machine_of(service: FleetService, unit: str) -> str:
    """The machine that a unit is a life of."""
    view = service.view.units.get(unit)
    return machine_and_life(unit)[0] if view is None else view.machine


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
