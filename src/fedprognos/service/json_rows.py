"""Rows out of JSON. What has not even the parts of a row is refused here; the stream judges the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from fedprognos.errors import DataError
from fedprognos.fleet.table_units import name_of_life
from fedprognos.prognosis.health import Row

FIELDS = frozenset({"unit", "life", "position", "sensors", "settings", "cycle", "end"})


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
    if not value.keys() <= FIELDS:
        extra = sorted(value.keys() - FIELDS)[0]
        return f"'{extra[:40]}' is not part of a row; it has {', '.join(sorted(FIELDS))}"
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
