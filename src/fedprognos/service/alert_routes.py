"""The HTTP interface of alerts: the log, who took care of what, and machines that are muted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import FastAPI, Query, Response
from pydantic import Field

from fedprognos.options import Options
from fedprognos.prognosis import machine_and_life
from fedprognos.service.alert_log import Mute, SinkState
from fedprognos.service.alerts import Alert
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.http_answers import refuse, refuse_unit, respond
from fedprognos.service.maintenance import Note, Who

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


def add_alert_routes(app: FastAPI, service: FleetService) -> None:
    """Put the routes on the application."""
    log = service.alert_log

    def changed() -> None:
        service.view.alerts += 1
        service.events.publish(())

    @app.get("/v1/alerts", response_model=AlertsAnswer)
    async def get_alerts(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[str, Query(max_length=40, pattern=r"^([0-9a-f]{8}-[0-9]{1,15})?$")] = "",
        unit: Annotated[str, Query(max_length=256, description="Alerts of its machine only")] = "",
    ) -> Response:
        """Changes of status that were announced, the latest first; `before` is the id of the last one shown."""

        def read() -> AlertsAnswer:
            now, machine = time.time(), machine_of(service, unit) if unit else None
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
        mute = Mute(machine_of(service, unit), now + by.for_in_s, now, by.who, by.note)
        await service.batcher.ask(partial(log.mute, mute))
        changed()
        return respond(mute)

    @app.delete("/v1/mutes/{unit:path}", status_code=204, response_class=Response)
    async def unmute_unit(unit: str) -> Response:
        """Tell sinks about a machine again."""
        if not await service.batcher.ask(partial(log.unmute, machine_of(service, unit))):
            return refuse(404, f"'{unit[:256]}' is not muted")
        changed()
        return Response(status_code=204)


def machine_of(service: FleetService, unit: str) -> str:
    """The machine that a unit is a life of."""
    view = service.view.units.get(unit)
    return machine_and_life(unit)[0] if view is None else view.machine
