"""Local training: every client by itself, nothing exchanged but the standardising statistics."""

from __future__ import annotations

from fedprognos.federation.cohort import Cohort, answered
from fedprognos.federation.messages import FitReply, FitRequest
from fedprognos.federation.strategies.plan import Model, Outcome, Plan


def local(cohort: Cohort, plan: Plan) -> Outcome:
    """One model a client."""
    request = FitRequest(plan.recipe, plan.network, plan.train, plan.seed)
    replies = cohort.ask(dict.fromkeys(cohort.clients, request))
    answered(replies, FitReply)
    return Outcome(
        tuple(
            Model((name,), plan.network, reply.weights, reply.history, len(reply.history), 0, reply.collapsed)
            for name, reply in sorted(replies.items())
            if isinstance(reply, FitReply)
        )
    )
