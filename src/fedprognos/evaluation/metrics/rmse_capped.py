"""Root of the mean squared error against labels capped as in training."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics, root_mean, weighted_root


def _squared(points: Points) -> FloatArray | None:
    if points.cap is None:
        return None
    return np.square(points.prediction - np.minimum(points.truth, points.cap))


metrics.add(
    Metric(
        "rmse_capped",
        "RMSE capped",
        20,
        "root mean squared error against capped labels",
        (Sum("squared_capped", _squared, "positive"),),
        root_mean,
        weighted_root,
        tasks=("rul",),
    )
)
