"""Rows out of JSON. What cannot even be a row is refused here, with a reason; the stream judges the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from fedprognos.errors import DataError
from fedprognos.prognosis.health import Row
from fedprognos.prognosis.row_checks import LONGEST_NAME

FIELDS = frozenset({"unit", "position", "sensors", "settings", "cycle", "end"})
LARGEST_WHOLE = 2**53


def parse(body: bytes) -> Any:
    """A JSON text; NaN and Infinity are let through, to be refused row by row with the name of the sensor."""
    try:
        return from_json(body, cache_strings="keys")
    except ValueError as error:
        raise DataError(f"not JSON: {error}") from None


def read_row(value: object, unit: str | None = None) -> Row | str:
    """A row, or why it is none.

    Parameters
    ----------
    unit
        Name of the unit where the row itself does not tell.

    Examples
    --------
    >>> read_row({"unit": "pump", "position": 1, "sensors": {"heat": 3.5}})
    Row(unit='pump', position=1, sensors={'heat': 3.5}, settings={}, cycle=None, end=False)
    >>> read_row({"unit": "pump", "sensors": {}})
    "'position' is missing"
    """
    if not isinstance(value, Mapping):
        return "a row is an object with unit, position and sensors"
    if not value.keys() <= FIELDS:
        extra = sorted(value.keys() - FIELDS)[0]
        return f"'{extra[:40]}' is not part of a row; it has {', '.join(sorted(FIELDS))}"
    name = value.get("unit", unit)
    for field, given in (("unit", name), ("position", value.get("position")), ("sensors", value.get("sensors"))):
        if given is None:
            return f"'{field}' is missing"
    problem = name_problem(name)
    if problem:
        return problem
    position, cycle = value["position"], value.get("cycle")
    if isinstance(position, bool) or not isinstance(position, int | float):
        return "'position' is not a number"
    if not math.isfinite(position) if isinstance(position, float) else abs(position) > LARGEST_WHOLE:
        return "'position' is not a finite number" if isinstance(position, float) else "'position' is too large"
    if cycle is not None and (isinstance(cycle, bool) or not isinstance(cycle, int) or abs(cycle) > LARGEST_WHOLE):
        return "'cycle' is not a whole number"
    end = value.get("end", False)
    if not isinstance(end, bool):
        return "'end' is neither true nor false"
    sensors, settings = value["sensors"], value.get("settings")
    if not isinstance(sensors, dict) or not isinstance(settings, dict | None):
        return "'sensors' and 'settings' are objects of names with numbers"
    return Row(name, position, sensors, settings or {}, cycle, end)


def name_problem(name: object) -> str:
    """Why a text cannot name a unit; empty where it can.

    Names stand in addresses: "." and ".." would never arrive there.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        return f"'unit' is not a text of 1 to {LONGEST_NAME} characters"
    if name in {".", ".."} or any(ord(c) < 32 or ord(c) == 127 for c in name):
        return "'unit' has control characters, or is '.' or '..'"
    return ""
