"""The one loop over a strategy's rounds: every model gets its heads and is judged; patience ends the loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.heads import Judged, with_heads
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.precision import as_travelled
from fedprognos.federation.strategies import Strategy
from fedprognos.networks import Network


@dataclass(frozen=True, eq=False)
class JudgedRound:
    """A round and its models with every head asked for, by the clients they belong to."""

    round: Round
    models: Mapping[tuple[str, ...], Mapping[str, Judged]]

    @property
    def validation_rmse(self) -> float | None:
        """Mean error of the models with their first head on what training kept out; None where nothing was."""
        errors = [next(iter(heads.values())).validation_rmse for heads in self.models.values()]
        return None if None in errors else float(np.mean(np.array(errors, dtype=float)))


def judged_rounds(strategy: Strategy, cohort: Cohort, plan: Plan) -> Iterator[JudgedRound]:
    """Rounds until the strategy ends, or for `federation.patience` rounds without a better validation error."""
    best, since, patience = np.inf, 0, plan.federation.patience
    for round_ in strategy.run(cohort, plan):
        models = {
            clients: with_heads(cohort, plan, clients, _travelled(network, plan), round_.ridge)
            for clients, network in round_.models.items()
        }
        judged = JudgedRound(round_, models)
        yield judged
        error = np.inf if judged.validation_rmse is None else judged.validation_rmse
        best, since = (error, 0) if error < best else (best, since + 1)
        if patience is not None and np.isfinite(best) and since >= patience:
            return


def _travelled(network: Network, plan: Plan) -> Network:
    """What is published is what clients received and evaluated, to the last bit."""
    return Network(network.spec, as_travelled(network.weights, plan.federation.wire))
