"""The table of metrics. A metric owns its name, the sums it needs, and how they become a number.

A metric is made of sums over points, because sites of a federation send such sums instead of predictions, and the sums
of several sites add up. Scores, result rows and summaries all derive from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.errors import ConfigError
from fedprognos.fleet import Task
from fedprognos.shelf import Shelf

NEAR_END = 30.0
"""Remaining life, in the label's measure, from which on an error matters most."""
QUANTILE_LEVELS = (np.arange(20) + 0.5) / 20
"""Levels of predicted quantiles: the middles of twenty equal parts, so that their mean is an integral."""


@dataclass(frozen=True, eq=False)
class Points:
    """Predictions beside the truth.

    Parameters
    ----------
    truth, prediction, unit : (N,)
        Raw labels, predictions, and which unit each point belongs to.
    cap
        Where labels were capped in training, for remaining life.
    bounds
        Lower and upper ends (N,) of prediction intervals, where there are any.
    quantiles
        Predicted quantiles (Q, N) at :data:`QUANTILE_LEVELS`, where the model has intervals.
    """

    truth: FloatArray
    prediction: FloatArray
    unit: IntArray
    task: Task
    cap: float | None = None
    bounds: tuple[FloatArray, FloatArray] | None = None
    quantiles: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def units(self) -> int:
        """How many units they are about."""
        return len(np.unique(self.unit))

    @property
    def error(self) -> FloatArray:
        """Predicted minus true (N,)."""
        return self.prediction - self.truth

    @property
    def capped_truth(self) -> FloatArray:
        """Labels as in training (N,): no prediction exceeds the cap."""
        return self.truth if self.cap is None else np.minimum(self.truth, self.cap)


@dataclass(frozen=True)
class Sum:
    """A sum over points.

    Parameters
    ----------
    value_of_points
        The value of every point (N,); None where the sum does not apply.
    values
        What a point's value can be. A sum from another site that breaks this is refused.
    """

    name: str
    value_of_points: Callable[[Points], FloatArray | BoolArray | None]
    values: Literal["any", "positive", "zero or one"] = "any"

    def total(self, points: Points) -> float | None:
        """The sum; None where it does not apply or is not finite."""
        values = self.value_of_points(points)
        return None if values is None else _finite(float(np.sum(values)))

    def largest(self, points: Points) -> float:
        """The largest share of one unit in the sum of absolute values; of one point where there is only one unit."""
        values, (_, unit) = self.value_of_points(points), np.unique(points.unit, return_inverse=True)
        if values is None or not len(points):
            return 0.0
        sizes = np.abs(np.asarray(values, dtype=np.float64))
        shares = np.bincount(unit, sizes) if unit.max() else sizes
        # An infinite sum is never sent, so its shares do not matter.
        return float(shares.max() / shares.sum()) if 0 < shares.sum() < np.inf else 0.0

    def possible(self, total: float, n: int) -> bool:
        """True if some `n` points can have this sum."""
        return self.values == "any" or 0 <= total <= (n if self.values == "zero or one" else np.inf)


def mean(n: int, total: float) -> float:
    """From a sum to the mean over points."""
    return total / n


def root_mean(n: int, total: float) -> float:
    """From a sum of squares to the root of its mean."""
    return float(np.sqrt(total / n))


def weighted_mean(values: FloatArray, n: FloatArray) -> float:
    """One mean over all points from means of parts."""
    return float((n * values).sum() / n.sum())


def weighted_root(values: FloatArray, n: FloatArray) -> float:
    """One root mean square over all points from those of parts."""
    return float(np.sqrt(weighted_mean(np.square(values), n)))


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are.

    Parameters
    ----------
    name, label, order
        Its name in files, its name for people, and its place in tables.
    meaning
        What it is, in a phrase.
    sums
        The sums that it needs. A metric over some of the points has none: sites send sums over all points only.
    from_sums
        From the number of points and those sums to its value; the mean of one sum by default.
    pool
        From values of parts and their numbers of points to the value of all; None where that takes the sums.
    from_points
        A more exact way where the predictions are at hand.
    best
        Which value is best; None where no value is better than another.
    tasks
        The tasks it applies to.
    percent
        Whether people read it as a percentage.
    headline
        Whether short tables, such as that of the terminal, show it.

    Examples
    --------
    >>> metrics["mae"].label, metrics["r2"].best
    ('MAE', 'highest')
    """

    name: str
    label: str
    order: int
    meaning: str
    sums: tuple[Sum, ...]
    from_sums: Callable[..., float | None] = mean
    pool: Callable[[FloatArray, FloatArray], float] | None = weighted_mean
    from_points: Callable[[Points], float | None] | None = None
    best: Literal["lowest", "highest", "nearest zero"] | None = "lowest"
    tasks: tuple[Task, ...] = ("rul", "soh", "forecast")
    percent: bool = False
    headline: bool = True

    def value(self, points: Points) -> float | None:
        """Its value for some points; None where it does not apply."""
        if points.task not in self.tasks:
            return None
        if self.from_points is not None:
            return _finite(self.from_points(points))
        totals = {s.name: total for s in self.sums if (total := s.total(points)) is not None}
        return self.value_from_sums(len(points), totals)

    def value_from_sums(self, n: int, sums: Mapping[str, float]) -> float | None:
        """Its value from sums over `n` points; None where one of them is missing."""
        if not self.sums or not all(s.name in sums for s in self.sums):
            return None
        return _finite(self.from_sums(n, *(sums[s.name] for s in self.sums)))

    def badness(self, value: float) -> float:
        """A number that falls as the value gets better."""
        return {"lowest": value, "highest": -value, "nearest zero": abs(value), None: 0.0}[self.best]


def _finite(value: float | None) -> float | None:
    """None in place of an infinite score or sum: JSON files and messages hold finite numbers only."""
    return value if value is not None and np.isfinite(value) else None


metrics: Shelf[Metric] = Shelf("metric", __name__, "fedprognos.metrics")


def sums_of(task: Task | None = None) -> dict[str, Sum]:
    """The sums that the metrics of a task need, by name; without a task, the sums of all metrics.

    Raises
    ------
    ConfigError
        Two metrics use one name for different sums.
    """
    sums: dict[str, Sum] = {}
    for metric in metrics.values():
        for needed in metric.sums if task is None or task in metric.tasks else ():
            if sums.setdefault(needed.name, needed) is not needed:
                raise ConfigError(
                    f"two metrics use the name '{needed.name}' for different sums",
                    hint=f"rename the sum of metric {metric.name}",
                )
    return sums


def _squared_capped(points: Points) -> FloatArray | None:
    return None if points.cap is None else np.square(points.prediction - points.capped_truth)


def _nasa_penalty(error: FloatArray) -> FloatArray:
    """exp(-d/13) - 1 for early and exp(d/10) - 1 for late predictions, d = predicted minus true.

    References
    ----------
    Saxena et al., "Damage propagation modeling for aircraft engine run-to-failure simulation" (PHM 2008).
    """
    with np.errstate(over="ignore"):  # an infinite score becomes None
        return np.expm1(np.where(error < 0, -error / 13.0, error / 10.0))


def _total(n: int, total: float) -> float:
    return total


def _total_of_parts(values: FloatArray, n: FloatArray) -> float:
    return float(values.sum())


def _nasa_penalty_capped(points: Points) -> FloatArray | None:
    return None if points.cap is None else _nasa_penalty(points.prediction - points.capped_truth)


def _rmse_near_end(points: Points) -> float | None:
    near = points.truth <= NEAR_END
    return float(np.sqrt(np.square(points.error[near]).mean())) if near.any() else None


def _relative_errors(points: Points) -> FloatArray:
    """|predicted - true| / true (M,), of the points whose label is above zero; labels as in training."""
    truth = points.capped_truth
    positive = truth > 0
    return np.abs(points.prediction[positive] - truth[positive]) / truth[positive]


def _mape(points: Points) -> float | None:
    relative = _relative_errors(points)
    return float(relative.mean()) if relative.size else None


def _relative_accuracy(points: Points) -> float | None:
    """The mean of 1 - |error| / truth, and 0 where the error is larger than the truth.

    References
    ----------
    Saxena et al., "Metrics for offline evaluation of prognostic performance" (IJPHM 2010).
    """
    relative = _relative_errors(points)
    return float(np.maximum(1.0 - relative, 0.0).mean()) if relative.size else None


def _crps(points: Points) -> float | None:
    """Twice the mean pinball loss over all quantiles; an upper end beyond the cap means the cap.

    References
    ----------
    Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation" (JASA 2007).
    """
    if points.quantiles is None:
        return None
    above = points.capped_truth - np.minimum(points.quantiles, np.inf if points.cap is None else points.cap)
    level = QUANTILE_LEVELS[:, None]
    return float(2 * np.maximum(level * above, (level - 1) * above).mean())


def _inside(points: Points) -> BoolArray | None:
    if points.bounds is None:
        return None
    low, high = points.bounds
    return (points.truth >= low) & (points.truth <= high)


def _width(points: Points) -> FloatArray | None:
    if points.bounds is None:
        return None
    low, high = points.bounds
    # An upper end beyond the cap means "or more": as wide as the model can tell.
    return (high if points.cap is None else np.minimum(high, np.maximum(points.cap, low))) - low


ERROR = Sum("error", lambda p: p.error)
ABSOLUTE = Sum("absolute", lambda p: np.abs(p.error), "positive")
SQUARED = Sum("squared", lambda p: np.square(p.error), "positive")
SQUARED_CAPPED = Sum("squared_capped", _squared_capped, "positive")
LABELS = Sum("label", lambda p: p.truth)
SQUARED_LABELS = Sum("label_squared", lambda p: np.square(p.truth), "positive")
NASA = Sum("nasa", lambda p: _nasa_penalty(p.error), "positive")
NASA_CAPPED = Sum("nasa_capped", _nasa_penalty_capped, "positive")
LATE = Sum("late", lambda p: p.error > 0, "zero or one")
INSIDE = Sum("inside", _inside, "zero or one")
WIDTH = Sum("width", _width, "positive")


def _r2_from_sums(n: int, squared: float, label: float, label_squared: float) -> float | None:
    spread = label_squared - label**2 / n
    return 1.0 - squared / spread if spread > 0 else None


def _r2_from_points(points: Points) -> float | None:
    # In two passes: the sums lose digits where labels vary little around a large mean.
    spread = float(np.square(points.truth - points.truth.mean()).sum())
    return 1.0 - float(np.square(points.error).sum()) / spread if spread > 0 else None


_detail = partial(Metric, headline=False)
"""What long tables alone show."""
_from_points = partial(Metric, sums=(), pool=None, headline=False)
"""What sites cannot send sums for."""

for _metric in (
    Metric("rmse", "RMSE", 10, "root mean squared error against raw labels", (SQUARED,), root_mean, weighted_root),
    Metric(
        "rmse_capped",
        "RMSE capped",
        20,
        "root mean squared error against capped labels",
        (SQUARED_CAPPED,),
        root_mean,
        weighted_root,
        tasks=("rul",),
    ),
    _detail("mae", "MAE", 30, "mean absolute error", (ABSOLUTE,)),
    _detail(
        "r2",
        "R²",
        40,
        "share of the labels' variance explained",
        (SQUARED, LABELS, SQUARED_LABELS),
        _r2_from_sums,
        pool=None,
        from_points=_r2_from_points,
        best="highest",
    ),
    _detail("bias", "Bias", 50, "mean of predicted minus true", (ERROR,), best="nearest zero"),
    # The sum is as published; the mean compares across test fleets of different sizes.
    _detail(
        "nasa_score",
        "NASA score, sum",
        60,
        "total penalty, late costs more than early",
        (NASA,),
        _total,
        _total_of_parts,
        tasks=("rul",),
    ),
    _detail("nasa_score_mean", "NASA score", 70, "mean penalty a point", (NASA,), tasks=("rul",)),
    _detail(
        "nasa_score_capped",
        "NASA score, capped",
        75,
        "total penalty against capped labels",
        (NASA_CAPPED,),
        _total,
        _total_of_parts,
        tasks=("rul",),
    ),
    _from_points(
        "rmse_near_end",
        f"RMSE, RUL ≤ {NEAR_END:g}",
        76,
        "error near the end of life",
        from_points=_rmse_near_end,
        tasks=("rul",),
    ),
    _from_points("mape", "MAPE", 77, "mean error divided by the capped label", from_points=_mape, percent=True),
    _from_points(
        "relative_accuracy",
        "Relative accuracy",
        78,
        "mean of 1 − error / capped label, at least 0",
        from_points=_relative_accuracy,
        best="highest",
        percent=True,
    ),
    _detail("late_rate", "Late", 80, "share of points overestimated", (LATE,), best=None, percent=True),
    _detail(
        "coverage",
        "Coverage",
        90,
        "share of true values inside their prediction interval",
        (INSIDE,),
        best=None,
        percent=True,
    ),
    _detail("interval_width", "Interval width", 100, "mean width of prediction intervals", (WIDTH,), best=None),
    _from_points("crps", "CRPS", 110, "continuous ranked probability score against capped labels", from_points=_crps),
):
    metrics.add(_metric)
