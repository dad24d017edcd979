"""Share of points whose health is overestimated."""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, Sum, metrics

LATE = Sum("late", lambda p: p.error > 0, "zero or one")
MEANING = "share of points whose health is overestimated"
metrics.add(Metric("late_rate", "Late", 80, MEANING, (LATE,), best=None, percent=True, headline=False))
