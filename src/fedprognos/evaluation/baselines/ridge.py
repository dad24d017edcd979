"""Ridge regression on the whole window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.baselines import BATCH, Baseline, baselines
from fedprognos.features import Recipe, WindowSet, hold_out

STRENGTHS = tuple(10.0**k for k in range(-9, 4))
"""Strengths tried, relative to the mean diagonal of X'X; chosen on a held-out part of the training data."""


def ridge(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """Linear regression on the whole window, its strength chosen on a part of the training data, then refitted."""
    part, held = hold_out(train, 0.25, seed=0)
    strength = STRENGTHS[len(STRENGTHS) // 2]
    if held is not None:
        gram, moment = _normal_equations(part, recipe)
        truth = recipe.capped(held.labels)
        errors = [np.square(_apply(held, recipe, _solve(gram, moment, s)) - truth).mean() for s in STRENGTHS]
        strength = STRENGTHS[int(np.argmin(errors))]
    return _apply(test, recipe, _solve(*_normal_equations(train, recipe), strength))


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


baselines.add(Baseline("ridge", "Ridge", 4, ridge, selected_on="validation", by_default=True))
