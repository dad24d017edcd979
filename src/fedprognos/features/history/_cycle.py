"""What the rules for cyclic units share: a running cycle that begins, fills and ends."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from fedprognos.arrays import IntArray, Rows
from fedprognos.errors import RecipeError
from fedprognos.features.history import GAP, UNSEEN, Cut, History
from fedprognos.features.recipe import Recipe
from fedprognos.fleet import Unit


def cycle_bounds(unit: Unit) -> IntArray:
    """Row offsets of a unit's cycles (K + 1,)."""
    if unit.cycles is None:
        raise RecipeError(
            "the unit has no cycles",
            where=f"unit {unit.id}",
            hint="this model reads cycles: give rows with a cycle number",
        )
    return unit.cycles


class CycleHistory(History):
    """The running cycle, as far as it is filled."""

    __slots__ = ("complete", "count", "cycle", "filled", "length", "odd", "rows")
    scalars: ClassVar[tuple[str, ...]] = ("cycle", "count", "filled", "complete", "odd")
    arrays: ClassVar[tuple[str, ...]] = ("rows",)

    def __init__(self, recipe: Recipe) -> None:
        self.length = recipe.window
        self.rows = np.zeros((recipe.window, recipe.channels), dtype=np.float32)
        self._begin(0)

    def _begin(self, cycle: int) -> None:
        self.cycle, self.count, self.filled, self.odd = cycle, 0, 0, 0
        self.complete = False

    def push(
        self, row: Rows, position: float, *, cycle: int = 0, end: bool = False, unseen: bool = False, gap: bool = False
    ) -> tuple[Cut, ...]:
        ended: tuple[Cut, ...] = ()
        if cycle != self.cycle:
            ended = self.close()
            self._begin(cycle)
        if self.complete:
            return ended
        self.odd |= (UNSEEN if unseen else 0) | (GAP if gap else 0)
        self._add(row, position)
        self.count += 1
        if self.filled == self.length:
            return (*ended, self._cut(self.rows.copy(), 0))
        return (*ended, *self.close()) if end else ended

    def close(self) -> tuple[Cut, ...]:
        if self.complete or not self.count:
            return ()
        return (self._cut_short(),)

    def _cut(self, window: Rows | None, odd: int) -> Cut:
        self.complete = True
        return Cut(float(self.cycle), self.odd | odd, window)

    @abstractmethod
    def _add(self, row: Rows, position: float) -> None:
        """Put a sample where it belongs."""

    @abstractmethod
    def _cut_short(self) -> Cut:
        """The window of a cycle that ended before it was filled."""
