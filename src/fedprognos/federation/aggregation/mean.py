"""The mean over the holders of each neuron: the paper's Eq. 6 and 7."""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stack, aggregators
from fedprognos.federation.aggregation._stack import Floats


def mean(stack: Stack) -> Floats:
    """Weighted mean over the holders of each row; zero where there are none."""
    total, held = stack.sums()
    return total / np.where(held > 0, held, 1.0)


aggregators.add(Aggregator("mean", "mean", 10, mean))
