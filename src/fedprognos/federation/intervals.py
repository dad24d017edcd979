"""Cross-conformal calibration of a federated method (Vovk, 2015): intervals from units a model has not learnt from.

The units of every client are dealt into folds. For each fold the method is trained once more without it; then every
client counts those models' residuals, each on the fold it did not see. The sum over clients calibrates the model
trained on everything.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.heads import with_heads
from fedprognos.federation.messages import Failure, ResidualReply, ResidualRequest
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import Strategy
from fedprognos.networks import Network
from fedprognos.networks.calibration import EDGES, Calibration, calibration_of, prediction_ranges

MOST_RESIDUALS = 10**9
"""No client can have sent more: beyond it the sum could overflow."""


def calibrate(cohort: Cohort, plan: Plan, strategy: Strategy, head: str, rounds: int, folds: int) -> Calibration | None:
    """Histograms of residuals over all folds; None where no client had enough units to send theirs.

    Parameters
    ----------
    rounds
        The round that was chosen for the model itself; the folds' models go as far.
    """
    if rounds == 1:  # what training a head of its own would change is used from the second round on only
        plan = replace(plan, federation=plan.federation.model_copy(update={"heads": (head,)}))
    models = tuple(
        _without(cohort, replace(plan, fold=fold, folds=folds), strategy, head, rounds) for fold in range(folds)
    )
    ranges, edges = np.array(prediction_ranges(plan.recipe), dtype=np.float64), np.array(EDGES)
    request = ResidualRequest(plan.recipe, models, plan.seed, ranges, edges)
    counts = np.zeros((len(ranges) + 1, len(edges) + 1), dtype=np.int64)
    units = np.zeros(len(counts), dtype=np.int64)
    for name, answer in cohort.ask(dict.fromkeys(cohort.clients, request)).items():
        reply = _checked(name, answer, counts.shape)
        if isinstance(reply, Failure):
            plan.left_out(reply)
        else:
            counts += reply.counts
            units += reply.units
    return calibration_of(counts, units, plan.recipe) if counts.any() else None


def _without(cohort: Cohort, plan: Plan, strategy: Strategy, head: str, rounds: int) -> Network:
    """The strategy's model, trained without the units of the plan's fold."""
    for round_ in strategy.run(cohort, plan):
        if round_.number == rounds:
            break
    clients, network = next(iter(round_.models.items()))
    return with_heads(cohort, plan, clients, network)[head].network


def _checked(name: str, reply: object, shape: tuple[int, int]) -> ResidualReply | Failure:
    """An answer that is no histogram of residuals becomes a failure."""
    if isinstance(reply, Failure):
        return reply
    if not isinstance(reply, ResidualReply):
        return Failure(name, "message", "sent something else than residuals")
    counts, units = reply.counts, reply.units
    if (
        counts.shape != shape
        or units.shape != shape[:1]
        or counts.dtype != np.int64
        or units.dtype != np.int64
        or min(counts.min(), units.min()) < 0
        or counts.max() > MOST_RESIDUALS
        or (counts.sum(axis=1) < units).any()
    ):
        return Failure(name, "message", "sent an invalid residual histogram")
    return reply
