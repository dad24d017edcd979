"""Yardsticks that cost nothing: a network that does not beat them has learnt nothing worth having."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import MissingExtraError
from fedprognos.features import Recipe, WindowSet, hold_out

RIDGES = tuple(10.0**k for k in range(-9, 4))
"""Ridge strengths tried, relative to the mean diagonal of X'X; chosen on the held-out part of the training data."""
BATCH = 2048

Yardstick = Callable[[WindowSet, WindowSet, Recipe], FloatArray | None]


def constant(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """The mean label of the training data, always."""
    return np.full(len(test), float(recipe.capped(train.labels).mean()))


def last(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray | None:
    """The last known value of the same unit; None where test units were never seen in training."""
    known = {
        name: float(recipe.capped(train.labels[train.unit == k][-1:])[0])
        for k, name in enumerate(train.unit_ids)
        if (train.unit == k).any()
    }
    if not set(test.unit_ids) <= known.keys():
        return None
    return np.array([known[name] for name in test.unit_ids])[test.unit]


def age(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray | None:
    """Mean remaining life of the training units that reached the same age; None for SoH."""
    if recipe.task != "rul":
        return None
    lifespans = np.array([(train.position + train.labels)[train.unit == k].max() for k in np.unique(train.unit)])
    return np.array([_mean_residual_life(lifespans, a, recipe.cap) for a in test.position])


def _mean_residual_life(lifespans: FloatArray, reached: float, cap: float | None) -> float:
    left = lifespans[lifespans > reached] - reached
    return float(np.minimum(left, np.inf if cap is None else cap).mean()) if left.size else 0.0


def ridge(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """Linear regression on the whole window, its strength chosen on a part of the training data, then refitted."""
    part, held = hold_out(train, 0.25, seed=0)
    strength = RIDGES[len(RIDGES) // 2]
    if held is not None:
        gram, moment = _normal_equations(part, recipe)
        truth = recipe.capped(held.labels)
        errors = [np.square(_apply(held, recipe, _solve(gram, moment, s)) - truth).mean() for s in RIDGES]
        strength = RIDGES[int(np.argmin(errors))]
    return _apply(test, recipe, _solve(*_normal_equations(train, recipe), strength))


def boosting(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """Gradient boosting on rolling statistics of the window (last, mean, deviation, slope of every channel)."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise MissingExtraError("scikit-learn", "boost", "the boosting yardstick") from None
    model = HistGradientBoostingRegressor(random_state=0, early_stopping=False, max_iter=200, learning_rate=0.05)
    model.fit(_statistics(train), recipe.encode(train.labels))
    return recipe.decode(model.predict(_statistics(test)))


YARDSTICKS: dict[str, Yardstick] = {
    "constant": constant,
    "last": last,
    "age": age,
    "ridge": ridge,
    "boosting": boosting,
}


def _normal_equations(windows: WindowSet, recipe: Recipe) -> tuple[FloatArray, FloatArray]:
    """X'X and X'y with a ones column, summed batch by batch in float64."""
    size = windows.length * windows.channels + 1
    gram, moment = np.zeros((size, size)), np.zeros(size)
    targets = recipe.encode(windows.labels)
    for start, batch in zip(range(0, len(windows), BATCH), windows.batches(BATCH), strict=True):
        x = _flat(batch)
        gram += x.T @ x
        moment += x.T @ targets[start : start + BATCH]
    return gram, moment


def _solve(gram: FloatArray, moment: FloatArray, strength: float) -> FloatArray:
    penalty = np.full(len(moment), strength * np.trace(gram) / len(gram))
    penalty[-1] = 0.0  # the intercept is free
    return np.linalg.solve(gram + np.diag(penalty), moment).astype(np.float64)


def _apply(windows: WindowSet, recipe: Recipe, coefficients: FloatArray) -> FloatArray:
    return recipe.decode(np.concatenate([_flat(batch) @ coefficients for batch in windows.batches(BATCH)]))


def _flat(batch: NDArray[np.float32]) -> FloatArray:
    x = batch.reshape(len(batch), -1).astype(np.float64)
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def _statistics(windows: WindowSet) -> NDArray[np.float32]:
    step = np.linspace(-1, 1, windows.length, dtype=np.float32)[:, None]
    slope = step / np.square(step).sum()
    return np.concatenate(
        [
            np.concatenate([b[:, -1], b[:, -5:].mean(1), b.mean(1), b.std(1), (b * slope).sum(1)], axis=1)
            for b in windows.batches(BATCH)
        ]
    )
