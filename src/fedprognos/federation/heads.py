"""The rounds of a strategy, with the heads of every model: as trained and averaged, or solved exactly from all sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.federation.codec import as_travelled
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy
from fedprognos.networks import HeadSums, Network, exact_head, solve_head
from fedprognos.privacy import LEAST_MEMBERS, ada_ssp


@dataclass(frozen=True, eq=False)
class Judged:
    """A network and its error on what training kept out (None where nothing was), labels capped.

    Parameters
    ----------
    sums
        What its head was solved from; None where it was not.
    shares
        How much of its weight each client has in them; all of it where replies are masked.
    fitted
        The exact head before it was fitted to what training kept out as well, so that this can judge it.
    """

    network: Network
    validation_rmse: float | None
    sums: HeadSums | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    fitted: FloatArray | None = None


def with_heads(
    cohort: Cohort, plan: Plan, clients: Iterable[str], network: Network, ridge: float | None = None
) -> dict[str, Judged]:
    """The network with each of the shared heads asked for, from one exchange with its clients.

    Parameters
    ----------
    ridge
        Strength of the exact head where nothing is kept out to choose it on; the plan's by default.
    """
    wanted = plan.federation.heads
    present = [name for name in clients if name in cohort.clients]
    if cohort.sums is not None and len(present) < LEAST_MEMBERS:  # a sum of one or two is theirs alone
        return {"mean": Judged(network, None)}
    statistics = any(head in wanted for head in ("exact", "personal", "choice"))
    fraction = plan.train.validation_fraction
    if not statistics and fraction == 0:
        return {"mean": Judged(network, None)}
    evaluation = evaluate(cohort, plan, present, network, statistics=statistics)
    judged = {}
    if "mean" in wanted:
        errors = evaluation.sums.validation
        judged["mean"] = Judged(network, None if errors is None else errors.rmse)
    if (privacy := plan.privacy(cohort, network.spec, len(present))) is not None:
        head = ada_ssp(evaluation.head_statistics[0], privacy, len(present))
        return {**judged, "exact": Judged(network.with_head(head), None)}
    if statistics:
        fit, held = evaluation.head_statistics
        solved = exact_head(fit, held, ridge or plan.federation.ridge)
        sums = HeadSums(fit if held is None else fit.add(held), solved.strength, plan.federation.alike)
        error = None
        if fraction > 0 and solved.validation_mse is not None:
            error = float(np.sqrt(solved.validation_mse)) * plan.recipe.label_std
        fitted = None if held is None else solve_head(fit, solved.strength)
        judged["exact"] = Judged(network.with_head(solved.head), error, sums, evaluation.shares, fitted)
    return judged


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
