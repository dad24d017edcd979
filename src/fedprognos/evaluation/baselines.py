"""Baselines that cost next to nothing: a network that does not beat them has learnt nothing worth having.

Each baseline is a function from training windows, test windows and the recipe to predictions (N,), or to None where it
does not apply. It puts itself on the shelf with `baselines.add`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from fedprognos.arrays import FloatArray
from fedprognos.errors import MissingExtraError
from fedprognos.features import Recipe, WindowSet, hold_out
from fedprognos.shelf import Shelf

BATCH = 2048
"""Windows that a baseline reads at a time, so that long histories fit into memory."""
RIDGE_STRENGTHS = tuple(10.0**k for k in range(-9, 4))
"""Strengths tried, relative to the mean diagonal of X'X."""


@dataclass(frozen=True)
class Baseline:
    """A rule that predicts without training a network.

    Parameters
    ----------
    name, label, order
        Its name in files, its name for people, and its place in tables.
    predict
        From training windows, test windows and the recipe to predictions (N,); None where the rule does not apply.
    selected_on
        "validation" if it chooses anything on held-out training data.
    by_default
        True if experiments that name no baselines run it.
    """

    name: str
    label: str
    order: int
    predict: Callable[[WindowSet, WindowSet, Recipe], FloatArray | None]
    selected_on: Literal["validation", "last"] = "last"
    by_default: bool = False


baselines: Shelf[Baseline] = Shelf("baseline", __name__, "fedprognos.baselines")
BaselineName = Annotated[str, AfterValidator(baselines.known)]
"""The name of a baseline on the shelf, in options."""


def constant(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """The mean capped label of the training data."""
    return np.full(len(test), float(recipe.capped(train.labels).mean()))


def last(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray | None:
    """The last capped label of each test unit in training; None if some test unit is not in the training data."""
    last_label = {
        name: float(recipe.capped(train.labels[train.unit == k][-1:])[0])
        for k, name in enumerate(train.unit_ids)
        if (train.unit == k).any()
    }
    if not set(test.unit_ids) <= last_label.keys():
        return None
    return np.array([last_label[name] for name in test.unit_ids])[test.unit]


def age(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray | None:
    """Mean residual life: what training units of the same age had left, capped; None for state of health."""
    if recipe.task != "rul":
        return None
    lifespans = np.array([(train.position + train.labels)[train.unit == k].max() for k in np.unique(train.unit)])
    return np.array([_mean_residual_life(lifespans, reached, recipe.cap) for reached in test.position])


def _mean_residual_life(lifespans: FloatArray, reached: float, cap: float | None) -> float:
    left = lifespans[lifespans > reached] - reached
    return float(np.minimum(left, np.inf if cap is None else cap).mean()) if left.size else 0.0


def ridge(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """Linear regression on the whole window, its strength chosen on a part of the training data, then refitted."""
    part, held = hold_out(train, 0.25, seed=0)
    strength = RIDGE_STRENGTHS[len(RIDGE_STRENGTHS) // 2]
    if held is not None:
        gram, moment = _normal_equations(part, recipe)
        truth = recipe.capped(held.labels)
        errors = [
            np.square(_linear(held, recipe, plain_ridge(gram, moment, s)) - truth).mean() for s in RIDGE_STRENGTHS
        ]
        strength = RIDGE_STRENGTHS[int(np.argmin(errors))]
    return _linear(test, recipe, plain_ridge(*_normal_equations(train, recipe), strength))


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


def plain_ridge(gram: FloatArray, moment: FloatArray, strength: float) -> FloatArray:
    """Coefficients with the same penalty on every column, relative to the mean diagonal; the last is the intercept."""
    penalty = np.full(len(moment), strength * np.trace(gram) / len(gram))
    penalty[-1] = 0.0  # the intercept is free
    return np.linalg.solve(gram + np.diag(penalty), moment).astype(np.float64)


def _linear(windows: WindowSet, recipe: Recipe, coefficients: FloatArray) -> FloatArray:
    return recipe.decode(np.concatenate([_flat(batch) @ coefficients for batch in windows.batches(BATCH)]))


def _flat(batch: NDArray[np.float32]) -> FloatArray:
    x = batch.reshape(len(batch), -1).astype(np.float64)
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def boosting(train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray:
    """Gradient boosting on last, recent mean, mean, deviation and slope of every channel; needs scikit-learn."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise MissingExtraError("scikit-learn", "boost", "the boosting baseline") from None
    model = HistGradientBoostingRegressor(random_state=0, early_stopping=False, max_iter=200, learning_rate=0.05)
    model.fit(_statistics(train), recipe.encode(train.labels))
    return recipe.decode(model.predict(_statistics(test)))


def _statistics(windows: WindowSet) -> NDArray[np.float32]:
    step = np.linspace(-1, 1, windows.length, dtype=np.float32)[:, None]
    slope = step / np.square(step).sum()  # the inner product with it is the least-squares slope
    return np.concatenate(
        [
            np.concatenate([b[:, -1], b[:, -5:].mean(1), b.mean(1), b.std(1), (b * slope).sum(1)], axis=1)
            for b in windows.batches(BATCH)
        ]
    )


baselines.add(Baseline("constant", "Constant", 1, constant, by_default=True))
baselines.add(Baseline("last", "Last value", 2, last, by_default=True))
baselines.add(Baseline("age", "Age", 3, age, by_default=True))
baselines.add(Baseline("ridge", "Ridge", 4, ridge, selected_on="validation", by_default=True))
baselines.add(Baseline("boosting", "Boosting", 5, boosting))

__all__ = ["RIDGE_STRENGTHS", "Baseline", "BaselineName", "baselines", "plain_ridge"]
