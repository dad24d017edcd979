"""The HTTP interface of models: which one serves, how the second one differs, and who lets it serve."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, Response
from pydantic import Field

from fedprognos.options import Options
from fedprognos.prognosis import LONGEST_NAME, Predictor, Stream, Verdict
from fedprognos.service.fleet_service import FleetService
from fedprognos.service.http_answers import PROBLEM, refuse, respond
from fedprognos.service.maintenance import Note, Who
from fedprognos.service.model_log import ChangeKind, ModelChange
from fedprognos.service.shadow import Comparison, Outcomes

MOST_CHANGES = 100
CONFLICT: dict[int | str, dict[str, Any]] = {409: {"description": "No such model can serve now", **PROBLEM}}


class Promotion(Options):
    """Let the second model serve. Its digest is named, so that a request sent twice does not undo itself."""

    digest: Annotated[str, Field(min_length=64, max_length=64, pattern="^[0-9a-f]+$")]
    who: Who
    note: Note = ""


class Rollback(Options):
    """Let the model serve that the last promotion replaced."""

    who: Who
    note: Note = ""


@dataclass(frozen=True)
class ModelOrigin:
    """Where a model comes from: what its bundle says, which only a signature proves.

    Parameters
    ----------
    trained_by
        The clients that trained it.
    units
        Units that it was trained on; None where the bundle does not say.
    seed, round
        Of the run; None where the bundle does not say.
    version
        Of the program that trained it.
    """

    experiment: str
    method: str
    head: str
    trained_by: tuple[str, ...]
    units: int | None
    seed: int | None
    round: int | None
    version: str

    @staticmethod
    def from_provenance(provenance: Mapping[str, Any]) -> ModelOrigin:
        """What is known; values of another type than expected count as not given."""

        def text(key: str) -> str:
            value = provenance.get(key)
            return value[:LONGEST_NAME] if isinstance(value, str) else ""

        def whole(key: str) -> int | None:
            value = provenance.get(key)
            return value if isinstance(value, int) and not isinstance(value, bool) else None

        clients = provenance.get("train_clients")
        return ModelOrigin(
            text("experiment"),
            text("method"),
            text("head"),
            tuple(str(name)[:LONGEST_NAME] for name in clients) if isinstance(clients, list | tuple) else (),
            whole("units"),
            whole("seed"),
            whole("round"),
            text("fedprognos"),
        )


@dataclass(frozen=True)
class ModelView:
    """A model in its role.

    Parameters
    ----------
    digest
        Names everything that decides a prediction.
    since
        When it got its role, in seconds since 1970.
    rows
        Rows that it has read.
    signed_by
        Names of the trusted keys that signed it; None where that was not checked.
    problem
        Why it runs along no longer; empty where it does.
    """

    digest: str
    origin: ModelOrigin
    signed_by: tuple[str, ...] | None
    since: float
    rows: int
    problem: str = ""


@dataclass(frozen=True)
class ModelsAnswer:
    """Both models, how they differ now and on machines that failed, and who changed what, the latest first."""

    now: float
    serving: ModelView
    shadow: ModelView | None
    can_roll_back: bool
    comparison: Comparison | None
    outcomes: Outcomes | None
    changes: list[ModelChange]


def add_model_routes(app: FastAPI, service: FleetService) -> None:
    """Put the routes on the application."""

    @app.get("/v1/models", response_model=ModelsAnswer)
    async def get_models() -> Response:
        """The model that serves, the one that runs along, and how they differ."""
        serving, shadow = service.predictor, service.shadow
        changes = await service.batcher.ask(lambda: service.stream.store.models.latest(MOST_CHANGES))
        comparison = await service.compare_models()
        errors = None if comparison is None else await service.past_errors()
        stream = service.stream
        answer = ModelsAnswer(
            time.time(),
            _view(serving, stream.stream, _since(changes, lambda change: change.serving)),
            None
            if shadow is None
            else _view(shadow, stream.shadow, _since(changes, lambda change: change.shadow), stream.shadow_problem),
            service.can_roll_back(changes),
            comparison,
            errors,
            changes,
        )
        return respond(answer)

    @app.post("/v1/models/promote", response_model=ModelChange, responses=CONFLICT)
    async def promote(request: Promotion) -> Response:
        """Let the second model serve from now on; the other one runs along. No row and no state is lost."""
        if service.shadow is None or service.shadow.fingerprint != request.digest:
            return refuse(409, "no model with this digest runs along")
        return await _swapped("promote", request.who, request.note)

    @app.post("/v1/models/rollback", response_model=ModelChange, responses=CONFLICT)
    async def roll_back(request: Rollback) -> Response:
        """Undo the last promotion; the model that served before has run along since."""
        changes = await service.batcher.ask(lambda: service.stream.store.models.latest(1))
        if not service.can_roll_back(changes):
            return refuse(409, "the last change was no promotion")
        return await _swapped("rollback", request.who, request.note)

    async def _swapped(kind: ChangeKind, who: str, note: str) -> Response:
        change = await service.swap_models(kind, who, note, service.predictor.fingerprint)
        return (
            refuse(409, "the second model failed, or somebody else was faster") if change is None else respond(change)
        )


def _view(model: Predictor, stream: Stream | None, since: float, problem: str = "") -> ModelView:
    rows = 0 if stream is None else stream.counts[Verdict.ACCEPTED]
    origin = ModelOrigin.from_provenance(model.provenance)
    return ModelView(model.fingerprint, origin, model.signed_by, since, rows, problem)


def _since(changes: Sequence[ModelChange], role: Callable[[ModelChange], str]) -> float:
    """When the model of a role got it; changes are given the latest first."""
    since = changes[0].at
    for change in changes:
        if role(change) != role(changes[0]):
            break
        since = change.at
    return since
