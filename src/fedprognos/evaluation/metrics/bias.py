"""Mean of predicted minus true."""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, Sum, metrics

metrics.add(
    Metric(
        "bias",
        "Bias",
        50,
        "mean of predicted minus true",
        (Sum("error", lambda p: p.error),),
        best="nearest zero",
        headline=False,
    )
)
