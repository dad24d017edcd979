"""Single: the best client's body for everybody, with a head from everybody's statistics.

A body is a network below its head. Clients learn only the head together here, so strategies that federate the body as
well must be better. The body chosen has the exact head with the smallest error on what training kept out, or on all
training windows where nothing was kept out.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.first_models import first_models
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.networks import Network, exact_head, mean_squared_error
from fedprognos.options import Options


def single(cohort: Cohort, plan: Plan, _: Options) -> Iterator[Round]:
    """One round: every client trains (or imports) a model, all clients evaluate each, one is kept."""
    bodies = first_models(cohort, plan, plan.participants(cohort, 1), epochs=None)
    best = min(sorted(bodies.networks), key=lambda name: _error(cohort, plan, bodies.networks[name]))
    history = bodies.history[best]
    yield Round(1, {cohort.clients: bodies.networks[best]}, len(history), {best: history})


def _error(cohort: Cohort, plan: Plan, body: Network) -> float:
    """Mean squared error of the body's exact head, standardised."""
    fit, held = evaluate(cohort, plan, cohort.clients, body).head_statistics
    solved = exact_head(fit, held, plan.federation.ridge)
    return solved.validation_mse if solved.validation_mse is not None else mean_squared_error(fit, solved.head)


strategies.add(Strategy("single", "Best single body", 45, single))
