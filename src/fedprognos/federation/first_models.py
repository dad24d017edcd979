"""The models a matching begins with: trained now, or imported from the clients; useless ones are left out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedprognos.federation.cohort import Cohort, gather, needed
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.evaluate import EvaluateReply, EvaluateRequest
from fedprognos.federation.exchanges.fit import ClientModels, train
from fedprognos.federation.exchanges.import_model import ImportReply, ImportRequest, without_misfits
from fedprognos.federation.plan import Plan
from fedprognos.matching import groups
from fedprognos.networks import Network, NetworkSpec
from fedprognos.privacy import LEAST_TO_SCREEN, distant_weights, harmful_models


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
    misfits = {name: reason for name, reply in replies.items() if (reason := _misfit(plan, reply))}
    kept = without_misfits(replies, misfits, needed(len(requests), plan.federation.min_clients), plan.left_out)
    networks = {name: reply.network for name, reply in kept.items()}
    sizes = {name: reply.windows for name, reply in kept.items()}
    return drop_harmful(cohort, plan, ClientModels(networks, sizes, dict.fromkeys(kept, ())))


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


def drop_distant(plan: Plan, clients: ClientModels) -> ClientModels:
    """Leave out weights that lie far from all others, where clients started from the same weights."""
    if not plan.federation.screen:
        return clients
    distant = distant_weights(clients.networks)
    for name, times in distant.items():
        text = f"its weights are {times:.3g} times as far from the median model as the median client's; left out"
        plan.left_out(Failure(name, "harmful", text))
    return clients.only(clients.networks.keys() - distant.keys())


def drop_harmful(cohort: Cohort, plan: Plan, clients: ClientModels) -> ClientModels:
    """Leave out models without which the mean of all predictions is better for the majority."""
    if not plan.federation.screen or cohort.sums is not None or len(clients.networks) < LEAST_TO_SCREEN:
        return clients
    fraction, out = plan.train.validation_fraction, set[str]()
    for names in groups({name: network.spec.hidden for name, network in clients.networks.items()}):
        together = Network.concat([clients.networks[name] for name in names])
        request = EvaluateRequest(plan.recipe, together, plan.seed, fraction, True, plan.without_reserve)
        asked = dict.fromkeys(cohort.clients, request)
        replies = gather(cohort, asked, EvaluateReply, plan.federation.min_clients, plan.left_out)
        parts = {name: (reply.fit, reply.held) for name, reply in replies.items() if reply.fit is not None}
        group = {name: clients.networks[name] for name in names}
        for harm in harmful_models(group, parts, plan.federation.screen):
            out.add(harm.client)
            plan.left_out(Failure(harm.client, "harmful", harm.in_words("predictions of its model")))
    return clients.only(clients.networks.keys() - out)
