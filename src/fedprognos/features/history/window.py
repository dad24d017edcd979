"""Series units: a window of the last rows, at every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprognos.arrays import BoolArray, Rows
from fedprognos.errors import ConfigError
from fedprognos.features.history import GAP, PADDED, UNSEEN, Cut, History, HistoryRule, UnitCuts, histories, padded
from fedprognos.features.recipe import Recipe
from fedprognos.fleet import Unit

if TYPE_CHECKING:
    from fedprognos.features.recipe_options import RecipeOptions


def cut(recipe: Recipe, unit: Unit, scaled: Rows, unseen: BoolArray, stride: int) -> UnitCuts | None:
    """Windows of a whole unit; a short one is left out, or gives one window, padded."""
    if not fits(recipe, unit):
        return None
    # Counted back from the last row, so that the end of life is always among the windows.
    last = np.arange(unit.rows - 1, min(recipe.window, unit.rows) - 2, -stride)[::-1]
    met = np.concatenate([[0], np.cumsum(unseen)])
    odd = np.where(met[last + 1] > met[np.maximum(last + 1 - recipe.window, 0)], UNSEEN, 0)
    missing = max(recipe.window - unit.rows, 0)
    return UnitCuts(
        rows=padded(scaled, recipe.window),
        starts=(last + missing + 1 - recipe.window).astype(np.int64),
        points=last,
        odd=(odd | (PADDED if missing else 0)).astype(np.uint8),
    )


def fits(recipe: Recipe, unit: Unit) -> bool:
    """True if the unit has enough rows for a window, or is padded."""
    return recipe.short == "pad" or unit.rows >= recipe.window


class SlidingHistory(History):
    """The last rows in a ring."""

    __slots__ = ("count", "gap_at", "pads", "ring", "unseen_at")
    scalars = ("count", "unseen_at", "gap_at")
    arrays = ("ring",)

    def __init__(self, recipe: Recipe) -> None:
        self.ring = np.zeros((recipe.window, recipe.channels), dtype=np.float32)
        self.pads = recipe.short == "pad"
        self.count = 0
        self.unseen_at = self.gap_at = -1  # the latest row of which this is known

    def push(
        self, row: Rows, position: float, *, cycle: int = 0, end: bool = False, unseen: bool = False, gap: bool = False
    ) -> tuple[Cut, ...]:
        length = len(self.ring)
        self.ring[self.count % length] = row
        if unseen:
            self.unseen_at = self.count
        if gap:
            self.gap_at = self.count
        self.count += 1
        if self.count < length and not self.pads:
            return ()
        oldest = max(self.count - length, 0)
        odd = PADDED if self.count < length else 0
        odd |= GAP if self.gap_at > oldest else 0
        odd |= UNSEEN if self.unseen_at >= oldest else 0
        return (Cut(position, odd, self._window()),)

    def _window(self) -> Rows:
        at = self.count % len(self.ring)
        if self.count < len(self.ring):
            return padded(self.ring[: self.count], len(self.ring))
        return np.concatenate([self.ring[at:], self.ring[:at]])

    @property
    def progress(self) -> tuple[float, float]:
        return min(self.count, len(self.ring)), len(self.ring)


def _lengths(options: RecipeOptions, rows: int, shortest_in_s: float) -> tuple[int, None]:
    if options.length is None:
        hint = 'set recipe.history = "life", or to the number of rows that the network looks back on'
        raise ConfigError("recipe.history is missing", hint=hint)
    return options.length, None


histories.add(HistoryRule("window", "last rows", 10, cut, SlidingHistory, fits, "rows", _lengths))
