"""Root of the mean squared error over all points."""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, metrics, root_mean, weighted_root
from fedprognos.evaluation.metrics._sums import SQUARED

metrics.add(
    Metric("rmse", "RMSE", 10, "root mean squared error against raw labels", (SQUARED,), root_mean, weighted_root)
)
