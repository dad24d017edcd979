"""Root of the mean squared error over all points, against raw labels and against labels capped as in training."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics, root_mean, weighted_root

SQUARED = Sum("squared", lambda p: np.square(p.error), "positive")


def _capped(points: Points) -> FloatArray | None:
    return None if points.cap is None else np.square(points.prediction - np.minimum(points.truth, points.cap))


SQUARED_CAPPED = Sum("squared_capped", _capped, "positive")

RAW = "root mean squared error against raw labels"
metrics.add(Metric("rmse", "RMSE", 10, RAW, (SQUARED,), root_mean, weighted_root))
CAPPED = "root mean squared error against capped labels"
metrics.add(
    Metric("rmse_capped", "RMSE capped", 20, CAPPED, (SQUARED_CAPPED,), root_mean, weighted_root, tasks=("rul",))
)
