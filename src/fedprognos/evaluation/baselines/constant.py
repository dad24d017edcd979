"""The mean label of the training data, always."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.baselines import Baseline, baselines
from fedprognos.features import Recipe, WindowSet


def constant(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """The mean capped label of the training data."""
    return np.full(len(test), float(recipe.capped(train.labels).mean()))


baselines.add(Baseline("constant", "Constant", 1, constant, by_default=True))
