"""FedAvg (McMahan et al., 2017): coordinate-wise averages weighted by data size, Eq. 2 of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import PositiveInt

from fedprognos.errors import ConfigError
from fedprognos.federation.averages import AggregatorName, average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.fit import masked_mean, train
from fedprognos.federation.first_models import drop_distant
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.networks import Network
from fedprognos.options import Options, Tunable


class FedAvgOptions(Options):
    """Coordinate-wise averages weighted by data size (Eq. 2)."""

    rounds: PositiveInt = 10
    """Rounds of training and averaging."""
    epochs: Annotated[PositiveInt, Tunable((5, 10, 15, 50, 75), soh=(2, 5, 10))] = 5
    """Local epochs a round."""
    average: AggregatorName = "weighted"
    """Name of an aggregator: mean, weighted, median, trimmed, geometric, krum, clipped or bounded."""


def fedavg(cohort: Cohort, plan: Plan, options: FedAvgOptions, mu: float = 0.0) -> Iterator[Round]:
    """E local epochs a round from the federated model, then W = sum_j p_j W_j."""
    network = plan.common_start()
    for r in range(1, options.rounds + 1):
        starts = dict.fromkeys(plan.participants(cohort, r), network)
        if cohort.sums is not None:  # sum_j n_j W_j and sum_j n_j are all that is seen
            if options.average != "weighted":
                raise ConfigError(f"average = '{options.average}' needs federation.mode = 'checked'")
            network = masked_mean(cohort, plan, starts, epochs=options.epochs, round_=r, proximal=mu)
            yield Round(r, {cohort.clients: network}, r * options.epochs)
            continue
        trained = train(cohort, plan, starts, epochs=options.epochs, round_=r, proximal=mu)
        clients = drop_distant(plan, trained)
        tensors = {name: client.weights for name, client in clients.networks.items()}
        sizes = plan.counted(clients.sizes)
        weights = average(tensors, plan.spec.anatomy, how=options.average, sizes=sizes, start=network.weights)
        network = Network(plan.spec, weights)
        yield Round(r, {cohort.clients: network}, r * options.epochs, clients.history)


def epochs(options: FedAvgOptions, _: Budget) -> int:
    """Every round's epochs."""
    return options.rounds * options.epochs


def releases(options: FedAvgOptions, heads: tuple[str, ...]) -> int:
    """Every epoch is a step, and every round may have an exact head."""
    return options.rounds * (options.epochs + ("exact" in heads))


strategies.add(
    Strategy(
        "fedavg",
        "FedAvg",
        20,
        fedavg,
        FedAvgOptions,
        epochs,
        by_default=True,
        sums_only=True,
        releases=releases,
    )
)
