"""Multi-Krum (Blanchard et al., 2017): the mean of the clients that lie closest to others.

With J clients, f = (J - 3) / 2 of them, at least one, may send anything. A client's score is the sum of its squared
distances to its J - f - 2 nearest; the J - f with the lowest are averaged.
"""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stacks, aggregators
from fedprognos.federation.aggregation._whole import Whole, whole
from fedprognos.federation.aggregation.mean import mean


def multi_krum(models: Whole) -> Stacks:
    """Let the clients that are farthest from their neighbours count nothing."""
    count = len(models.values)
    out = max((count - 3) // 2, 1)
    squared = np.sort(np.square(models.distances()), axis=1)[:, 1:]  # without itself
    scores = squared[:, : max(count - out - 2, 1)].sum(axis=1)
    kept = np.argsort(scores, kind="stable")[: count - out]
    return models.with_weights(np.where(np.isin(np.arange(count), kept), models.weights, 0.0))


aggregators.add(Aggregator("krum", "multi-Krum", 70, mean, by_size=True, prepare=whole(multi_krum), robust=True))
