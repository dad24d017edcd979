"""Cyclic units: the first samples of every cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprognos.arrays import BoolArray, Rows
from fedprognos.features.history import PADDED, UNSEEN, Cut, HistoryRule, UnitCuts, histories, padded
from fedprognos.features.history._cycle import CycleHistory, cycle_bounds
from fedprognos.features.recipe import Recipe
from fedprognos.fleet import Unit

if TYPE_CHECKING:
    from fedprognos.features.recipe_options import RecipeOptions


def cut(recipe: Recipe, unit: Unit, scaled: Rows, unseen: BoolArray, stride: int) -> UnitCuts | None:
    """One window for every cycle; short ones are left out and counted, or padded."""
    if not fits(recipe, unit):
        return None
    bounds = cycle_bounds(unit)
    short = np.diff(bounds) < recipe.window
    met = np.concatenate([[0], np.cumsum(unseen)])
    odd = np.where(met[np.minimum(bounds[:-1] + recipe.window, bounds[1:])] > met[bounds[:-1]], UNSEEN, 0)
    if short.any() and recipe.short == "pad":
        every = np.arange(len(short))
        rows = np.concatenate([padded(scaled[unit.cycle(k)][: recipe.window], recipe.window) for k in every.tolist()])
        return UnitCuts(rows, every * recipe.window, every, np.where(short, odd | PADDED, odd).astype(np.uint8))
    kept = np.flatnonzero(~short)
    return UnitCuts(scaled, bounds[:-1][kept], kept, odd[kept].astype(np.uint8))


def fits(recipe: Recipe, unit: Unit) -> bool:
    """True if some cycle has enough samples, or cycles are padded."""
    return recipe.short == "pad" or bool((np.diff(cycle_bounds(unit)) >= recipe.window).any())


class IndexHistory(CycleHistory):
    """The first samples of the running cycle."""

    __slots__ = ("pads",)

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.pads = recipe.short == "pad"

    def _add(self, row: Rows, position: float) -> None:
        self.rows[self.filled] = row
        self.filled += 1

    def _cut_short(self) -> Cut:
        return self._cut(padded(self.rows[: self.filled], self.length), PADDED) if self.pads else self._cut(None, 0)

    @property
    def progress(self) -> tuple[float, float]:
        return self.filled, self.length


def _lengths(options: RecipeOptions, rows: int, shortest_in_s: float) -> tuple[int, None]:
    return options.length or rows, None


histories.add(
    HistoryRule(
        "index",
        "first samples of every cycle",
        30,
        cut,
        IndexHistory,
        fits,
        "samples of the cycle",
        _lengths,
        cyclic=True,
    )
)
