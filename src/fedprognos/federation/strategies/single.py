"""Single: the best client's body for everybody, with a head from everybody's statistics.

What federating layers must at least be worth: nothing but the head is learnt together. The body is chosen by the error
of its exact head on what training kept out, or on all training windows where nothing was.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import ExamineReply
from fedprognos.federation.strategies.plan import Model, Plan, Round, Trained, first_models
from fedprognos.model.head import add_all, exact_head, mean_squared_error


def single(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """One round: every client trains (or brings) a model, all clients examine each, one is kept."""
    bodies = first_models(cohort, plan, plan.participants(cohort, 1), epochs=None, common=False)
    best = min(sorted(bodies), key=lambda name: _error(cohort, plan, bodies[name]))
    body = bodies[best]
    yield Round(1, (Model(cohort.clients, body.network, body.weights, len(body.history), {best: body.history}),))


def _error(cohort: Cohort, plan: Plan, body: Trained) -> float:
    """Mean squared error of the body's exact head, standardised."""
    request = plan.examination(body.network, body.weights, statistics=True)
    federation = plan.federation
    replies = gather(
        cohort, dict.fromkeys(cohort.clients, request), ExamineReply, federation.min_clients, plan.left_out
    )
    fit = add_all(reply.fit for reply in replies.values() if reply.fit is not None)
    held = [reply.held for reply in replies.values() if reply.held is not None]
    solved = exact_head(fit, add_all(held) if held else None, plan.federation.ridge)
    return solved.validation_mse if solved.validation_mse is not None else mean_squared_error(fit, solved.head)
