"""Cross-conformal calibration of a federated method (Vovk, 2015): intervals from units a model has not learnt from.

The units of every client are dealt into folds. For each fold the method is trained once more without it, and the
clients count that model's residuals on it; the sum over folds calibrates the model trained on everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.heads import finish
from fedprognos.federation.messages import Failure, ResidualReply, ResidualRequest
from fedprognos.federation.strategies import Plan, strategy
from fedprognos.model.calibration import EDGES, Calibration, residual_unit

FloatArray = NDArray[np.float64]


def calibrate(cohort: Cohort, plan: Plan, method: str, head: str, rounds: int, folds: int) -> Calibration | None:
    """Histogram of residuals over all folds; None where no client had enough units to tell theirs.

    Parameters
    ----------
    rounds
        The round that was chosen for the model itself; the folds' models go as far.
    """
    edges = np.array(EDGES)
    counts = np.zeros(len(edges) + 1, dtype=np.int64)
    for fold in range(folds):
        part = replace(plan, fold=fold, folds=folds)
        for round_ in strategy(method)(cohort, part):
            if round_.number == rounds:
                break
        finished = finish(cohort, part, round_.models[0])[head]
        network = finished.model.network
        request = ResidualRequest(plan.recipe, network, finished.weights, plan.seed, fold, folds, edges)
        for reply in cohort.ask(dict.fromkeys(cohort.clients, request)).values():
            if isinstance(reply, ResidualReply):
                counts += reply.counts
            elif isinstance(reply, Failure) and fold == 0:
                plan.left_out(reply)
    if not counts.sum():
        return None
    unit, growing = residual_unit(plan.recipe)
    return Calibration(edges=EDGES, counts=tuple(counts.tolist()), unit=unit, growing=growing)


def coverage_of(
    calibration: Calibration, truth: FloatArray, prediction: FloatArray, coverage: float
) -> Mapping[str, float]:
    """Share of raw labels inside their interval, and the intervals' mean width."""
    low, high = calibration.interval(prediction, coverage)
    inside = (truth >= low) & (truth <= high)
    return {"coverage": float(inside.mean()), "interval_width": float(np.mean(high - low))}
