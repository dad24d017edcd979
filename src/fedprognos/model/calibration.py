"""Prediction intervals by split conformal prediction, from a histogram of residuals (Vovk et al., 2005).

Residuals are taken from units the model did not learn from, one a unit, against raw labels. A residual
is measured in units of `scale(prediction)`: an RUL error grows with the RUL, so intervals narrow as the end comes
near. Histograms add up, so sites can calibrate together without telling a residual.
"""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedprognos.errors import BundleError
from fedprognos.features import Recipe

FloatArray = NDArray[np.float64]
FLOOR = 0.1
"""RUL residuals are measured in units of the prediction plus this share of the largest label learnt."""
EDGES = tuple(np.round(np.linspace(-3.0, 3.0, 301), 4).tolist())
"""Edges between which scaled residuals are counted."""


def residual_scale(predictions: FloatArray, unit: float, growing: bool) -> FloatArray:
    """What residuals are measured in at each prediction."""
    return predictions + FLOOR * unit if growing else np.full_like(predictions, unit)


def residual_unit(recipe: Recipe) -> tuple[float, bool]:
    """What a recipe's residuals are measured in, and whether they grow with the prediction."""
    if recipe.task == "rul":
        return (recipe.cap or recipe.label_mean + 2 * recipe.label_std), True
    return recipe.label_std, False


class Calibration(BaseModel):
    """A histogram of scaled residuals (prediction minus raw label).

    Parameters
    ----------
    edges
        Increasing.
    counts
        Residuals below the first edge, between edges, above the last: one more than there are edges.
    unit
        What residuals are measured in: for SoH this; for RUL the prediction plus a share of it.
    growing
        Whether residuals grow with the prediction (RUL).

    Examples
    --------
    >>> c = Calibration(edges=(-1.0, 0.0, 1.0), counts=(0, 30, 30, 0), unit=1.0, growing=False)
    >>> [x.tolist() for x in c.interval(np.array([5.0]), 0.9)]
    [[4.0], [6.0]]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    edges: Annotated[tuple[float, ...], Field(min_length=2)]
    counts: tuple[Annotated[int, Field(ge=0)], ...]
    unit: Annotated[float, Field(gt=0)]
    growing: bool

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.counts) != len(self.edges) + 1 or not all(np.diff(self.edges) > 0):
            raise ValueError("edges must increase, with one more count than edges")
        return self

    @property
    def n(self) -> int:
        """Residuals behind it."""
        return sum(self.counts)

    def scale(self, predictions: FloatArray) -> FloatArray:
        """What residuals are measured in at each prediction."""
        return residual_scale(predictions, self.unit, self.growing)

    def interval(self, predictions: FloatArray, coverage: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds that hold the raw label with at least the given probability.

        Bounds fall on edges, outwards; where there are too few residuals for the coverage, or too many beyond the
        edges, the bound is infinite (or 0 below, as health is never negative).
        """
        if not 0.0 < coverage < 1.0:
            raise BundleError(f"coverage {coverage} is not between 0 and 1")
        below, above = self._quantiles(coverage)
        scale = self.scale(predictions)
        return np.maximum(predictions - above * scale, 0.0), predictions - below * scale

    def _quantiles(self, coverage: float) -> tuple[float, float]:
        """Edges between which enough residuals lie, each tail given half of what may be missed."""
        total = np.cumsum(self.counts)
        edges = np.array([-np.inf, *self.edges, np.inf])
        rank = (self.n + 1) * (1 - coverage) / 2
        low_bin = int(np.searchsorted(total, np.floor(rank), side="left")) if np.floor(rank) >= 1 else 0
        high = int(np.ceil((self.n + 1) - rank))
        high_bin = int(np.searchsorted(total, high, side="left")) if high <= self.n else len(self.counts) - 1
        return float(edges[low_bin]), float(edges[high_bin + 1])


def add_calibrations(parts: list[Calibration]) -> Calibration:
    """Sum of several sites' histograms over the same edges."""
    if not parts or any(p.model_copy(update={"counts": parts[0].counts}) != parts[0] for p in parts):
        raise BundleError("calibrations over different edges cannot be added")
    counts = np.sum([p.counts for p in parts], axis=0)
    return parts[0].model_copy(update={"counts": tuple(int(c) for c in counts)})
