"""FedProx (Li et al., 2020): FedAvg with a proximal term that holds clients near the federated model."""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.strategies.fedavg import averaging
from fedprognos.federation.strategies.plan import Plan, Round


def fedprox(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """FedAvg whose clients add mu/2 |W - W_federated|^2 to their loss."""
    return averaging(cohort, plan, plan.federation.fedprox, mu=plan.federation.fedprox.mu)
