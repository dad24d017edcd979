"""Cyclic units: when one sensor first falls to each of some levels, and what the others read then.

Wear stretches a discharge curve along time. The voltage at a given time is a curved function of the remaining capacity.
The time at a given voltage is nearly linear in it, so a linear head can extrapolate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, Rows
from fedprognos.features.history import GAP, STRETCHED, UNSEEN, Cut, HistoryRule, UnitCuts, histories
from fedprognos.features.history._cycle import CycleHistory, cycle_bounds
from fedprognos.features.history.grid import GAP_SHARE, end_in_s, fits, on_grid
from fedprognos.features.recipe import Recipe
from fedprognos.fleet import Unit
from fedprognos.tables import fall_of_cycle

if TYPE_CHECKING:
    from fedprognos.features.recipe_options import RecipeOptions


def levels_of(recipe: Recipe) -> FloatArray:
    """The levels, falling (window,)."""
    high, low = recipe.level_bounds or (0.0, 0.0)
    return np.linspace(high, low, recipe.window)


def looked_at(end: float, time: FloatArray, rows: Rows) -> tuple[FloatArray, Rows]:
    """The samples before `end`, and one at `end` if the cycle lasts that long."""
    inside = int(np.searchsorted(time, end))
    if inside == len(time):
        return time, rows
    last = on_grid(np.array([end]), time, rows)
    return np.append(time[:inside], end), np.concatenate([rows[:inside], last])


def at_levels(levels: FloatArray, column: int, end: float, time: FloatArray, rows: Rows) -> tuple[FloatArray, Rows]:
    """Times (levels,) at which a column of samples (T, C) first falls to falling levels, and all columns then.

    A level at or above the first sample is met at time 0, one that is not reached at `end`.

    >>> time, rows = np.array([0.0, 10.0, 20.0]), np.array([[4.0, 0.0], [3.0, 50.0], [3.5, 70.0]], np.float32)
    >>> when, then = at_levels(np.array([4.5, 3.75, 2.0]), 0, 20.0, time, rows)
    >>> when.tolist(), then[:, 1].tolist()
    ([0.0, 2.5, 20.0], [0.0, 12.5, 70.0])
    """
    low = np.minimum.accumulate(rows[:, column].astype(np.float64))
    first_below = np.searchsorted(-low, -levels)
    right = np.minimum(first_below, len(low) - 1)
    left = np.maximum(right - 1, 0)
    between = (first_below > 0) & (first_below < len(low))
    fall = np.where(between, low[left] - low[right], 1.0)
    step = np.where(between, time[right] - time[left], 1.0)
    after = np.where(between, (low[left] - levels) / fall * step, 0.0)
    old, new = rows[left].astype(np.float64), rows[right].astype(np.float64)
    then = np.where(between[:, None], (new - old) / step[:, None] * after[:, None] + old, new)
    when = np.where(between, np.clip(time[left] + after, 0.0, end), np.where(first_below > 0, end, 0.0))
    return when, then.astype(np.float32)


def bounds_of(units: Iterable[Unit], column: int, end: float) -> tuple[float, float]:
    """Bounds that every cycle passes after its load has set in: the lowest early value and the highest one reached.

    A battery's voltage recovers once the load is taken off, so the value at the end need not be the lowest.
    """
    early, late = [], []
    for unit in units:
        for k in range(len(cycle_bounds(unit)) - 1):
            rows_of_cycle = unit.cycle(k)
            time, values = unit.time[rows_of_cycle], unit.sensors[rows_of_cycle, column]
            high, low = fall_of_cycle(time, values, end)
            early.append(high)
            late.append(low)
    return float(min(early)), float(max(late))


def cut(recipe: Recipe, unit: Unit, scaled: Rows, unseen: BoolArray, stride: int) -> UnitCuts:
    """One window for every cycle."""
    levels, bounds, end = levels_of(recipe), cycle_bounds(unit), float(recipe.grid_end_in_s or 0.0)
    column = recipe.level_column
    count = len(bounds) - 1
    rows = np.empty((count, recipe.window, scaled.shape[1]), dtype=np.float32)
    odd = np.zeros(count, dtype=np.uint8)
    for k in range(count):
        rows_of_cycle = unit.cycle(k)
        time, samples = looked_at(end, unit.time[rows_of_cycle], scaled[rows_of_cycle])
        when, rows[k] = at_levels(levels, column, end, time, samples)
        rows[k, :, column] = recipe.scale_level_times(when)
        reached = np.flatnonzero(samples[:, column] <= levels[-1])
        needed = int(reached[0]) + 1 if len(reached) else len(time) + int(time[-1] < end)
        steps = np.diff(unit.time[rows_of_cycle][:needed], prepend=min(0.0, time[0]))
        odd[k] = (
            (STRETCHED if needed > len(time) else 0)
            | (GAP if steps.max() > GAP_SHARE * end else 0)
            | (UNSEEN if unseen[rows_of_cycle][:needed].any() else 0)
        )
    return UnitCuts(rows.reshape(-1, scaled.shape[1]), np.arange(count) * recipe.window, np.arange(count), odd)


class LevelHistory(CycleHistory):
    """The levels met so far, and the last sample, with the lowest value until then, to interpolate from."""

    __slots__ = ("column", "end", "last_row", "last_time", "levels", "low", "recipe")
    scalars = (*CycleHistory.scalars, "last_time", "low")
    arrays = (*CycleHistory.arrays, "last_row")

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.recipe, self.levels, self.column = recipe, levels_of(recipe), recipe.level_column
        self.end = float(recipe.grid_end_in_s or 0.0)
        self.last_time, self.low = 0.0, 0.0
        self.last_row = np.zeros(recipe.channels, dtype=np.float32)

    def _add(self, row: Rows, position: float) -> None:
        before = self.last_time if self.count else min(0.0, position)
        if position - before > GAP_SHARE * self.end:
            self.odd |= GAP
        time, rows = np.array([position]), row[None]
        if self.count:
            time, rows = np.array([before, position]), np.stack([self.last_row, row])
        over = position >= self.end
        if over:
            time, rows = looked_at(self.end, time, rows)
        self._fill(time, rows, ended=over)
        self.last_time, self.last_row = position, row.copy()

    def _fill(self, time: FloatArray, rows: Rows, *, ended: bool) -> None:
        """Write the levels that the newest sample meets; at the end of a cycle, all that are left."""
        value = float(rows[-1, self.column])
        low = min(self.low, value) if self.count else value
        met = self.length if ended else int(np.searchsorted(-self.levels, -low, side="right"))
        if met > self.filled:
            # The lowest value so far stands for the earlier sample: between the two the level is met on the line
            # from that value, while the other columns follow their own samples.
            falling = rows.copy()
            if len(rows) > 1:
                falling[0, self.column] = self.low
            when, then = at_levels(self.levels[self.filled : met], self.column, self.end, time, falling)
            then[:, self.column] = self.recipe.scale_level_times(when)
            self.rows[self.filled : met] = then
            self.filled = met
        self.low = low

    def _cut_short(self) -> Cut:
        self._fill(np.array([self.last_time]), self.last_row[None], ended=True)
        return self._cut(self.rows.copy(), STRETCHED)

    @property
    def progress(self) -> tuple[float, float]:
        return self.last_time if self.count else 0.0, self.end


def _lengths(options: RecipeOptions, rows: int, shortest_in_s: float) -> tuple[int, float]:
    return options.level_points, end_in_s(options, shortest_in_s)


histories.add(
    HistoryRule(
        "levels",
        "every cycle at levels of a sensor",
        25,
        cut,
        LevelHistory,
        fits,
        "s of the cycle",
        _lengths,
        cyclic=True,
    )
)
