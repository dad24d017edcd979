"""Share of the labels' variance that predictions explain."""

from __future__ import annotations

import numpy as np

from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics
from fedprognos.evaluation.metrics.rmse import SQUARED

LABELS = Sum("label", lambda p: p.truth)
SQUARED_LABELS = Sum("label_squared", lambda p: np.square(p.truth), "positive")


def _from_sums(n: int, squared: float, label: float, label_squared: float) -> float | None:
    spread = label_squared - label**2 / n
    return 1.0 - squared / spread if spread > 0 else None


def _from_points(points: Points) -> float | None:
    """In two passes: the sums would lose digits where labels vary little around a large mean."""
    spread = float(np.square(points.truth - points.truth.mean()).sum())
    return 1.0 - float(np.square(points.error).sum()) / spread if spread > 0 else None


metrics.add(
    Metric(
        "r2",
        "R²",
        40,
        "share of the labels' variance explained",
        (SQUARED, LABELS, SQUARED_LABELS),
        _from_sums,
        pool=None,
        from_points=_from_points,
        best="highest",
        headline=False,
    )
)
