"""The coordinate-wise median over the holders of each neuron: one client in three may send anything."""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stack, aggregators
from fedprognos.federation.aggregation._stack import Floats, Indices


def median(stack: Stack) -> Floats:
    """Coordinate-wise median over the holders of each row."""

    def middle(ordered: Floats, held: Indices) -> Floats:
        last = np.maximum(held - 1, 0)
        low, high = (np.take_along_axis(ordered, k[None, :, None], axis=0)[0] for k in (last // 2, last - last // 2))
        return np.asarray((low + high) / 2)

    return stack.ordered(middle)


aggregators.add(Aggregator("median", "median", 40, median, robust=True))
