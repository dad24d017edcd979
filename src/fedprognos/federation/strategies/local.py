"""Local training: every client by itself, nothing exchanged but the standardising statistics."""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.strategies.plan import Model, Plan, Round, train


def local(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """One model a client, in one round."""
    trained, collapsed = train(cohort, plan, dict.fromkeys(cohort.clients, (plan.network, None)), epochs=None, round_=1)
    yield Round(
        1,
        tuple(
            Model((name,), m.network, m.weights, len(m.history), {name: m.history}, name in collapsed)
            for name, m in trained.items()
        ),
    )
