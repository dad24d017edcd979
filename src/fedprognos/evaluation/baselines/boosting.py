"""Gradient boosting on rolling statistics of the window; needs scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import MissingExtraError
from fedprognos.evaluation.baselines import BATCH, Baseline, baselines
from fedprognos.features import Recipe, WindowSet


def boosting(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """Gradient boosting on last, recent mean, mean, deviation and slope of every channel."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise MissingExtraError("scikit-learn", "boost", "the boosting baseline") from None
    model = HistGradientBoostingRegressor(random_state=0, early_stopping=False, max_iter=200, learning_rate=0.05)
    model.fit(_statistics(train), recipe.encode(train.labels))
    return recipe.decode(model.predict(_statistics(test)))


def _statistics(windows: WindowSet) -> NDArray[np.float32]:
    step = np.linspace(-1, 1, windows.length, dtype=np.float32)[:, None]
    slope = step / np.square(step).sum()
    return np.concatenate(
        [
            np.concatenate([b[:, -1], b[:, -5:].mean(1), b.mean(1), b.std(1), (b * slope).sum(1)], axis=1)
            for b in windows.batches(BATCH)
        ]
    )


baselines.add(Baseline("boosting", "Boosting", 5, boosting))
