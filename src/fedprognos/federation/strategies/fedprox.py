"""FedProx (Li et al., 2020): FedAvg with a proximal term that holds clients near the federated model."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import PositiveFloat

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.federation.strategies.fedavg import FedAvgOptions, epochs, fedavg, releases


class FedProxOptions(FedAvgOptions):
    """FedAvg whose clients are held near the federated model."""

    mu: PositiveFloat = 0.01
    """How strongly clients are held near the federated weights."""


def fedprox(cohort: Cohort, plan: Plan, options: FedProxOptions) -> Iterator[Round]:
    """FedAvg whose clients add mu/2 |W - W_federated|^2 to their loss."""
    return fedavg(cohort, plan, options, mu=options.mu)


strategies.add(
    Strategy(
        "fedprox",
        "FedProx",
        30,
        fedprox,
        FedProxOptions,
        epochs,
        by_default=True,
        sums_only=True,
        releases=releases,
    )
)
