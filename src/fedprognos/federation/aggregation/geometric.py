"""The geometric median of the clients' models (Pillutla et al., 2022), by Weiszfeld's steps.

It is the point whose distances to all models, weighted, add up to the least: half of the weight may be anywhere.
"""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stacks, aggregators
from fedprognos.federation.aggregation._whole import Whole, whole
from fedprognos.federation.aggregation.mean import mean

STEPS, CLOSE = 30, 1e-3
"""Weiszfeld's steps, and the least distance, as a share of the median one, so that no weight is infinite."""


def geometric_median(models: Whole) -> Stacks:
    """Let every client count the less, the farther it is from the middle."""
    weights, centre = models.weights, models.median
    for _ in range(STEPS):
        distances = models.distances_to(centre)
        least = CLOSE * max(float(np.median(distances)), 1e-12)
        weights = models.weights / np.maximum(distances, least)
        centre = models.mean(weights=weights)
    return models.with_weights(weights / weights.sum() * models.weights.sum())


aggregators.add(
    Aggregator("geometric", "geometric median", 60, mean, by_size=True, prepare=whole(geometric_median), robust=True)
)
