"""The models a matching begins with: trained now, or brought by the clients; useless ones are left out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedprognos.errors import FederationError
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import Failure, ImportReply, ImportRequest
from fedprognos.federation.plan import ClientModels, Plan, train
from fedprognos.federation.screening import drop_harmful
from fedprognos.networks import NetworkSpec


def first_models(
    cohort: Cohort, plan: Plan, clients: Iterable[str], *, epochs: int | None, common: bool = False
) -> ClientModels:
    """The models a matching begins with: trained now, or imported from the clients; collapsed ones are left out."""
    if plan.federation.start == "bundles":
        return import_models(cohort, plan, clients)
    start = plan.common_start() if common else None
    trained = train(cohort, plan, dict.fromkeys(clients, start), epochs=epochs, round_=1)
    return drop_harmful(cohort, plan, drop_collapsed(plan, trained))


def import_models(cohort: Cohort, plan: Plan, clients: Iterable[str]) -> ClientModels:
    """Models that the clients trained earlier; they must see the data alike and have the same layers."""
    requests = dict.fromkeys(clients, ImportRequest())
    replies = gather(cohort, requests, ImportReply, plan.federation.min_clients, plan.left_out)
    misfits = {name: why for name, reply in replies.items() if (why := _misfit(plan, reply))}
    least = len(requests) if plan.federation.min_clients is None else min(plan.federation.min_clients, len(requests))
    for name, why in sorted(misfits.items()):
        if len(replies) - len(misfits) < least:
            raise FederationError(why, where=f"client {name}")
        plan.left_out(Failure(name, "recipe", why))
        del replies[name]
    networks = {name: reply.network for name, reply in replies.items()}
    sizes = {name: reply.windows for name, reply in replies.items()}
    return drop_harmful(cohort, plan, ClientModels(networks, sizes, dict.fromkeys(replies, ())))


def _misfit(plan: Plan, reply: ImportReply) -> str:
    """Why an imported model cannot take part; empty where it can."""
    if reply.recipe != plan.recipe:
        return "its model was made with another recipe"
    spec = reply.network.spec
    if unlike := plan.spec.unlike(spec):
        return f"its model has another shape: {unlike}"
    wider = np.greater(_sizes(spec), _sizes(plan.spec)).any()
    return "its model is wider than agreed on" if plan.federation.imported and wider else ""


def _sizes(spec: NetworkSpec) -> tuple[int, ...]:
    """What a network of a given number of layers can be wide in."""
    return (*spec.widths, *([] if spec.input_width is None else [spec.input_width]), spec.reservoir, spec.features)


def drop_collapsed(plan: Plan, clients: ClientModels) -> ClientModels:
    """Leave models that always predict the mean out of a matching; all of them are kept where there is no other."""
    kept = [name for name in clients.networks if name not in clients.collapsed]
    text = "its model collapsed to the mean" + (" and is left out of the matching" if kept else ", as all models did")
    for name in sorted(clients.collapsed):
        plan.left_out(Failure(name, "collapsed", text))
    return clients.only(kept or clients.networks)
