"""Rows of a table as the service takes them, without those that it has already."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedprognos.prognosis import ModelInputs, Row
from fedprognos.tables import Rows

Reached = Callable[[str], tuple[float, float]]
"""The latest cycle (0 for units without cycles) and position of a unit."""


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
