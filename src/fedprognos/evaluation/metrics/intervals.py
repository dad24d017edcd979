"""Prediction intervals: the share of labels inside them, and their mean width."""

from __future__ import annotations

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.evaluation.metrics import Metric, Points, Sum, metrics


def _inside(points: Points) -> BoolArray | None:
    if points.bounds is None:
        return None
    low, high = points.bounds
    return (points.truth >= low) & (points.truth <= high)


def _width(points: Points) -> FloatArray | None:
    return None if points.bounds is None else points.bounds[1] - points.bounds[0]


INSIDE, WIDTH = Sum("inside", _inside, "zero or one"), Sum("width", _width, "positive")
SHARE = "share of true values inside their prediction interval"
metrics.add(Metric("coverage", "Coverage", 90, SHARE, (INSIDE,), best=None, percent=True, headline=False))
MEAN = "mean width of prediction intervals"
metrics.add(Metric("interval_width", "Interval width", 100, MEAN, (WIDTH,), best=None, headline=False))
