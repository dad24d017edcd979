"""FedAvg (McMahan et al., 2017): coordinate-wise averages weighted by data size, Eq. 2 of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import PositiveInt

from fedprognos.errors import ConfigError
from fedprognos.federation.averages import AggregatorName, average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.fit import masked_mean, train
from fedprognos.federation.first_models import drop_distant
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.networks import Epoch, Network
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
    masked = cohort.sums is not None
    if masked and options.average != "weighted":
        raise ConfigError(f"average = '{options.average}' needs federation.mode = 'checked'")
    network = plan.common_start()
    history: Mapping[str, tuple[Epoch, ...]] = {}  # stays empty under masks, where nobody sees a client's errors
    for r in range(1, options.rounds + 1):
        starts = dict.fromkeys(plan.participants(cohort, r), network)
        if masked:  # the coordinator sees only sum_j n_j W_j and sum_j n_j
            network = masked_mean(cohort, plan, starts, epochs=options.epochs, round_=r, proximal=mu)
        else:
            clients = drop_distant(plan, train(cohort, plan, starts, epochs=options.epochs, round_=r, proximal=mu))
            tensors = {name: client.weights for name, client in clients.networks.items()}
            sizes, history = plan.counted(clients.sizes), clients.history
            weights = average(tensors, plan.spec.anatomy, how=options.average, sizes=sizes, start=network.weights)
            network = Network(plan.spec, weights)
        yield Round(r, {cohort.clients: network}, r * options.epochs, history)


def epochs(options: FedAvgOptions, budget: Budget) -> int:
    """Epochs of all rounds."""
    return options.rounds * options.epochs


def releases(options: FedAvgOptions, heads: tuple[str, ...]) -> int:
    """Privacy trains with one step an epoch, and solves an exact head a round where one is asked for."""
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
