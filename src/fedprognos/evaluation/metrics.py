"""How good predictions are: pooled over all test points, never averaged over batches.

The NASA score is that of Saxena et al., "Damage propagation modeling for aircraft engine
run-to-failure simulation" (PHM 2008): late predictions cost more than early ones.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.fleet import Task


@dataclass(frozen=True)
class Scores:
    """Errors against raw labels; `rmse_capped` against labels capped as in training.

    `rmse_low` and `rmse_high` bound the RMSE in 95 % of bootstrap samples of the test units.
    `late_rate` is the share of points whose health is overestimated.
    """

    rmse: float
    rmse_capped: float | None
    mae: float
    r2: float | None
    bias: float
    nasa_score: float | None
    nasa_score_mean: float | None
    late_rate: float
    n_test: int
    n_units: int
    rmse_low: float | None = None
    rmse_high: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a results row."""
        return asdict(self)


def rmse(truth: FloatArray, prediction: FloatArray) -> float:
    """Root of the mean squared error over all points.

    >>> rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    1.4142135623730951
    """
    return float(np.sqrt(np.mean(np.square(prediction - truth))))


def nasa_score(truth: FloatArray, prediction: FloatArray) -> float:
    """Sum of exp(-d/13) - 1 over early and exp(d/10) - 1 over late predictions, d = prediction - truth.

    >>> round(nasa_score(np.array([100.0, 100.0]), np.array([87.0, 110.0])), 4)
    3.4366
    """
    d = prediction - truth
    return float(np.expm1(np.where(d < 0, -d / 13.0, d / 10.0)).sum())


def score(
    truth: FloatArray,
    prediction: FloatArray,
    unit: NDArray[np.int64],
    *,
    task: Task,
    cap: float | None = None,
    bootstrap: int = 0,
) -> Scores:
    """All scores of some predictions.

    Parameters
    ----------
    truth, prediction, unit : (N,)
        Raw labels, predictions, and which unit each point belongs to.
    bootstrap
        Resamples of whole units behind the interval of the RMSE; 0 gives none.
    """
    if len(truth) == 0 or not np.isfinite(truth).all() or not np.isfinite(prediction).all():
        raise DataError("nothing to score, or a value that is not a number", where="evaluation")
    error = prediction - truth
    spread = float(np.square(truth - truth.mean()).sum())
    rul = task == "rul"
    total = nasa_score(truth, prediction) if rul else None
    low, high = _interval(error, unit, bootstrap)
    return Scores(
        rmse=rmse(truth, prediction),
        rmse_capped=rmse(np.minimum(truth, cap), prediction) if rul and cap is not None else None,
        mae=float(np.abs(error).mean()),
        r2=1.0 - float(np.square(error).sum()) / spread if spread > 0 else None,
        bias=float(error.mean()),
        nasa_score=total,
        nasa_score_mean=None if total is None else total / len(truth),
        late_rate=float((error > 0).mean()),
        n_test=len(truth),
        n_units=len(np.unique(unit)),
        rmse_low=low,
        rmse_high=high,
    )


def _interval(error: FloatArray, unit: NDArray[np.int64], samples: int) -> tuple[float | None, float | None]:
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
