"""Whether a unit has reached its end of life by a threshold of its health, row by row."""

from __future__ import annotations

import math

import numpy as np

from fedprognos.features import Recipe, RowMemory
from fedprognos.tables import LATEST, TableLayout, first_health, is_worn

WORN = "worn"
"""The end of life is reached: no life is left, and the network is not asked."""


class WornWatch(RowMemory):
    """First and latest values of one unit's health; that it is worn latches.

    Parameters
    ----------
    column
        Of the health among the recipe's sensors.
    share
        Of the first value, below which a unit is worn.
    """

    __slots__ = ("column", "count", "first", "latest", "share", "worn")
    scalars = ("count", "worn")
    arrays = ("first", "latest")

    def __init__(self, column: int, share: float) -> None:
        self.column, self.share = column, share
        self.first, self.latest = np.full(LATEST, np.nan), np.full(LATEST, np.nan)
        self.count = 0
        self.worn = False

    @staticmethod
    def for_model(recipe: Recipe, table: TableLayout | None) -> WornWatch | None:
        """A watch for a unit of a model whose lives end by a threshold; None for other models."""
        if recipe.task != "rul" or table is None or table.health not in recipe.sensors:
            return None
        return WornWatch(recipe.sensors.index(table.health), table.end_of_life)

    def push(self, value: float) -> None:
        """Note the health of one more row; a blank one says nothing."""
        if math.isnan(value):
            return
        if self.count < LATEST:
            self.first[self.count] = value
        self.latest = np.append(self.latest[1:], value)
        self.count += 1
        if self.count >= LATEST:
            self.worn = self.worn or is_worn(first_health(self.first), self.latest, self.share)

    def words(self, sensors: tuple[str, ...]) -> str:
        """Why the unit is worn."""
        return f"end of life reached: {sensors[self.column]} is below {self.share:.0%} of its first value"
