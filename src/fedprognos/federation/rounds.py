"""The one loop over a strategy's rounds: every model gets its heads and is judged; patience ends the loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.heads import with_heads
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.precision import as_travelled
from fedprognos.federation.strategies import Strategy
from fedprognos.networks import Network


def judged_rounds(strategy: Strategy, cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """Rounds until the strategy ends, or for `federation.patience` rounds without a better validation error."""
    best, since, patience = np.inf, 0, plan.federation.patience
    for trained in strategy.run(cohort, plan):
        judged = {
            clients: with_heads(cohort, plan, clients, _travelled(network, plan), trained.ridge)
            for clients, network in trained.models.items()
        }
        round_ = replace(trained, judged=judged)
        yield round_
        error = np.inf if round_.validation_rmse is None else round_.validation_rmse
        best, since = (error, 0) if error < best else (best, since + 1)
        if patience is not None and np.isfinite(best) and since >= patience:
            return


def _travelled(network: Network, plan: Plan) -> Network:
    """What is published is what clients received and evaluated, to the last bit."""
    return Network(network.spec, as_travelled(network.weights, plan.federation.wire))
