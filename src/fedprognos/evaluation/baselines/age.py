"""Mean residual life: what training units of the same age had left."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.baselines import Baseline, baselines
from fedprognos.features import Recipe, WindowSet


def age(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray | None:
    """Mean capped remaining life of the training units that reached the same age; None for state of health."""
    if recipe.task != "rul":
        return None
    lifespans = np.array([(train.position + train.labels)[train.unit == k].max() for k in np.unique(train.unit)])
    return np.array([_mean_residual_life(lifespans, a, recipe.cap) for a in test.position])


def _mean_residual_life(lifespans: FloatArray, reached: float, cap: float | None) -> float:
    left = lifespans[lifespans > reached] - reached
    return float(np.minimum(left, np.inf if cap is None else cap).mean()) if left.size else 0.0


baselines.add(Baseline("age", "Age", 3, age, by_default=True))
