"""Centred clipping (Karimireddy, He & Jaggi, 2021): steps towards the clients, none longer than a radius.

The radius is the median of the clients' distances, so that nobody has to choose it.
"""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stacks, aggregators
from fedprognos.federation.aggregation._whole import Whole, whole
from fedprognos.federation.aggregation.mean import mean

STEPS = 5


def centred_clipping(models: Whole) -> Stacks:
    """Draw every client to the centre as far as it is beyond the radius."""
    centre, factors = models.start, np.ones(len(models.values))
    for _ in range(STEPS):
        distances = models.distances_to(centre)
        factors = np.minimum(1.0, np.median(distances) / np.maximum(distances, 1e-300))
        last, centre = centre, models.mean(centre + factors[:, None] * (models.values - centre))
    return models.drawn_to(last, factors)


aggregators.add(
    Aggregator("clipped", "centred clipping", 80, mean, by_size=True, prepare=whole(centred_clipping), robust=True)
)
