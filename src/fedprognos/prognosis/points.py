"""Which unit and moment each window of a fleet is of, and what is odd about the rows behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import BoolArray
from fedprognos.features import Recipe, WindowSet, conditions
from fedprognos.fleet import Fleet, Unit
from fedprognos.prognosis.health import GAP, PADDED, STRETCHED, UNSEEN

GAP_SHARE = 0.1
"""A cycle with no sample for longer than this share of its time grid has a gap."""


@dataclass(frozen=True)
class Point:
    """What a window is of: a unit, its position, and what is already known to be odd about it."""

    unit: str
    position: float
    flags: tuple[str, ...] = ()


def window_points(recipe: Recipe, fleet: Fleet, windows: WindowSet) -> list[Point]:
    """A point for every window that :func:`fedprognos.features.build_windows` made of a fleet."""
    columns = recipe.check(fleet.schema, recipe.describe(fleet))[1]
    points: list[Point] = []
    units = {unit.id: unit for unit in fleet}
    for k, name in enumerate(windows.unit_ids):
        unit = units[name]
        unseen = None
        if name in windows.unseen_rows:
            unseen = ~known_conditions(recipe, unit.settings[:, columns])
        own = windows.position[windows.unit == k].tolist()
        points += [Point(name, position, _flags(recipe, unit, position, unseen)) for position in own]
    return points


def known_conditions(recipe: Recipe, settings: NDArray[np.float64]) -> BoolArray:
    """Whether each row, with settings in the recipe's order, is in a condition that the training data had."""
    keys = conditions.keys(settings, recipe.conditions, recipe.settings)
    return conditions.match(keys, np.array(recipe.condition_keys, dtype=np.float64))[1]


def _flags(recipe: Recipe, unit: Unit, position: float, unseen: BoolArray | None) -> tuple[str, ...]:
    flags = []
    if unit.cycles is None:
        stop = int(np.searchsorted(unit.time, position)) + 1
        rows = slice(max(stop - recipe.window, 0), stop)
        if stop < recipe.window:
            flags.append(PADDED)
    else:
        rows = unit.cycle(int(np.searchsorted(unit.positions, position)))
        if recipe.cycle == "index":
            if rows.stop - rows.start < recipe.window:
                flags.append(PADDED)
            rows = slice(rows.start, min(rows.stop, rows.start + recipe.window))
        else:
            needed = int(np.searchsorted(unit.time[rows], float(recipe.grid_end_in_s or 0.0))) + 1
            if needed > rows.stop - rows.start:
                flags.append(STRETCHED)
            rows = slice(rows.start, min(rows.stop, rows.start + needed))
            steps = np.diff(unit.time[rows], prepend=min(0.0, unit.time[rows.start]))
            if steps.max() > GAP_SHARE * float(recipe.grid_end_in_s or 0.0):
                flags.append(GAP)
    if unseen is not None and unseen[rows].any():
        flags.append(UNSEEN)
    return tuple(flags)
