"""Bounds that every honest reply keeps, for the checks of the exchanges.

They are far beyond what real fleets have: they stop replies that would overflow a sum or decide it alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.networks import HeadStatistics, NetworkSpec
from fedprognos.networks.cells import cells

LARGEST_VALUE = 1e9
"""No column or label is larger, nor spread wider."""
LARGEST_WEIGHT = 1e4
"""No trained weight is larger."""
MOST_ROWS = 10**9
"""No client has more rows, and a sum of so many counts cannot overflow."""
MOST_CLIENTS = 100_000
"""No sum is of more clients."""
ROUNDING = 1e-6
"""Share by which sums may differ from what exact arithmetic gives."""


def check_count(count: int, most: int) -> None:
    """Raise unless a number of points is possible."""
    if not 1 <= count <= most:
        raise MessageError(f"sent a sum of {min(count, MOST_ROWS)} points; it can have 1 to {most}")


def check_weights_size(weights: Mapping[str, NDArray[np.float32]]) -> None:
    """Raise where a weight is larger than any that training gives."""
    for name, tensor in weights.items():
        if tensor.size and float(np.abs(tensor).max()) > LARGEST_WEIGHT:
            raise MessageError(f"sent weights beyond {LARGEST_WEIGHT:g} in tensor '{name[:60]}'")


def check_head_shape(spec: NetworkSpec, statistics: HeadStatistics) -> None:
    """Raise where statistics are not those of this network's head."""
    hh, hy, width = statistics.hh, statistics.hy, spec.features + 1
    if hh.shape != (width, width) or hy.shape != (width,):
        raise MessageError(f"sent statistics of shape {hh.shape} and {hy.shape} for {width} columns")


def check_head_statistics(spec: NetworkSpec, recipe: Recipe, statistics: HeadStatistics, most_points: int) -> None:
    """Raise where no rows of this network's features and labels have these sums."""
    check_count(statistics.n, most_points)
    check_head_shape(spec, statistics)
    hh, n = statistics.hh, statistics.n
    if abs(hh[-1, -1] - n) > ROUNDING * n or not np.allclose(hh[-1], hh[:, -1], rtol=ROUNDING, atol=ROUNDING):
        raise MessageError("sent statistics whose column of ones does not add up")
    sums = statistics.sums
    sums.check(bounded=False, label_range=_label_range(recipe))
    # Features are the last layer's outputs, then the reservoir's, then inputs; only the first two can be bounded.
    bounded = (spec.hidden if cells[spec.cell].bounded else 0, spec.reservoir)
    inside = np.r_[0 : bounded[0], spec.hidden : spec.hidden + bounded[1]]
    if (sums.S.diagonal()[inside] > n * (1 + ROUNDING)).any():
        raise MessageError("sent outputs outside [-1, 1]")
    if len(hh) > 1 and sums.S.diagonal().max() > n * LARGEST_VALUE**2:
        raise MessageError(f"sent features beyond {LARGEST_VALUE:g}")


def _label_range(recipe: Recipe) -> tuple[float, float]:
    """Lowest and highest standardised label there can be."""
    low = 0.0 if recipe.task == "rul" else -LARGEST_VALUE
    high = LARGEST_VALUE if recipe.cap is None else recipe.cap
    return (low - recipe.label_mean) / recipe.label_std, (high - recipe.label_mean) / recipe.label_std
