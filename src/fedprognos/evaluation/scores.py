"""Scores of predictions, from the predictions themselves or from the sums that sites send instead.

Scores are pooled over all test points, never averaged over batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import DataError
from fedprognos.evaluation.metrics import Points, metrics, sums_of

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


def score(points: Points, bootstrap: int = 0) -> Scores:
    """Every metric of some predictions; None where one does not apply.

    Parameters
    ----------
    bootstrap
        Resamples of whole units behind `rmse_low` and `rmse_high`, the 95 % interval of the RMSE; 0 gives none.

    Examples
    --------
    >>> found = score(Points(np.array([100.0, 100.0]), np.array([87.0, 110.0]), np.array([0, 1]), task="rul"))
    >>> found["n_units"], found["mae"], round(found["nasa_score"], 4)
    (2, 11.5, 3.4366)
    """
    if not (len(points) and np.isfinite(points.truth).all() and np.isfinite(points.prediction).all()):
        raise DataError("nothing to score, or a value that is not a number", where="evaluation")
    found = {name: metric.of(points) for name, metric in metrics.items()}
    low, high = _interval(points.error, points.unit, bootstrap)
    return {**found, "n_test": len(points), "n_units": points.units, "rmse_low": low, "rmse_high": high}


def _interval(error: FloatArray, unit: IntArray, samples: int) -> tuple[float | None, float | None]:
    """Bootstrap over units: points of one unit rise and fall together, so units are what is resampled."""
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
        Those of all metrics the site knows; ones that do not apply or are infinite are left out.
    """

    n: int
    units: int
    sums: Mapping[str, float]

    def __post_init__(self) -> None:
        """Refuse sums that no predictions have: they may come from anybody."""
        if not 0 < self.units <= self.n:
            raise ValueError("sums that no predictions have: units")
        if len(self.sums) > MOST_SUMS:
            raise ValueError(f"more than {MOST_SUMS} sums")
        known = sums_of()
        for name, total in self.sums.items():
            if not re.fullmatch("[a-z][a-z0-9_]{0,39}", name):
                raise ValueError("a sum with an invalid name")
            if not np.isfinite(total) or (name in known and not known[name].possible(total, self.n)):
                raise ValueError(f"sums that no predictions have: {name}")

    def __add__(self, other: ScoreSums) -> ScoreSums:
        """Sums over both; one that either side lacks cannot be known."""
        both = {name: total + other.sums[name] for name, total in self.sums.items() if name in other.sums}
        return ScoreSums(self.n + other.n, self.units + other.units, both)

    def scores(self) -> Scores:
        """The scores of all predictions together, without the interval of the RMSE, which takes units one by one."""
        found = {name: metric.of_sums(self.n, self.sums) for name, metric in metrics.items()}
        return {**found, "n_test": self.n, "n_units": self.units}


def score_sums(points: Points, most_share: float = 1.0) -> ScoreSums:
    """Sums over some predictions, whose scores are those of :func:`score`.

    Parameters
    ----------
    most_share
        Sums of which one unit has more than this share are left out: they would be about that unit.

    >>> truth, said = np.array([10.0, 30.0, 50.0]), np.array([12.0, 29.0, 44.0])
    >>> found = score_sums(Points(truth, said, np.array([0, 0, 1]), task="rul", cap=40.0)).scores()
    >>> found["rmse"] == float(np.sqrt((4 + 1 + 36) / 3)), found["late_rate"]
    (True, 0.3333333333333333)
    """
    known = sums_of(points.task).items()
    shown = [(name, s) for name, s in known if s.values != "positive" or s.largest(points) <= most_share]
    totals = {name: total for name, s in shown if (total := s.total(points)) is not None}
    return ScoreSums(len(points), points.units, totals)
