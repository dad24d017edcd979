"""Cross-conformal calibration of a federated method (Vovk, 2015): intervals from units a model has not learnt from.

The units of every client are dealt into folds. For each fold the method is trained once more without it; then every
client counts those models' residuals, each on the fold it did not see. The sum over clients calibrates the model
trained on everything.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedprognos.errors import FederationError
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.heads import with_heads
from fedprognos.federation.plan import Plan
from fedprognos.federation.score_messages import ResidualReply, ResidualRequest
from fedprognos.federation.strategies import Strategy
from fedprognos.federation.totals import total
from fedprognos.networks import Network
from fedprognos.networks.calibration import EDGES, Calibration, calibration_of, prediction_ranges


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
    asked = dict.fromkeys(cohort.clients, request)
    try:
        found = total(cohort, asked, ResidualReply, 1, plan.left_out)
    except FederationError:
        return None
    return calibration_of(found.counts, found.units, plan.recipe) if found.counts.any() else None


def _without(cohort: Cohort, plan: Plan, strategy: Strategy, head: str, rounds: int) -> Network:
    """The strategy's model, trained without the units of the plan's fold."""
    for round_ in strategy.run(cohort, plan):
        if round_.number == rounds:
            break
    clients, network = next(iter(round_.models.items()))
    return with_heads(cohort, plan, clients, network, round_.ridge)[head].network
