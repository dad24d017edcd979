"""JSON on the wire: rows as machines send them, answers as clients get them, both for the OpenAPI document as well."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from http import HTTPStatus
from io import StringIO
from typing import Any, Literal

from fastapi import Response
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from fedprognos.errors import DataError
from fedprognos.features import Recipe
from fedprognos.files import spreadsheet_safe
from fedprognos.prognosis import LONGEST_NAME, Health, Row, Update, Verdict
from fedprognos.service.due_dates import DueDate
from fedprognos.service.fleet_view import Forecast, Refusal, UnitView
from fedprognos.service.maintenance import MaintenanceEvent
from fedprognos.service.replacement import Replacement
from fedprognos.service.row_store import StoredRow
from fedprognos.tables import LARGEST_WHOLE, SECONDS, name_of_life

NAME = r"^[^\u0000-\u001f\u007f]+$"
ROW_FIELDS = frozenset({"unit", "life", "position", "sensors", "settings", "cycle", "end"})


def parse(body: bytes) -> list[Any]:
    """One row or a list of them; NaN and Infinity are let through, to be refused with the name of the sensor."""
    try:
        given = from_json(body, cache_strings="keys")
    except ValueError as error:
        raise DataError(f"not JSON: {error}") from None
    return given if isinstance(given, list) else [given]


def read_row(value: object, unit: str | None = None) -> Row | str:
    """A row, or why it is none.

    Parameters
    ----------
    unit
        Who sends the row, where that is known: the row need not say, and may not speak for another.

    A machine that was repaired counts its lives: each is a unit of its own, named as in training.

    Examples
    --------
    >>> read_row({"unit": "pump", "position": 1, "sensors": {"heat": 3.5}})
    Row(unit='pump', position=1, sensors={'heat': 3.5}, settings={}, cycle=None, end=False)
    >>> read_row({"unit": "pump", "life": 2, "position": 1, "sensors": {"heat": 3.5}}).unit
    'pump#2'
    >>> read_row({"unit": "pump", "sensors": {}})
    "'position' is missing"
    """
    if not isinstance(value, Mapping):
        return "a row is an object with unit, position and sensors"
    if not value.keys() <= ROW_FIELDS:
        extra = sorted(value.keys() - ROW_FIELDS)[0]
        return f"'{extra[:40]}' is not part of a row; it has {', '.join(sorted(ROW_FIELDS))}"
    name = value.get("unit", unit)
    if unit is not None and name != unit:
        return f"the payload speaks for unit '{str(name)[:256]}'"
    for field, given in (("unit", name), ("position", value.get("position")), ("sensors", value.get("sensors"))):
        if given is None:
            return f"'{field}' is missing"
    settings, life = value.get("settings"), value.get("life", 1)
    if not isinstance(life, int) or isinstance(life, bool) or not 1 <= life <= 1_000_000:
        return "'life' counts the lives of a machine: 1, 2, ..."
    return Row(
        name_of_life(name, str(life)) if isinstance(name, str) else name,
        value["position"],
        value["sensors"],
        {} if settings is None else settings,
        value.get("cycle"),
        value.get("end", False),
    )


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


@dataclass(frozen=True)
class UnitsAnswer:
    """A part of the fleet in the order asked for.

    Parameters
    ----------
    total
        Units that match, in all parts together.
    next
        Cursor of the next part; None where this is the last.
    """

    total: int
    now: float
    units: list[UnitView]
    next: str | None


@dataclass(frozen=True)
class Sample:
    """A row as it was taken."""

    position: float
    cycle: int | None
    received: float
    sensors: dict[str, float]
    settings: dict[str, float]


@dataclass(slots=True, eq=False, kw_only=True)
class UnitAnswer(UnitView):
    """A unit with its past and what is expected of it.

    Parameters
    ----------
    lives
        Units of the same machine, the first life first.
    maintenance
        What was done to the machine, the latest first.
    date, end_date
        Where positions are dates: of its health, and when the remaining life is over. No end is told at the cap, nor
        under a flag that says that the value is not to be trusted.
    due_date
        The forecast by the calendar; None where the forecast has no position at which maintenance is due.
    replacement
        The best moment to replace it; None where costs are not given, or the remaining life does not give one.
    """

    now: float
    lives: list[str]
    date: str | None
    end_date: str | None
    history: list[Health]
    forecast: Forecast | None
    due_date: DueDate | None
    replacement: Replacement | None
    samples: list[Sample]
    maintenance: list[MaintenanceEvent]


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
class FleetAnswer:
    """The fleet in numbers, and what its model is about.

    Parameters
    ----------
    coverage
        Share of true values that the intervals should hold; None where the model gives no intervals.
    no_intervals
        Why it gives none; empty where it does.
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
    signed_by: tuple[str, ...] | None
    origin: ModelOrigin
    now: float


@dataclass(frozen=True)
class Problem:
    """What was wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


PROBLEM: dict[str, Any] = {
    "content": {"application/problem+json": {"schema": TypeAdapter(Problem).json_schema()}},
}
"""How an answer that is a problem looks, for the OpenAPI document."""


def respond(value: object, status: int = 200) -> Response:
    """An answer in JSON; what is infinite or not a number is null."""
    return Response(to_json(value, inf_nan_mode="null"), status, media_type="application/json")


def refuse(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """An answer that says what is wrong, as RFC 9457 wants it."""
    problem = Problem("about:blank", HTTPStatus(status).phrase, status, detail)
    return Response(to_json(problem), status, headers, "application/problem+json")


def refuse_unit(unit: str) -> Response:
    """The answer where a unit is not known."""
    return refuse(404, f"no unit '{unit[:256]}' is watched")


@dataclass(frozen=True)
class Ready:
    """Whether rows can be taken."""

    status: Literal["alive", "ready"]


def row_result(update: Update | str) -> RowResult:
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


def sample(row: StoredRow, recipe: Recipe) -> Sample:
    """A stored row with the names of its columns."""
    values, split = row.values, len(recipe.sensors)
    sensors = dict(zip(recipe.sensors, values[:split], strict=True))
    return Sample(
        row.position, row.cycle, row.received, sensors, dict(zip(recipe.settings, values[split:], strict=True))
    )


def normal_levels(recipe: Recipe) -> dict[str, tuple[float, float]] | None:
    """Lowest and highest level of each sensor in training, as measured; None where there is no such thing."""
    usual = recipe.usual
    if usual is None or len(recipe.mean) != 1 or recipe.cycle is not None:
        return None
    bounds = zip(recipe.sensors, recipe.mean[0], recipe.std[0], usual.low, usual.high, strict=True)
    return {name: (mean + std * low, mean + std * high) for name, mean, std, low, high in bounds}


def fleet_csv(units: Iterable[UnitView]) -> str:
    """Units as a table for spreadsheets."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("unit", "status", "position", "cycle", "value", "low", "high", "flags", "reason", "received"))
    for view in units:
        health = view.health or Health(view.unit, view.position, None)
        flags, received = " ".join(health.flags), datetime.fromtimestamp(view.received, UTC).isoformat("T", "seconds")
        numbers = (view.position, view.cycle, health.value, health.low, health.high)
        reason = spreadsheet_safe(health.reason)
        lines.writerow((spreadsheet_safe(view.unit), view.status, *numbers, flags, reason, received))
    return text.getvalue()


def unit_answer(view: UnitView, **more: Any) -> UnitAnswer:
    """A unit's view with more about it."""
    return UnitAnswer(**{field.name: getattr(view, field.name) for field in fields(view)}, **more)


def rows_body(recipe: Recipe, max_rows: int, policies: Sequence[str]) -> dict[str, Any]:
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
