"""Single: the best client's body for everybody, with a head from everybody's statistics.

What federating layers must at least be worth: nothing but the head is learnt together. The body is chosen by the error
of its exact head on what training kept out, or on all training windows where nothing was.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.strategies.plan import Model, Plan, Round, Trained, first_models, summed
from fedprognos.networks.head import exact_head, mean_squared_error


def single(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """One round: every client trains (or brings) a model, all clients examine each, one is kept."""
    bodies = first_models(cohort, plan, plan.participants(cohort, 1), epochs=None, common=False)
    best = min(sorted(bodies), key=lambda name: _error(cohort, plan, bodies[name]))
    body = bodies[best]
    yield Round(1, (Model(cohort.clients, body.network, body.weights, len(body.history), {best: body.history}),))


def _error(cohort: Cohort, plan: Plan, body: Trained) -> float:
    """Mean squared error of the body's exact head, standardised."""
    fit, held = summed(plan.examined(cohort, cohort.clients, body.network, body.weights, statistics=True))
    solved = exact_head(fit, held, plan.federation.ridge)
    return solved.validation_mse if solved.validation_mse is not None else mean_squared_error(fit, solved.head)
