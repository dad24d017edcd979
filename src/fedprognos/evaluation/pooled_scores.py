"""Scores of predictions, from the predictions themselves or from the sums that sites send instead.

Scores are pooled over all test points, never averaged over batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.evaluation.metrics import Points, metrics, sums_of
from fedprognos.fleet import Fleet

MOST_SUMS = 64
"""Sums that one message may hold."""
Scores = dict[str, float | None]
"""Values by metric, and the numbers of points and units they are about."""


def rmse(truth: FloatArray, prediction: FloatArray) -> float:
    """Root of the mean squared error over all points.

    >>> rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    1.4142135623730951
    """
    return float(np.sqrt(np.mean(np.square(prediction - truth))))


def moments_scored(tests: Iterable[Fleet], score_at: Literal["auto", "last", "all"]) -> Literal["last", "all"]:
    """Which rows of test units are scored; with "auto" the last row if some unit ends before failure, else all."""
    if score_at != "auto":
        return score_at
    return "last" if any(unit.rul_at_end for fleet in tests for unit in fleet) else "all"


def score(points: Points, bootstrap: int = 0) -> Scores:
    """Every metric of some predictions; None where one does not apply.

    Parameters
    ----------
    bootstrap
        Resamples of whole units behind `rmse_low` and `rmse_high`, the 95 % interval of the RMSE; 0 gives none.

    Examples
    --------
    >>> scores = score(Points(np.array([100.0, 100.0]), np.array([87.0, 110.0]), np.array([0, 1]), task="rul"))
    >>> scores["n_units"], scores["mae"], round(scores["nasa_score"], 4)
    (2, 11.5, 3.4366)
    """
    if not (len(points) and np.isfinite(points.truth).all() and np.isfinite(points.prediction).all()):
        raise DataError("there is nothing to score, or a label or prediction is not a number", where="evaluation")
    values = {name: metric.value(points) for name, metric in metrics.items()}
    low, high = _rmse_interval(points.error, points.unit, bootstrap)
    return {**values, "n_test": len(points), "n_units": points.units, "rmse_low": low, "rmse_high": high}


def _rmse_interval(error: FloatArray, unit: IntArray, samples: int) -> tuple[float | None, float | None]:
    """The 95 % bootstrap interval of the RMSE; None with fewer than two units.

    Errors of one unit rise and fall together. So whole units are resampled, not points.
    """
    _, index = np.unique(unit, return_inverse=True)
    units = int(index.max()) + 1
    if samples == 0 or units < 2:
        return None, None
    squared = np.bincount(index, weights=np.square(error), minlength=units)
    counts = np.bincount(index, minlength=units)
    drawn = np.random.default_rng(0).integers(units, size=(samples, units))
    means = squared[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(np.sqrt(means), [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class ScoreSums:
    """What a site sends of its predictions: sums by name. Sums of several sites add up.

    Parameters
    ----------
    n, units
        Predictions and the units they are about.
    sums
        The sums of all metrics at the site; those that do not apply or are infinite are left out.
    """

    n: int
    units: int
    sums: Mapping[str, float]

    def __post_init__(self) -> None:
        """Refuse sums that no predictions can have: sums come from other sites."""
        if not 0 < self.units <= self.n:
            raise ValueError("sums that no predictions have: units")
        if len(self.sums) > MOST_SUMS:
            raise ValueError(f"more than {MOST_SUMS} sums")
        sums = sums_of()
        for name, total in self.sums.items():
            if not re.fullmatch("[a-z][a-z0-9_]{0,39}", name):
                raise ValueError("a sum with an invalid name")
            if not np.isfinite(total) or (name in sums and not sums[name].possible(total, self.n)):
                raise ValueError(f"sums that no predictions have: {name}")

    def __add__(self, other: ScoreSums) -> ScoreSums:
        """Sums over both sites; a sum that one of them lacks is left out."""
        both = {name: total + other.sums[name] for name, total in self.sums.items() if name in other.sums}
        return ScoreSums(self.n + other.n, self.units + other.units, both)

    def scores(self) -> Scores:
        """The scores of all predictions together, without the interval of the RMSE, which needs the single units."""
        values = {name: metric.value_from_sums(self.n, self.sums) for name, metric in metrics.items()}
        return {**values, "n_test": self.n, "n_units": self.units}


def score_sums(points: Points, most_share: float = 1.0) -> ScoreSums:
    """Sums over some predictions, whose scores are those of :func:`score`.

    Parameters
    ----------
    most_share
        Leave out a sum if one unit has more than this share in it: such a sum would reveal that unit.

    >>> truth, prediction = np.array([10.0, 30.0, 50.0]), np.array([12.0, 29.0, 44.0])
    >>> scores = score_sums(Points(truth, prediction, np.array([0, 0, 1]), task="rul", cap=40.0)).scores()
    >>> scores["rmse"] == float(np.sqrt((4 + 1 + 36) / 3)), scores["late_rate"]
    (True, 0.3333333333333333)
    """
    totals = {}
    for name, needed in sums_of(points.task).items():
        # Only sums of positive values can be dominated by one unit; signed values cancel, counts are at most one each.
        if needed.values != "positive" or needed.largest(points) <= most_share:
            total = needed.total(points)
            if total is not None:
                totals[name] = total
    return ScoreSums(len(points), points.units, totals)
