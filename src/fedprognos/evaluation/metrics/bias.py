"""Mean of predicted minus true."""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, Sum, metrics

ERROR = Sum("error", lambda p: p.error)
MEANING = "mean of predicted minus true"
metrics.add(Metric("bias", "Bias", 50, MEANING, (ERROR,), best="nearest zero", headline=False))
