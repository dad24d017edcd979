"""Share of labels inside their prediction intervals."""

from __future__ import annotations

from fedprognos.arrays import BoolArray
from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics


def _inside(points: Points) -> BoolArray | None:
    if points.bounds is None:
        return None
    low, high = points.bounds
    return (points.truth >= low) & (points.truth <= high)


metrics.add(
    Metric(
        "coverage",
        "Coverage",
        90,
        "share of true values inside their prediction interval",
        (Sum("inside", _inside, "zero or one"),),
        best=None,
        percent=True,
        headline=False,
    )
)
