"""FedAvg (McMahan et al., 2017): coordinate-wise averages weighted by data size, Eq. 2 of the paper."""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.federation.aggregate import average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.options import FedAvgOptions
from fedprognos.federation.strategies.plan import Model, Plan, Round, as_float32, train


def fedavg(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """E local epochs a round from the federated model, then W = sum_j p_j W_j."""
    return averaging(cohort, plan, plan.federation.fedavg, mu=0.0)


def averaging(cohort: Cohort, plan: Plan, section: FedAvgOptions, mu: float) -> Iterator[Round]:
    """FedAvg's loop, its clients held near the federated model by mu."""
    weights = plan.common_start()
    for r in range(1, section.rounds + 1):
        starts = dict.fromkeys(plan.participants(cohort, r), (plan.network, weights))
        clients, _ = train(cohort, plan, starts, epochs=section.epochs, round_=r, proximal=mu)
        sizes = {name: client.windows for name, client in clients.items()}
        weights = as_float32(
            average({n: c.weights for n, c in clients.items()}, plan.anatomy, how="weighted", sizes=sizes)
        )
        history = {name: client.history for name, client in clients.items()}
        yield Round(r, (Model(cohort.clients, plan.network, weights, r * section.epochs, history),))
