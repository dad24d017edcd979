"""The maximum a posteriori mean of each neuron under a prior around zero."""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stack, aggregators
from fedprognos.federation.aggregation._stack import Floats


def map_mean(stack: Stack) -> Floats:
    """Drawn towards zero the more, the fewer hold a row; the head is not drawn."""
    total, held = stack.sums()
    return total / np.where(held > 0, held + stack.ratio, 1.0)


aggregators.add(Aggregator("map", "maximum a posteriori mean", 30, map_mean))
