"""Share of points whose health is overestimated."""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, Sum, metrics

metrics.add(
    Metric(
        "late_rate",
        "Late",
        80,
        "share of points whose health is overestimated",
        (Sum("late", lambda p: p.error > 0, "zero or one"),),
        best=None,
        percent=True,
        headline=False,
    )
)
