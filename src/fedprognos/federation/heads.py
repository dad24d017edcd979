"""Finishing a model: its head as trained and averaged, solved exactly, or each client's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from fedprognos.federation.client import digest
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import ErrorSums, PersonalReply, PersonalRequest
from fedprognos.federation.strategies import Model, Plan, summed
from fedprognos.networks import Weights
from fedprognos.networks.head import exact_head, with_head, within_head


@dataclass(frozen=True, eq=False)
class Finished:
    """A model with one kind of head, and its error on what training kept out (None where nothing was)."""

    head: str
    model: Model
    weights: Weights
    validation_rmse: float | None


def finish(cohort: Cohort, plan: Plan, model: Model) -> dict[str, Finished]:
    """The shared heads asked for, from one exchange with the clients of the model."""
    wanted = plan.federation.heads
    statistics = "exact" in wanted or "personal" in wanted
    fraction = plan.train.validation_fraction
    if not statistics and fraction == 0:
        return {"mean": Finished("mean", model, model.weights, None)}
    clients = [name for name in model.clients if name in cohort.clients]
    replies = plan.examined(cohort, clients, model.network, model.weights, statistics=statistics)
    finished = {}
    if "mean" in wanted:
        sums = [reply.validation for reply in replies.values() if reply.validation is not None]
        error = reduce(ErrorSums.add, sums).rmse if sums else None
        finished["mean"] = Finished("mean", model, model.weights, error)
    if statistics:
        solved = exact_head(*summed(replies), plan.federation.ridge)
        error = None
        if fraction > 0 and solved.validation_mse is not None:
            error = float(np.sqrt(solved.validation_mse)) * plan.recipe.label_std
        weights = with_head(model.weights, solved.head)
        finished["exact"] = Finished("exact", model, weights, error)
    return finished


def personal_heads(cohort: Cohort, plan: Plan, model: Finished, clients: tuple[str, ...]) -> Mapping[str, str]:
    """Let clients make heads of their own, near slopes that they share; the names under which they keep them."""
    network, federation = model.model.network, plan.federation
    there = [name for name in cohort.clients if name in clients]
    told = plan.examined(cohort, there, network, model.weights, statistics=True)
    fit = {name: reply.fit for name, reply in told.items() if reply.fit is not None}
    shared = within_head(list(fit.values()), [told[name].held for name in fit], federation.ridge)
    weights = with_head(model.weights, shared.head)
    request = PersonalRequest(plan.recipe, network, weights, plan.seed, plan.train.validation_fraction)
    made = gather(cohort, dict.fromkeys(fit, request), PersonalReply, federation.min_clients, plan.left_out)
    return dict.fromkeys(made, digest(encode(request)))
