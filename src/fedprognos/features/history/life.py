"""Series units: the whole life from the first row on, a step for every row; the network carries its state."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import BoolArray, Rows
from fedprognos.features.history import GAP, UNSEEN, Cut, History, HistoryRule, UnitCuts, histories
from fedprognos.features.recipe import Recipe
from fedprognos.fleet import Unit


def cut(recipe: Recipe, unit: Unit, scaled: Rows, unseen: BoolArray, stride: int) -> UnitCuts | None:
    """Every row is a point; what came before it is in the network's state."""
    points = np.arange(unit.rows - 1, -1, -stride)[::-1]
    return UnitCuts(scaled, points.astype(np.int64), points, np.where(unseen[points], UNSEEN, 0).astype(np.uint8))


def fits(recipe: Recipe, unit: Unit) -> bool:
    """A single row is a life."""
    return unit.rows >= 1


class LifeHistory(History):
    """The row itself: what the network remembers of earlier ones is its own state."""

    __slots__ = ("count",)
    scalars = ("count",)

    def __init__(self, recipe: Recipe) -> None:
        self.count = 0

    def push(
        self, row: Rows, position: float, *, cycle: int = 0, end: bool = False, unseen: bool = False, gap: bool = False
    ) -> tuple[Cut, ...]:
        self.count += 1
        return (Cut(position, (GAP if gap else 0) | (UNSEEN if unseen else 0), row[None]),)

    def count_rows(self, rows: int) -> None:
        self.count += rows

    @property
    def progress(self) -> tuple[float, float]:
        return min(self.count, 1), 1


histories.add(
    HistoryRule(
        "life",
        "whole life",
        20,
        cut,
        LifeHistory,
        fits,
        "rows",
        lambda *_: (1, None),
        reach=lambda _: None,
    )
)
