"""Which columns carry wear: those that move with the remaining life within a unit, in every unit alike.

For each unit u, r_u holds the correlation of every column with the capped label. Clients send the sum of r_u r_u', the
sum of r_u and how many units these are; the rule below needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.features.recipe import Recipe
from fedprognos.features.windows import WindowSet

LEAST_SQUARED = 0.2
"""Least mean r^2 of a column. On C-MAPSS noise and settings are near 0.005, the usual 14 sensors above 0.24."""
LEAST_COMPANY = 0.5
"""Least mean of the two largest correlations with other such columns, over units: wear moves several columns."""
LEAST_T = 6.0
"""A column that moves alone is kept where its mean r is so many standard errors from zero."""
LEAST_UNITS = 20
"""With fewer units, a random walk in one unit cannot be told from wear, and the last two rules do not apply."""


@dataclass(frozen=True, eq=False)
class WearSums:
    """Sums over units of the correlations (C,) of every column with the label.

    Parameters
    ----------
    n
        Units.
    total : (C,)
        Sum of r_u.
    products : (C, C)
        Sum of r_u r_u'.
    """

    n: int
    total: FloatArray
    products: FloatArray

    def add(self, other: WearSums) -> WearSums:
        """Sums of both sets of units."""
        return WearSums(self.n + other.n, self.total + other.total, self.products + other.products)


def wear_sums(windows: WindowSet, recipe: Recipe) -> WearSums:
    """The sums of some units; columns are scaled by the recipe, so that operating conditions do not move them."""
    width = len(recipe.sensors)
    labels, rows = recipe.capped(windows.labels), windows.starts + windows.length - 1
    n, total, products = 0, np.zeros(width), np.zeros((width, width))
    for unit in np.unique(windows.unit):
        at = windows.unit == unit
        correlations = _correlations(windows.features[rows[at], :width].astype(np.float64), labels[at])
        if correlations is not None:
            n += 1
            total += correlations
            products += np.outer(correlations, correlations)
    return WearSums(n, total, products)


def _correlations(columns: FloatArray, labels: FloatArray) -> FloatArray | None:
    """Correlation of each column (T, C) with the labels (T,); None where the labels never change."""
    x, y = columns - columns.mean(axis=0), labels - labels.mean()
    if len(y) < 3 or not np.square(y).sum() > 0:
        return None
    spread = np.sqrt(np.square(x).sum(axis=0) * np.square(y).sum())
    moves = spread > 1e-12 * len(y)
    return np.asarray(np.where(moves, x.T @ y / np.where(moves, spread, 1.0), 0.0))


def carries_wear(sums: WearSums) -> BoolArray:
    """Which columns (C,) carry wear; all of them where none seems to.

    Noise moves with the label in no unit. A random walk does so in some units, but not together with other columns and
    not in the same direction every time. A signed mean alone would lose sensors that two kinds of fault move both ways.
    """
    if sums.n < 1:
        return np.ones(len(sums.total), dtype=bool)
    squared = np.diag(sums.products) / sums.n
    moving: BoolArray = squared >= LEAST_SQUARED
    kept = moving.copy()
    if sums.n >= LEAST_UNITS and np.count_nonzero(moving) > 2:
        scale = np.sqrt(np.diag(sums.products))
        together = np.abs(sums.products) / np.maximum(np.outer(scale, scale), 1e-12)
        np.fill_diagonal(together, 0.0)
        together[:, ~moving] = 0.0
        company = np.sort(together, axis=1)[:, -2:].mean(axis=1)
        mean = sums.total / sums.n
        error = np.sqrt(np.maximum(squared - np.square(mean), 1e-12) / sums.n)
        kept &= (company >= LEAST_COMPANY) | (np.abs(mean) / error >= LEAST_T)
    return kept if kept.any() else np.ones(len(kept), dtype=bool)
