"""Baselines that cost next to nothing: a network that does not beat them has learnt nothing worth having.

A baseline is fitted once to the training windows of an owner, or of all owners together, and then predicts any test
windows. It puts itself on the shelf with `baselines.add`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.features import Recipe, WindowSet, hold_out
from fedprognos.shelf import Shelf

BATCH = 2048
"""Windows that a baseline reads at a time, so that long histories fit into memory."""
HELD_OUT = 0.25
"""Share of the training units on which a baseline chooses its strength or size; it is then fitted to all."""
RIDGE_STRENGTHS = tuple(10.0**k for k in range(-9, 4))
"""Strengths tried, relative to the mean diagonal of X'X."""
BOOSTING_ROWS = 100_000
"""Boosting is fitted to at most so many windows, spread evenly over all: more cost time and gain next to nothing. All
owners' own models together are fitted to as many."""
MOST_TREES, MOST_OWNERS = 150, 20
TREES = {"learning_rate": 0.1, "max_leaf_nodes": 15, "max_bins": 64, "l2_regularization": 1.0, "early_stopping": False}
"""Small trees and few bins: on FD001 as exact as scikit-learn's defaults, in a third of the time."""
RECENT, SPAN, FIRST = 5, 30, 10
"""Rows behind the rolling features of boosting: the latest, those of a trend, and the first of a history."""

EXTRAPOLATED_ROWS = (5, 10, 20, 50, 100)
"""Latest rows that the line of an extrapolation may run through; the best number is chosen on the training data."""

Fitted = Callable[[WindowSet], FloatArray | None]
"""From test windows to predictions (N,); None where the rule does not apply to them."""


@dataclass(frozen=True)
class Baseline:
    """A rule that predicts without training a network.

    Parameters
    ----------
    name, label, order
        Its name in files, its name for people, and its place in tables.
    fit
        From training windows and the recipe to a function of test windows, or to None where the rule does not apply.
    selected_on
        "validation" if it chooses anything on held-out training data.
    by_default
        True if experiments that name no baselines run it.
    most_owners
        With more owners it is fitted to all data only, as a fit for each would cost more than what it is compared with.
    """

    name: str
    label: str
    order: int
    fit: Callable[[WindowSet, Recipe], Fitted | None]
    selected_on: Literal["validation", "last"] = "last"
    by_default: bool = False
    most_owners: int | None = None

    def predict(self, train: WindowSet, test: WindowSet, recipe: Recipe) -> FloatArray | None:
        """Predictions (N,) for test windows after one look at training windows; None where the rule does not apply."""
        fitted = self.fit(train, recipe)
        return None if fitted is None else fitted(test)


baselines: Shelf[Baseline] = Shelf("baseline", __name__, "fedprognos.baselines")
BaselineName = Annotated[str, AfterValidator(baselines.valid_name)]
"""The name of a baseline on the shelf, in options."""


def constant(train: WindowSet, recipe: Recipe) -> Fitted:
    """The mean capped label of the training data."""
    mean = float(recipe.capped(train.labels).mean())
    return lambda test: np.full(len(test), mean)


def last(train: WindowSet, recipe: Recipe) -> Fitted:
    """The last capped label of each test unit in training; None if some test unit is not in the training data."""
    unit, latest = np.unique(train.unit[::-1], return_index=True)
    labels = recipe.capped(train.labels[::-1][latest])
    last_label = {train.unit_ids[k]: float(label) for k, label in zip(unit, labels, strict=True)}

    def predict(test: WindowSet) -> FloatArray | None:
        if not set(test.unit_ids) <= last_label.keys():
            return None
        return np.array([last_label[name] for name in test.unit_ids])[test.unit]

    return predict


def age(train: WindowSet, recipe: Recipe) -> Fitted | None:
    """Mean residual life: what training units of the same age had left, capped; None for state of health."""
    if recipe.task != "rul":
        return None
    longest = np.full(int(train.unit.max()) + 1, -np.inf)
    np.maximum.at(longest, train.unit, train.position + train.labels)
    lifespans = np.sort(longest[np.isfinite(longest)])
    total = np.concatenate([[0.0], np.cumsum(lifespans)])

    def predict(test: WindowSet) -> FloatArray:
        # Of the units that got older, those with more left than the cap count as the cap, the others as they are.
        dead = np.searchsorted(lifespans, test.position, side="right")
        horizon = test.position + (np.inf if recipe.cap is None else recipe.cap)
        near = np.searchsorted(lifespans, horizon, side="right")
        left = total[near] - total[dead] - (near - dead) * test.position
        left += (len(lifespans) - near) * (recipe.cap or 0.0)
        alive = len(lifespans) - dead
        mean: FloatArray = np.divide(left, alive, out=np.zeros(len(test)), where=alive > 0)
        return mean

    return predict


def persistence(train: WindowSet, recipe: Recipe) -> Fitted | None:
    """Forecasts only: the column stays as it is in the latest row."""
    values_of = _forecast_column(recipe)
    return None if values_of is None else lambda test: values_of(test)[test.starts + test.length - 1]


def extrapolation(train: WindowSet, recipe: Recipe) -> Fitted | None:
    """Forecasts only: the column goes on along a straight line through its latest rows."""
    values_of = _forecast_column(recipe)
    if values_of is None:
        return None
    usual_step = float(np.nanmedian(_row_steps(train, np.nan)))

    def predict(test: WindowSet, rows: int) -> FloatArray:
        values, last = values_of(test), test.starts + test.length - 1
        of_unit = np.full(len(test.unit_ids), len(values))
        np.minimum.at(of_unit, test.unit, test.starts)
        first = of_unit[test.unit] if test.lives is None else test.lives[:-1][test.unit]
        start = np.maximum(last + 1 - rows, first)
        count = (last + 1 - start).astype(np.float64)
        place = np.arange(len(values), dtype=np.float64)
        sums, moments = (np.concatenate([[0.0], np.cumsum(v)]) for v in (values, values * place))
        total = sums[last + 1] - sums[start]
        middle = (start + last) / 2
        spread = count * (count**2 - 1) / 12  # sum of squared distances of `count` whole numbers from their mean
        slope = (moments[last + 1] - moments[start] - middle * total) / np.maximum(spread, 1e-9)
        rows_ahead = float(recipe.ahead or 0.0) / _row_steps(test, usual_step)[test.unit]
        line: FloatArray = total / count + slope * (last - middle + rows_ahead)
        return line

    errors = [np.square(predict(train, rows) - train.labels).mean() for rows in EXTRAPOLATED_ROWS]
    best = EXTRAPOLATED_ROWS[int(np.argmin(errors))]
    return lambda test: predict(test, best)


def _forecast_column(recipe: Recipe) -> Callable[[WindowSet], FloatArray] | None:
    """Reads the forecast column of all rows; None for other tasks, and where scaling differs from row to row."""
    if recipe.health not in recipe.sensors or len(recipe.condition_keys) > 1:
        return None
    k = recipe.sensors.index(recipe.health)
    return lambda windows: windows.features[:, k].astype(np.float64) * recipe.std[0][k] + recipe.mean[0][k]


def _row_steps(windows: WindowSet, otherwise: float) -> FloatArray:
    """Time from row to row of each unit (units,); `otherwise` where a unit has one window only."""
    steps, points = np.full(len(windows.unit_ids), otherwise), np.arange(len(windows))
    first, last = np.full(len(steps), len(windows)), np.full(len(steps), -1)
    np.minimum.at(first, windows.unit, points)
    np.maximum.at(last, windows.unit, points)
    several = first < last
    a, b = first[several], last[several]
    steps[several] = (windows.position[b] - windows.position[a]) / (windows.starts[b] - windows.starts[a])
    return steps


def ridge(train: WindowSet, recipe: Recipe) -> Fitted:
    """Linear regression on the whole window, its strength chosen on a part of the training data, then refitted."""
    part, held = hold_out(train, HELD_OUT, 0, recipe.task)
    gram, moment = _normal_equations(part, recipe)
    strength = RIDGE_STRENGTHS[len(RIDGE_STRENGTHS) // 2]
    if held is not None:
        tried = np.column_stack([_quick_ridge(gram, moment, s) for s in RIDGE_STRENGTHS])
        errors = np.square(_linear(held, recipe, tried) - recipe.capped(held.labels)[:, None]).mean(axis=0)
        strength = RIDGE_STRENGTHS[int(np.argmin(errors))]
        held_gram, held_moment = _normal_equations(held, recipe)
        gram, moment = gram + held_gram, moment + held_moment
    coefficients = plain_ridge(gram, moment, strength)[:, None]
    return lambda test: _linear(test, recipe, coefficients)[:, 0]


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


def _quick_ridge(gram: FloatArray, moment: FloatArray, strength: float) -> FloatArray:
    """:func:`plain_ridge` by Cholesky, in half the time; its last digits differ, so it only chooses a strength."""
    penalty = np.full(len(moment), strength * np.trace(gram) / len(gram))
    penalty[-1] = 0.0
    try:
        factor = cho_factor(gram + np.diag(penalty), overwrite_a=True, check_finite=False)
    except LinAlgError:  # too weak a penalty for columns that depend on each other
        return plain_ridge(gram, moment, strength)
    coefficients: FloatArray = cho_solve(factor, moment, check_finite=False)
    return coefficients


def _linear(windows: WindowSet, recipe: Recipe, coefficients: FloatArray) -> FloatArray:
    """Predictions (N, K) of K regressions (size, K), all in one pass over the windows."""
    return recipe.decode(np.concatenate([_flat(batch) @ coefficients for batch in windows.batches(BATCH)]))


def _flat(batch: NDArray[np.float32]) -> FloatArray:
    x = batch.reshape(len(batch), -1).astype(np.float64)
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def boosting(train: WindowSet, recipe: Recipe) -> Fitted:
    """Gradient boosting on rolling features; the number of trees is chosen on a part of the training data."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    begin, end = _rows_read(train)
    most = max(round(BOOSTING_ROWS * (end - begin) / len(train.features)), 1)  # an owner's part of all rows
    if len(train) > most:
        train = train.select(np.linspace(0, len(train) - 1, most).astype(np.int64))
    part, held = hold_out(train, HELD_OUT, 0, recipe.task)

    def grow(windows: WindowSet, trees: int) -> HistGradientBoostingRegressor:
        model = HistGradientBoostingRegressor(random_state=0, max_iter=trees, **TREES)
        return model.fit(rolling_features(windows), recipe.encode(windows.labels))

    with threadpool_limits(1):  # sums in several threads differ in their last digits from run to run
        trees = MOST_TREES // 2
        if held is not None:
            truth, features = recipe.capped(held.labels), rolling_features(held)
            stages = grow(part, MOST_TREES).staged_predict(features)
            trees = 1 + int(np.argmin([np.square(recipe.decode(stage) - truth).mean() for stage in stages]))
        model = grow(train, trees)

    def predict(test: WindowSet) -> FloatArray:
        parts = range(0, len(test), BOOSTING_ROWS)  # so that the features of a large test fleet fit into memory
        with threadpool_limits(1):
            outputs = [model.predict(rolling_features(test.select(slice(a, a + BOOSTING_ROWS)))) for a in parts]
        return recipe.decode(np.concatenate(outputs))

    return predict


def rolling_features(windows: WindowSet) -> NDArray[np.float32]:
    """Features (N, 6 C + 1) of the rows up to each point, which a whole life begins at its unit's first row.

    Of each channel: the latest value, the mean of the latest rows, mean and deviation over a longer span, the change
    from its first half to its second, and the change since the first rows; and the age.
    """
    begin, stop = _rows_read(windows)  # an owner's windows are often few of the many that share their rows
    end = windows.starts + windows.length - begin
    first = (windows.starts if windows.lives is None else windows.lives[:-1][windows.unit]) - begin
    recent, span = np.maximum(end - RECENT, first), np.maximum(end - SPAN, first)
    middle, early = np.maximum((span + end) // 2, first), np.minimum(first + FIRST, end)
    features = np.empty((len(windows), 6 * windows.channels + 1), dtype=np.float32)
    for k in range(windows.channels):  # one channel at a time: the sums of all would not fit into memory
        column = windows.features[begin:stop, k].astype(np.float64)
        sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (column, np.square(column)))
        mean, since_first = _mean(sums, span, end), _mean(sums, recent, end) - _mean(sums, first, early)
        deviation = np.sqrt(np.maximum(_mean(squares, span, end) - np.square(mean), 0.0))
        trend = _mean(sums, middle, end) - _mean(sums, span, middle)
        columns = (column[end - 1], _mean(sums, recent, end), mean, deviation, trend, since_first)
        features[:, 6 * k : 6 * k + 6] = np.column_stack(columns)
    features[:, -1] = windows.position
    return features


def _rows_read(windows: WindowSet) -> tuple[int, int]:
    """From which of its rows to before which one a set of windows reads."""
    first = windows.starts if windows.lives is None else windows.lives[windows.unit]
    return int(first.min()), int(windows.starts.max()) + windows.length


def _mean(sums: FloatArray, start: IntArray, end: IntArray) -> FloatArray:
    """Means over rows from `start` to before `end`, from running sums; 0 where there are none."""
    means: FloatArray = (sums[end] - sums[start]) / np.maximum(end - start, 1)
    return means


baselines.add(Baseline("constant", "Constant", 1, constant, by_default=True))
baselines.add(Baseline("last", "Last value", 2, last, by_default=True))
baselines.add(Baseline("age", "Age", 3, age, by_default=True))
baselines.add(Baseline("persistence", "Persistence", 3, persistence, by_default=True))
baselines.add(Baseline("extrapolation", "Extrapolation", 3, extrapolation, selected_on="validation", by_default=True))
baselines.add(Baseline("ridge", "Ridge", 4, ridge, selected_on="validation", by_default=True))
baselines.add(
    Baseline("boosting", "Boosting", 5, boosting, selected_on="validation", by_default=True, most_owners=MOST_OWNERS)
)

__all__ = ["RIDGE_STRENGTHS", "Baseline", "BaselineName", "baselines", "plain_ridge"]
