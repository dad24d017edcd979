"""Mean width of prediction intervals."""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, Sum, metrics

metrics.add(
    Metric(
        "interval_width",
        "Interval width",
        100,
        "mean width of prediction intervals",
        (Sum("width", lambda p: None if p.bounds is None else p.bounds[1] - p.bounds[0], "positive"),),
        best=None,
        headline=False,
    )
)
