"""Norm bounding (Sun et al., 2019): no client's change is longer than the median one."""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stacks, aggregators
from fedprognos.federation.aggregation._whole import Whole, whole
from fedprognos.federation.aggregation.mean import mean


def norm_bounding(models: Whole) -> Stacks:
    """Shorten changes that are longer than the median one."""
    lengths = models.distances_to(models.start)
    return models.drawn_to(models.start, np.minimum(1.0, np.median(lengths) / np.maximum(lengths, 1e-300)))


aggregators.add(
    Aggregator("bounded", "norm bounding", 90, mean, by_size=True, prepare=whole(norm_bounding), robust=True)
)
