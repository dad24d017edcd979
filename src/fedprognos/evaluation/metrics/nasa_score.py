"""The NASA score: exp(-d/13) - 1 for early and exp(d/10) - 1 for late predictions, d = predicted minus true.

The sum is as published; the mean compares across test fleets of different sizes.

References
----------
Saxena et al., "Damage propagation modeling for aircraft engine run-to-failure simulation" (PHM 2008).
"""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics


def _penalty(points: Points) -> FloatArray:
    d = points.error
    with np.errstate(over="ignore"):  # an infinite score is none
        return np.expm1(np.where(d < 0, -d / 13.0, d / 10.0))


NASA = Sum("nasa", _penalty, "positive")

metrics.add(
    Metric(
        "nasa_score",
        "NASA score, sum",
        60,
        "total penalty, late costs more than early",
        (NASA,),
        lambda n, total: total,
        lambda values, n: float(values.sum()),
        tasks=("rul",),
        headline=False,
    )
)
MEAN = "mean penalty a point, late costs more than early"
metrics.add(Metric("nasa_score_mean", "NASA score", 70, MEAN, (NASA,), tasks=("rul",), headline=False))
