"""Answers as clients get them, and the rows they send, for the OpenAPI document as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from fedprognos.features import Recipe
from fedprognos.fleet.time_axis import SECONDS
from fedprognos.prognosis.health import Health, Update, Verdict
from fedprognos.prognosis.rows import LARGEST_WHOLE, LONGEST_NAME
from fedprognos.service.fleet_view import UnitView
from fedprognos.service.forecast import Forecast
from fedprognos.service.store import StoredRow

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


@dataclass(frozen=True)
class UnitsAnswer:
    """A part of the fleet, the most urgent first."""

    total: int
    now: float
    units: list[UnitView]


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
    date, end_date
        Where positions are dates: of its health, and when the remaining life is over.
    """

    now: float
    date: str | None
    end_date: str | None
    history: list[Health]
    forecast: Forecast | None
    samples: list[Sample]


@dataclass(frozen=True)
class FleetAnswer:
    """The fleet in numbers, and what its model is about.

    Parameters
    ----------
    coverage
        Share of true values that the intervals should hold; None where the model gives no intervals.
    no_intervals
        Why it gives none; empty where it does.
    margin
        How near to the threshold a value without an interval counts as soon due.
    time_in_s
        Seconds in one step of the position, where it may be a date.
    filled
        Blank values that something stood in for, since the service was started.
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
    table: dict[str, Any] | None
    policies: tuple[str, ...]
    sensors: tuple[str, ...]
    settings: tuple[str, ...]
    cap: float | None
    coverage: float | None
    no_intervals: str
    now: float


@dataclass(frozen=True)
class Problem:
    """What was wrong."""

    detail: str


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
