"""What goes in and out, for the OpenAPI document. The row's schema names the sensors of the model at work."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from fedprognos.features import Recipe
from fedprognos.prognosis.row_checks import LONGEST_NAME
from fedprognos.service.intake import LARGEST_WHOLE

NAME = r"^[^\u0000-\u001f\u007f]+$"


class HealthModel(BaseModel):
    """Health at one moment: a value with its interval, or why there is none, and what makes it less trustworthy."""

    position: float
    value: float | None
    low: float | None
    high: float | None
    state: Literal["ok", "warming-up", "cannot-say"]
    reason: str
    flags: list[str]


class RowResult(BaseModel):
    """What became of one row."""

    unit: str | None
    position: float | None
    result: Literal["accepted", "duplicate", "refused"]
    reason: str
    health: HealthModel | None


class RowsAnswer(BaseModel):
    """What became of the rows, in their order. Accepted ones are on disk."""

    accepted: int
    duplicates: int
    refused: int
    results: list[RowResult]


class UnitSummary(BaseModel):
    """Where a unit stands."""

    unit: str
    status: Literal["due", "soon", "unknown", "ok", "warming-up"]
    position: float
    cycle: int | None
    received: float
    health: HealthModel | None
    spark: list[float]


class UnitsAnswer(BaseModel):
    """A part of the fleet, the most urgent first."""

    total: int
    now: float
    units: list[UnitSummary]


class ForecastModel(BaseModel):
    """The latest health carried on to the threshold."""

    slope: float
    due: float | None
    due_low: float | None
    due_high: float | None
    basis: str


class Sample(BaseModel):
    """A row as it was taken."""

    position: float
    cycle: int | None
    received: float
    sensors: dict[str, float]
    settings: dict[str, float]


class UnitAnswer(UnitSummary):
    """A unit with its past and what is expected of it."""

    now: float
    history: list[HealthModel]
    forecast: ForecastModel | None
    samples: list[Sample]


class FleetAnswer(BaseModel):
    """The fleet in numbers, and what its model is about."""

    units: int
    counts: dict[str, int]
    flagged: int
    threshold: float | None
    task: str
    target: str
    target_unit: str
    position_name: str
    sensors: list[str]
    settings: list[str]
    cap: float | None
    coverage: float
    now: float


class Problem(BaseModel):
    """What was wrong."""

    detail: str


class Ready(BaseModel):
    """Whether rows can be taken."""

    status: str


def rows_body(recipe: Recipe, max_rows: int) -> dict[str, Any]:
    """OpenAPI request body of rows for a model."""
    whole = {"type": "integer", "minimum": -LARGEST_WHOLE, "maximum": LARGEST_WHOLE}
    row: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["unit", "position", "sensors"],
        "properties": {
            "unit": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": NAME},
            "position": {"type": "number", "minimum": -LARGEST_WHOLE, "maximum": LARGEST_WHOLE},
            "sensors": _numbers(recipe.sensors),
            "settings": _numbers(recipe.settings),
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


def _numbers(names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(names),
        "properties": {name: {"type": "number"} for name in names},
    }
