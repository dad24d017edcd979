"""Leaving out models that do harm, before they are matched, absorbed or put side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import EvaluateReply, EvaluateRequest
from fedprognos.federation.screening.bodies import harmful_bodies
from fedprognos.matching import groups
from fedprognos.networks import Network

if TYPE_CHECKING:
    from fedprognos.federation.plan import ClientModels, Plan


def drop_harmful(cohort: Cohort, plan: Plan, clients: ClientModels) -> ClientModels:
    """Leave out models without which the mean of all predictions is better for the majority."""
    if not plan.federation.screen or cohort.sums is not None:
        return clients
    fraction, out = plan.train.validation_fraction, set[str]()
    for names in groups({name: network.spec.hidden for name, network in clients.networks.items()}):
        together = Network.concat([clients.networks[name] for name in names])
        request = EvaluateRequest(plan.recipe, together, plan.seed, fraction, True, plan.without_reserve)
        asked = dict.fromkeys(cohort.clients, request)
        replies = gather(cohort, asked, EvaluateReply, plan.federation.min_clients, plan.left_out)
        group = {name: clients.networks[name] for name in names}
        for harm in harmful_bodies(group, replies, plan.federation.screen):
            out.add(harm.client)
            plan.left_out(harm.failure("predictions of its model"))
    return clients.only(clients.networks.keys() - out)
