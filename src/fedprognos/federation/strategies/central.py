"""Central training: one client holds the data of all. It shows what a federation could reach, and cannot be deployed.

`central` trains one network. `ensemble` trains several and puts them side by side: by default as many as there are
clients, so that it is as large as what `concat` makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import PositiveInt

from fedprognos.errors import ConfigError
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.fit import train
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.federation.strategies.local import local
from fedprognos.networks import Epoch, Network
from fedprognos.options import Options
from fedprognos.privacy import stream


class CentralOptions(Options):
    """All data in one place."""

    steps: PositiveInt | None = None
    """Gradient steps, where all data in one place takes more of them than a client's; train.steps by default."""


def central(cohort: Cohort, plan: Plan, options: CentralOptions) -> Iterator[Round]:
    """Local training of the one client that holds all data."""
    return local(cohort, _central_plan(cohort, plan, options), options)


def _central_plan(cohort: Cohort, plan: Plan, options: CentralOptions) -> Plan:
    """The plan with the steps of central training; refused where the data is not in one place."""
    if len(cohort.clients) != 1:
        raise ConfigError(
            "central training needs all data in one place", hint="it exists to compare with; it cannot be deployed"
        )
    if options.steps is None:
        return plan
    return replace(plan, train=plan.train.model_copy(update={"steps": options.steps}))


class EnsembleOptions(CentralOptions):
    """All data in one place, several networks side by side."""

    networks: PositiveInt | None = None
    """How many; as many as there are clients by default."""


def ensemble(cohort: Cohort, plan: Plan, options: EnsembleOptions) -> Iterator[Round]:
    """Central training from several first weights; the networks stand side by side under one head."""
    plan = _central_plan(cohort, plan, options)
    networks: list[Network] = []
    history: dict[str, tuple[Epoch, ...]] = {}
    for k in range(options.networks or plan.clients):
        start = Network.seeded(plan.spec, stream(plan.seed, "", k, "ensemble"), forget_bias=plan.train.forget_bias)
        trained = train(cohort, plan, dict.fromkeys(cohort.clients, start), epochs=None, round_=k + 1)
        networks += trained.networks.values()
        history = dict(trained.history)
    yield Round(1, {cohort.clients: Network.concat(networks)}, None, history)


strategies.add(Strategy("ensemble", "Central ensemble", 95, ensemble, EnsembleOptions, pooled=True))
strategies.add(Strategy("central", "Central", 90, central, CentralOptions, pooled=True, by_default=True))
