"""Rows from what machines send: JSON objects, JSON of any shape, values that change one by one, and tables.

Nothing is judged here but the shape; the stream checks every value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import from_json

from fedprognos.errors import DataError
from fedprognos.features import Recipe
from fedprognos.options import Options
from fedprognos.prognosis import ModelInputs, Row
from fedprognos.tables import Rows, name_of_life

ROW_FIELDS = frozenset({"unit", "life", "position", "sensors", "settings", "cycle", "end"})
MOST_SAMPLES = 10_000
ABSENT: Any = object()
"""What a path leads to that is not there; a value that is there and null is blank."""
Path = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]
Reached = Callable[[str], tuple[float, float]]
"""The latest cycle (0 for units without cycles) and position of a unit."""


# --- JSON as POST /v1/rows takes it -----------------------------------------------------------


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


# --- JSON of another shape ---------------------------------------------------------------------


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
            if not isinstance(listed, list):
                raise DataError(f"'{options.rows}' is not a list of samples")
            samples = listed
        if len(rows) + len(samples) > MOST_SAMPLES:  # a sample may be two bytes, a row of it is many
            raise DataError(f"more than {MOST_SAMPLES} samples in one message")
        rows += [_payload_row(sample, payload, options, recipe) for sample in samples]
    return rows


def _payload_row(sample: Any, payload: Any, options: PayloadOptions, recipe: Recipe) -> dict[str, Any]:
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


# --- values that change one by one, as in Sparkplug B and OPC UA --------------------------------


class MetricOptions(Options):
    """Keys of the plant file that say which value is what, by the names that the machine gives them."""

    position: str | None = None
    """Name of the value that counts cycles or time; by default the time at which values change."""
    cycle: str | None = None
    """Name of the number of the cycle; cyclic units only."""
    sensors: dict[str, str] = Field(default_factory=dict)
    """Names of values by sensor, where they differ from the sensor's name."""
    settings: dict[str, str] = Field(default_factory=dict)


class MetricRows:
    """The values that hold, by unit.

    A machine's values hold until they change. A row is made of the values that hold when the position moves on, so
    machines write the position last. Without a position the time of the change is the position.

    >>> recipe = Recipe(task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    >>> rows = MetricRows(MetricOptions(position="cycle"), recipe)
    >>> rows.change("pump", {"heat": 3.5}, 0.0)
    >>> rows.change("pump", {"cycle": 1}, 0.0)
    Row(unit='pump', position=1, sensors={'heat': 3.5}, settings={}, cycle=None, end=False)

    Attributes
    ----------
    names
        All values that a machine must give.
    """

    def __init__(self, options: MetricOptions, recipe: Recipe) -> None:
        self._position, self._cycle = options.position, options.cycle
        self._sensors = {name: options.sensors.get(name, name) for name in recipe.sensors}
        self._settings = {name: options.settings.get(name, name) for name in recipe.settings}
        marks = {name for name in (self._position, self._cycle) if name is not None}
        self.names = {*self._sensors.values(), *self._settings.values(), *marks}
        self._values: dict[str, dict[str, object]] = {}

    def change(self, unit: str, values: Mapping[str, object], time_in_s: float) -> Row | None:
        """Note values that changed together; a row where they complete one. Others than :attr:`names` are ignored."""
        used = {name: value for name, value in values.items() if name in self.names}
        held = self._values.setdefault(unit, {})
        held.update(used)
        position = held.get(self._position) if self._position is not None else _date(time_in_s)
        if position is None or not used or (self._position is not None and self._position not in used):
            return None
        cycle = None if self._cycle is None else held.get(self._cycle)
        return Row(
            unit,
            position,  # type: ignore[arg-type]  # whatever came is judged with the row
            {name: held[metric] for name, metric in self._sensors.items() if metric in held},  # type: ignore[misc]
            {name: held[metric] for name, metric in self._settings.items() if metric in held},  # type: ignore[misc]
            cycle,  # type: ignore[arg-type]
        )

    def forget(self, unit: str) -> None:
        """Nothing is known of a unit's values any more."""
        self._values.pop(unit, None)


def _date(time_in_s: float) -> str:
    return datetime.fromtimestamp(time_in_s, UTC).replace(tzinfo=None).isoformat()


# --- tables ------------------------------------------------------------------------------------


def new_rows(rows: Rows, inputs: ModelInputs, reached: Reached) -> list[tuple[int, Row]]:
    """Rows beyond where their unit has got to, each with its number in the piece."""
    cycles = [None] * len(rows) if rows.cycles is None else [int(cycle) for cycle in rows.cycles]
    places = zip(rows.units, cycles, rows.times.tolist(), strict=True)
    picked: list[tuple[int, Row]] = []
    for k, (unit, cycle, time) in enumerate(places):
        if (cycle or 0, time) > reached(unit):
            sensors = _values(inputs.sensors, rows.sensors[k].tolist())
            settings = _values(inputs.settings, rows.settings[k].tolist())
            picked.append((k, Row(unit, time, sensors, settings, cycle)))
    return picked


def _values(names: Sequence[str], numbers: Sequence[float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in zip(names, numbers, strict=True)}
