"""The HTTP interface of the fleet as a whole: what its model is about, how many are due, and when others will be."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response

from fedprognos.features import Recipe
from fedprognos.prognosis import Health
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.fleet_view import Refusal, Status
from fedprognos.service.forecasts import SLOPE_VALUES, Clock, due_date, forecast
from fedprognos.service.http_answers import respond
from fedprognos.service.model_routes import ModelOrigin
from fedprognos.tables import SECONDS


@dataclass(frozen=True)
class FleetAnswer:
    """The fleet in numbers, and what its model is about.

    Parameters
    ----------
    coverage
        Share of true values that the intervals should hold; None where the model gives no intervals.
    no_intervals
        Why it gives none; empty where it does.
    unchecked
        What cannot be told of a machine unlike those of training, because the model was not told it.
    signed_by
        Names of the trusted keys that signed the model; None where that was not checked.
    origin
        Where the model comes from, as far as its bundle says.
    margin
        How near to the threshold a value without an interval counts as soon due.
    time_in_s
        Seconds in one step of the position, where it may be a date.
    filled
        Blank values that something stood in for, since the service was started.
    refused, refusals
        Rows that were not taken since the service was started, and the latest of them.
    sites
        What names of units begin with before their first "/".
    normal
        Lowest and highest level of each sensor over the lives of the training machines, as measured; None where
        sensors stand elsewhere in each operating condition, or nothing is known.
    table
        How the tables were written that the model was trained on, for senders of files.
    """

    units: int
    counts: dict[str, int]
    flagged: int
    threshold: float | None
    margin: float
    task: str
    target: str
    target_measure: str
    position_name: str
    cyclic: bool
    time_measure: str
    time_in_s: float | None
    filled: int
    refused: int
    refusals: list[Refusal]
    sites: list[str]
    normal: dict[str, tuple[float, float]] | None
    table: dict[str, Any] | None
    policies: tuple[str, ...]
    sensors: tuple[str, ...]
    settings: tuple[str, ...]
    cap: float | None
    coverage: float | None
    no_intervals: str
    unchecked: tuple[str, ...]
    signed_by: tuple[str, ...] | None
    origin: ModelOrigin
    now: float


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


def add_fleet_routes(app: FastAPI, service: FleetService) -> None:
    """Put the routes on the application."""
    _add_fleet(app, service)
    _add_calendar(app, service)


def _add_fleet(app: FastAPI, service: FleetService) -> None:
    view, inputs = service.view, service.inputs
    cyclic, layout = inputs.cyclic, inputs.table

    @app.get("/v1/fleet", response_model=FleetAnswer)
    async def get_fleet() -> Response:
        """The fleet in numbers, and what its model is about."""
        recipe = service.predictor.recipe
        answer = FleetAnswer(
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
            normal=_normal_levels(recipe),
            table=None if layout is None else layout.model_dump(mode="json", exclude_defaults=True),
            policies=service.predictor.policies,
            sensors=recipe.sensors,
            settings=recipe.settings,
            cap=recipe.cap,
            coverage=None if service.predictor.calibration is None else service.options.coverage,
            no_intervals=service.predictor.no_intervals,
            unchecked=service.predictor.unchecked,
            signed_by=service.predictor.signed_by,
            origin=ModelOrigin.from_provenance(service.predictor.provenance),
            now=time.time(),
        )
        return respond(answer)


def _normal_levels(recipe: Recipe) -> dict[str, tuple[float, float]] | None:
    """Lowest and highest level of each sensor in training, as measured; None where there is no such thing."""
    usual = recipe.usual
    if usual is None or len(recipe.mean) != 1 or recipe.cycle is not None:
        return None
    bounds = zip(recipe.sensors, recipe.mean[0], recipe.std[0], usual.low, usual.high, strict=True)
    return {name: (mean + std * low, mean + std * high) for name, mean, std, low, high in bounds}


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
