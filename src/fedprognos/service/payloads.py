"""Rows inside nested JSON: where the parts of a row are in what a gateway sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from fedprognos.errors import DataError
from fedprognos.features import Recipe
from fedprognos.options import Options

Path = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]
MOST_ROWS = 10_000
ABSENT: Any = object()
"""What a path leads to that is not there; a value that is there and null is blank."""


class PayloadOptions(Options):
    """Paths into a payload: names of objects and numbers of list items, joined by dots, as in `data.temperature.0`."""

    rows: Path | None = None
    """Where a list of samples is; other paths are looked up in a sample first, then in the whole payload."""
    unit: Path | None = None
    """Needed where the topic does not name the unit."""
    position: Path = "position"
    cycle: Path | None = None
    life: Path | None = None
    end: Path | None = None
    sensors: Path | dict[str, Path] = "sensors"
    """Where the object is that holds all sensors by their names, or the path of each sensor."""
    settings: Path | dict[str, Path] = "settings"
    value: str | None = None
    """The key of the number where a sensor is an object, such as `{"value": 3.5, "quality": "good"}`."""


def read_payload(payloads: Sequence[Any], options: PayloadOptions, recipe: Recipe) -> list[dict[str, Any]]:
    """Rows as `POST /v1/rows` takes them.

    >>> options = PayloadOptions(position="meta.cycle", sensors={"heat": "data.0"})
    >>> recipe = Recipe(task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    >>> read_payload([{"meta": {"cycle": 7}, "data": [3.5]}], options, recipe)
    [{'sensors': {'heat': 3.5}, 'position': 7}]
    """
    rows: list[dict[str, Any]] = []
    for payload in payloads:
        samples = [payload]
        if options.rows is not None:
            listed = _at(payload, options.rows)
            if not isinstance(listed, list) or len(listed) > MOST_ROWS:
                raise DataError(f"'{options.rows}' is not a list of at most {MOST_ROWS} samples")
            samples = listed
        rows += [_row(sample, payload, options, recipe) for sample in samples]
    return rows


def _row(sample: Any, payload: Any, options: PayloadOptions, recipe: Recipe) -> dict[str, Any]:
    def look_up(path: str) -> Any:
        value = _at(sample, path)
        return _at(payload, path) if value is ABSENT else value

    row: dict[str, Any] = {}
    for part, names, where in (
        ("sensors", recipe.sensors, options.sensors),
        ("settings", recipe.settings, options.settings),
    ):
        if names:
            values = (
                {name: look_up(path) for name, path in where.items()}
                if isinstance(where, dict)
                else {name: _item(look_up(where), name) for name in names}  # a sensor's name may have dots in it
            )
            row[part] = {name: _number(v, options.value) for name, v in values.items() if v is not ABSENT}
    for part in ("unit", "position", "cycle", "life", "end"):
        path = getattr(options, part)
        value = ABSENT if path is None else look_up(path)
        if value is not ABSENT:
            row[part] = value
    return row


def _number(value: Any, key: str | None) -> Any:
    return value.get(key) if key is not None and isinstance(value, Mapping) else value


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = _item(value, key)
    return value


def _item(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(key, ABSENT)
    if isinstance(value, list) and key.isdecimal() and int(key[:9]) < len(value):
        return value[int(key[:9])]
    return ABSENT
