"""What a client sends of cycles that are read at levels of a sensor: bounds in few digits, and moments there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import ConfigError, DataError, RecipeError
from fedprognos.features.history.levels import at_levels, bounds_of, looked_at
from fedprognos.fleet import Fleet


def rows_at_levels(
    fleet: Fleet, sensors: tuple[str, ...], level: str, points: int, end: float
) -> tuple[FloatArray, float, float]:
    """Every cycle at levels between the fleet's own bounds (cycles x points, sensors | settings), and the bounds.

    Common bounds are not known yet; those of one client are near enough for a scaling. The bounds are rounded to three
    digits, because as they stand each is a value of the data.
    """
    if level not in sensors:
        raise ConfigError(f"recipe.levels is '{level}', which is not a sensor", hint=f"sensors: {', '.join(sensors)}")
    order = [fleet.schema.sensors.index(s) for s in sensors]
    column = sensors.index(level)
    early, late = bounds_of(fleet, order[column], end)
    high, low = digits_down(early, 3), -digits_down(-late, 3)
    if not high > low:
        raise DataError(
            f"{level} does not fall in the first {end:g} s of every cycle",
            where=fleet.source or f"fleet {fleet.name}",
            hint="set recipe.grid_end_in_s later, or recipe.levels to a sensor that falls during a cycle",
        )
    levels, parts = np.linspace(high, low, points), []
    for unit in fleet:
        rows = np.concatenate([unit.sensors[:, order], unit.settings], axis=1).astype(np.float32)
        for k in range(len(unit.positions)):
            own = unit.cycle(k)
            when, then = at_levels(levels, column, end, *looked_at(end, unit.time[own], rows[own]))
            then[:, column] = when
            parts.append(then.astype(np.float64))
    return np.concatenate(parts), high, low


def common_levels(sensor: str, bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Between which levels every client's cycles can be read, from the high and low bounds of each."""
    high, low = min(high for high, _ in bounds), max(low for _, low in bounds)
    if not high > low:
        raise RecipeError(
            f"the clients' cycles share no levels of {sensor}: from {high:g} down to {low:g}",
            hint="they work at different levels; read them on a grid in time instead (recipe.cycle = 'grid')",
        )
    return high, low


def digits_down(value: float, digits: int) -> float:
    """Rounded down to so many significant digits.

    >>> digits_down(2397.4, 2), digits_down(0.0123, 2), digits_down(-3.491, 3)
    (2300.0, 0.012, -3.5)
    """
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return float(f"{math.floor(value / step) * step:.{digits}g}")
