"""The last known value of the same unit."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.baselines import Baseline, baselines
from fedprognos.features import Recipe, WindowSet


def last(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray | None:
    """The last capped label of each test unit in training; None where test units were never seen there."""
    known = {
        name: float(recipe.capped(train.labels[train.unit == k][-1:])[0])
        for k, name in enumerate(train.unit_ids)
        if (train.unit == k).any()
    }
    if not set(test.unit_ids) <= known.keys():
        return None
    return np.array([known[name] for name in test.unit_ids])[test.unit]


baselines.add(Baseline("last", "Last value", 2, last, by_default=True))
