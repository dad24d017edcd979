"""Residuals of a model on units it did not learn from, and what of them may leave a client."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks.calibration import (
    even_points,
    neighbours_joined,
    residual_scale,
    residual_unit,
)
from fedprognos.networks.network import Network
from fedprognos.networks.running import predict


@dataclass(frozen=True, eq=False)
class Residuals:
    """Predictions, residuals in units of their scale, and the unit each comes from, all (N,)."""

    predictions: FloatArray
    scaled: FloatArray
    unit: IntArray


def residuals(network: Network, windows: WindowSet, recipe: Recipe) -> Residuals:
    """Residuals at points spread evenly over each unit's life, as many of every unit."""
    chosen = [(mine := np.flatnonzero(windows.unit == k))[even_points(len(mine))] for k in np.unique(windows.unit)]
    points = windows.select(np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int64))
    predicted = predict(network, points, recipe) if len(points) else np.empty(0)
    scale = residual_scale(predicted, *residual_unit(recipe))
    return Residuals(predicted, (predicted - points.labels) / scale, points.unit)


def merge_small_bins(counts: IntArray, present: Sequence[AbstractSet[int]], least: int) -> tuple[IntArray, IntArray]:
    """Histograms and numbers of units, no histogram of fewer than `least` units among them.

    Neighbouring ranges are put together until they have enough, and are sent as the range most of their units were in.

    Parameters
    ----------
    counts : (ranges, edges + 1)
    present
        The units in each range.
    """

    def together(group: Sequence[int]) -> AbstractSet[int]:
        return frozenset().union(*(present[k] for k in group))

    sent, units = np.zeros_like(counts), np.zeros(len(counts), dtype=np.int64)
    for group in neighbours_joined(len(counts), lambda group: len(together(group)), least):
        k = max(group, key=lambda k: len(present[k]))
        sent[k], units[k] = counts[group].sum(axis=0), len(together(group))
    return sent, units
