"""The NASA score a point, which compares across test fleets of different sizes."""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, metrics
from fedprognos.evaluation.metrics._sums import NASA

metrics.add(
    Metric(
        "nasa_score_mean",
        "NASA score",
        70,
        "mean penalty a point, late costs more than early",
        (NASA,),
        tasks=("rul",),
        headline=False,
    )
)
