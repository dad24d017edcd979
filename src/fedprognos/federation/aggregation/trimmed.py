"""The coordinate-wise mean over the holders of each neuron without the lowest and highest tenth."""

from __future__ import annotations

import numpy as np

from fedprognos.federation.aggregation import Aggregator, Stack, aggregators
from fedprognos.federation.aggregation._stack import Floats, Indices

TRIM = 0.1
"""Share of the holders left out at either end; at least one of three or more."""


def trimmed_mean(stack: Stack) -> Floats:
    """Coordinate-wise mean over the holders of each row, the lowest and highest share left out."""

    def inner(ordered: Floats, held: Indices) -> Floats:
        out = np.where(held >= 3, np.maximum(np.floor(TRIM * held), 1), 0)
        rank = np.arange(len(ordered))[:, None]
        kept = (rank >= out) & (rank < held - out)
        total = np.where(kept[:, :, None], ordered, 0.0).sum(axis=0)
        return np.asarray(total / np.maximum(kept.sum(axis=0), 1)[:, None])

    return stack.ordered(inner)


aggregators.add(Aggregator("trimmed", "trimmed mean", 50, trimmed_mean, robust=True))
