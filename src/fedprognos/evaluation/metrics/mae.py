"""Mean absolute error."""

from __future__ import annotations

import numpy as np

from fedprognos.evaluation.metrics import Metric, Sum, metrics

ABSOLUTE = Sum("absolute", lambda p: np.abs(p.error), "positive")

metrics.add(Metric("mae", "MAE", 30, "mean absolute error", (ABSOLUTE,), headline=False))
