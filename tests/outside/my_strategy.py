"""Trust: every client's network, averaged once, the larger fleets counting more than in proportion."""

from collections.abc import Iterator
from typing import Annotated

import fedprognos as fp
from fedprognos.federation.averages import average
from fedprognos.federation.exchanges.fit import train


class TrustOptions(fp.Options):
    """Its keys in [federation.trust]."""

    power: Annotated[float, fp.Tunable((1.0, 2.0, 3.0))] = 2.0
    """How much more a larger fleet counts; `tune` tries these values."""


def trust(cohort, plan: fp.Plan, options: TrustOptions) -> Iterator[fp.Round]:
    """One round: all start alike, train, and are averaged."""
    starts = dict.fromkeys(cohort.clients, plan.common_start())
    clients = train(cohort, plan, starts, epochs=None, round_=1)
    sizes = {name: size**options.power for name, size in clients.sizes.items()}
    tensors = {name: network.weights for name, network in clients.networks.items()}
    weights = average(tensors, plan.spec.anatomy, how="weighted", sizes=sizes)
    yield fp.Round(1, {cohort.clients: fp.Network(plan.spec, weights)}, plan.train.epochs, clients.history)


TRUST = fp.Strategy("trust", "Trust", 70, trust, TrustOptions)
