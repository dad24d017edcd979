"""Cyclic units: every cycle on the same grid in time, interpolated, and held at its last value where it ends early."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, Rows
from fedprognos.errors import ConfigError
from fedprognos.features.history import GAP, STRETCHED, UNSEEN, Cut, HistoryRule, UnitCuts, histories
from fedprognos.features.history._cycle import CycleHistory, cycle_bounds
from fedprognos.features.recipe import Recipe
from fedprognos.fleet import Unit

if TYPE_CHECKING:
    from fedprognos.features.recipe_options import RecipeOptions

GRID_SHARE = 0.7
"""Part of the shortest training cycle that a time grid covers by default: cycles get shorter as a cell fades."""
GAP_SHARE = 0.1
"""A cycle with no sample for longer than this share of its grid has a gap."""


@lru_cache(maxsize=8)
def _grid(end_in_s: float, points: int) -> FloatArray:
    return np.linspace(0.0, end_in_s, points)


def grid_of(recipe: Recipe) -> FloatArray:
    """The grid in seconds (window,)."""
    return _grid(float(recipe.grid_end_in_s or 0.0), recipe.window)


def on_grid(grid: FloatArray, time: FloatArray, rows: Rows) -> Rows:
    """Samples (T, C) at increasing times (T,), interpolated at the points of a grid (G,) and held beyond both ends.

    >>> on_grid(np.array([0.0, 1.0, 2.5, 9.0]), np.array([1.0, 3.0]), np.array([[10.0], [20.0]])).ravel().tolist()
    [10.0, 10.0, 17.5, 20.0]
    """
    samples_before = np.searchsorted(time, grid, side="right")
    left, right = np.maximum(samples_before - 1, 0), np.minimum(samples_before, len(time) - 1)
    old, new = rows[left].astype(np.float64), rows[right].astype(np.float64)
    between = (grid > time[left]) & (right > left)
    step = np.where(between, time[right] - time[left], 1.0)
    at = _line(old, new, step[:, None], (grid - time[left])[:, None])
    return np.where(between[:, None], at, old).astype(np.float32)


def _line(old: FloatArray, new: FloatArray, step: FloatArray | float, since: FloatArray) -> FloatArray:
    """Values on the straight lines from one sample to the next, some time since the first of them."""
    return (new - old) / step * since + old


def cut(recipe: Recipe, unit: Unit, scaled: Rows, unseen: BoolArray, stride: int) -> UnitCuts:
    """One window for every cycle."""
    grid, bounds = grid_of(recipe), cycle_bounds(unit)
    count = len(bounds) - 1
    rows = np.empty((count, recipe.window, scaled.shape[1]), dtype=np.float32)
    odd = np.zeros(count, dtype=np.uint8)
    for k in range(count):
        rows_of_cycle = unit.cycle(k)
        time = unit.time[rows_of_cycle]
        rows[k] = on_grid(grid, time, scaled[rows_of_cycle])
        needed = int(np.searchsorted(time, grid[-1])) + 1
        steps = np.diff(time[:needed], prepend=min(0.0, time[0]))
        odd[k] = (
            (STRETCHED if needed > len(time) else 0)
            | (GAP if steps.max() > GAP_SHARE * grid[-1] else 0)
            | (UNSEEN if unseen[rows_of_cycle][:needed].any() else 0)
        )
    return UnitCuts(rows.reshape(-1, scaled.shape[1]), np.arange(count) * recipe.window, np.arange(count), odd)


class GridHistory(CycleHistory):
    """The grid as far as the samples reach, and the last sample, to interpolate from."""

    __slots__ = ("grid", "last_row", "last_time")
    scalars = (*CycleHistory.scalars, "last_time")
    arrays = (*CycleHistory.arrays, "last_row")

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.grid = grid_of(recipe)
        self.last_time = 0.0
        self.last_row = np.zeros(recipe.channels, dtype=np.float32)

    def _add(self, row: Rows, position: float) -> None:
        before = self.last_time if self.count else min(0.0, position)
        if position - before > GAP_SHARE * self.grid[-1]:
            self.odd |= GAP
        reached = int(self.grid.searchsorted(position, side="right"))
        if not self.count:
            self.rows[:reached] = row
        elif reached > self.filled:
            old, new = self.last_row.astype(np.float64), row.astype(np.float64)
            since = self.grid[self.filled : reached] - before
            self.rows[self.filled : reached] = _line(old, new, position - before, since[:, None])
            if self.grid[reached - 1] == position:
                self.rows[reached - 1] = row
        self.filled = max(reached, self.filled)
        self.last_time, self.last_row = position, row.copy()

    def _cut_short(self) -> Cut:
        self.rows[self.filled :] = self.last_row
        return self._cut(self.rows.copy(), STRETCHED)

    @property
    def progress(self) -> tuple[float, float]:
        return self.last_time if self.count else 0.0, float(self.grid[-1])


def fits(recipe: Recipe, unit: Unit) -> bool:
    """Every cycle gives a window, however short."""
    return True


def end_in_s(options: RecipeOptions, shortest_in_s: float) -> float:
    """How much of a cycle is read; raises an error if some training cycle ends earlier."""
    end = options.grid_end_in_s or round(GRID_SHARE * shortest_in_s, 1)
    if end > shortest_in_s * 1.1:  # sent in two digits: up to a tenth too short
        raise ConfigError(
            f"recipe.grid_end_in_s = {end:g} is longer than the shortest training cycle ({shortest_in_s:g} s)",
            hint="the grid must end before every cycle does",
        )
    return end


def _lengths(options: RecipeOptions, rows: int, shortest_in_s: float) -> tuple[int, float]:
    return options.grid_points, end_in_s(options, shortest_in_s)


histories.add(
    HistoryRule(
        "grid", "every cycle on a time grid", 20, cut, GridHistory, fits, "s of the cycle", _lengths, cyclic=True
    )
)
