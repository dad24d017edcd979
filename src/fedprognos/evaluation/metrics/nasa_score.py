"""The NASA score: sum of exp(-d/13) - 1 over early and exp(d/10) - 1 over late predictions, d = predicted minus true.

References
----------
Saxena et al., "Damage propagation modeling for aircraft engine run-to-failure simulation" (PHM 2008).
"""

from __future__ import annotations

from fedprognos.evaluation.metrics import Metric, metrics
from fedprognos.evaluation.metrics._sums import NASA

metrics.add(
    Metric(
        "nasa_score",
        "NASA score, sum",
        60,
        "total penalty, late costs more than early",
        (NASA,),
        lambda n, total: total,
        lambda values, n: float(values.sum()),
        tasks=("rul",),
        headline=False,
    )
)
