"""Rows from values that arrive one by one, as in Sparkplug B and OPC UA, where only what changes is sent.

A machine's values hold until they change. A row is made of the values that hold when the position moves on, so machines
write the position last. Without a position the time of the change is the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import Field

from fedprognos.features import Recipe
from fedprognos.options import Options
from fedprognos.prognosis import Row


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

    >>> recipe = Recipe(task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
    >>> rows = MetricRows(MetricOptions(position="cycle"), recipe)
    >>> rows.change("pump", {"heat": 3.5}, 0.0)
    >>> rows.change("pump", {"cycle": 1}, 0.0)
    Row(unit='pump', position=1, sensors={'heat': 3.5}, settings={}, cycle=None, end=False)
    """

    def __init__(self, options: MetricOptions, recipe: Recipe) -> None:
        self._position, self._cycle = options.position, options.cycle
        self._sensors = {name: options.sensors.get(name, name) for name in recipe.sensors}
        self._settings = {name: options.settings.get(name, name) for name in recipe.settings}
        self._values: dict[str, dict[str, object]] = {}

    @property
    def names(self) -> set[str]:
        """All values that a machine must give."""
        marks = {name for name in (self._position, self._cycle) if name is not None}
        return {*self._sensors.values(), *self._settings.values(), *marks}

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
