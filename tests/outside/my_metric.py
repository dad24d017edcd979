"""The share of predictions within ten percent of the truth."""

import numpy as np

import fedprognos as fp
from fedprognos.evaluation.metrics import Sum

CLOSE = Sum("close", lambda points: np.abs(points.error) <= 0.1 * points.truth, "zero or one")
WITHIN = fp.Metric(
    "within", "within 10 %", 80, "predictions within ten percent", (CLOSE,), best="highest", percent=True
)
