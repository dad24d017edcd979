"""Clients of one scenario in this process, every reply kept on disk: what was trained once is never trained again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment import config
from fedprognos.experiment.evaluator import evaluation_windows
from fedprognos.experiment.experiment_run import data_digest
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.scenario import Scenario
from fedprognos.features import Recipe, WindowSet
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.fit import train
from fedprognos.federation.exchanges.survey import recipe_from_survey
from fedprognos.federation.heads import with_heads
from fedprognos.federation.plan import Plan
from fedprognos.federation.reply_journal import ReplyJournal
from fedprognos.fleet import Fleet, pool
from fedprognos.networks import Network, NetworkSpec, predict


class Here:
    """Clients in this process as a transport."""

    def __init__(self, clients: Mapping[str, Client]) -> None:
        self._clients = dict(clients)

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self._clients))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        return {name: self._clients[name].respond(data) for name, data in sorted(requests.items())}


@dataclass(frozen=True, eq=False)
class Bench:
    """One scenario with one seed, ready for any method.

    Parameters
    ----------
    scope
        What sets these clients' data apart from that of other scenarios: names replies in the journal.
    agreed
        The recipe, where it does not come from these clients' own moments.
    everybody
        All clients of the scenario, where `scenario` holds some of them.
    """

    experiment: config.Experiment
    scenario: Scenario
    seed: int
    folder: Path
    scope: str
    agreed: Recipe | None = None
    everybody: Mapping[str, Fleet] | None = None

    def among(self, names: Sequence[str]) -> Bench:
        """Some of the clients, with a recipe of their own."""
        clients = {name: self.scenario.clients[name] for name in names}
        return replace(self, scenario=replace(self.scenario, clients=clients), everybody=self.scenario.clients)

    def joined_by(self, name: str, share: float) -> Bench:
        """These clients and one that brings the first of its units; the recipe stays the one agreed before."""
        fleet = (self.everybody or self.scenario.clients)[name]
        units = list(fleet)[: max(round(share * len(fleet)), 1)]
        scenario = replace(self.scenario, clients={**self.scenario.clients, name: fleet.select(units)})
        return replace(self, scenario=scenario, agreed=self.recipe, scope=f"{self.scope} {name} {len(units)}")

    @cached_property
    def _clients(self) -> dict[str, Client]:
        return {n: self._client(n, fleet) for n, fleet in self.scenario.clients.items()}

    def _client(self, name: str, fleet: Fleet) -> Client:
        return Client(name, fleet, ClientFolder(self.folder / "sites" / name), device="cpu")

    def cohort(self, names: Iterable[str] | None = None) -> MessageCohort:
        """All clients or some of them, with traffic counted from zero."""
        kept = {n: self._clients[n] for n in (self._clients if names is None else names)}
        return MessageCohort(Here(kept), journal=ReplyJournal(self.folder / "replies"), scope=self.scope)

    def pooled(self) -> MessageCohort:
        """All data in one place."""
        fleets = self.scenario.clients
        pooled_client = {"pooled": self._client("pooled", pool([fleets[n] for n in sorted(fleets)]))}
        return MessageCohort(
            Here(pooled_client), journal=ReplyJournal(self.folder / "replies"), scope=f"{self.scope} pooled"
        )

    @cached_property
    def recipe(self) -> Recipe:
        """The one agreed before, or from the moments that all clients send."""
        if self.agreed is not None:
            return self.agreed

        def refuse(failure: Failure) -> None:
            raise RuntimeError(f"{failure.client}: {failure.text}")

        return recipe_from_survey(self.cohort(), self.experiment.recipe, refuse)

    def plan(self, **changed: Any) -> Plan:
        """What the clients agree on; `changed` are options of the method, by its name."""
        federation = self.experiment.federation
        for method, options in changed.items():
            changed_options = getattr(federation, method).model_copy(update=options)
            federation = federation.model_copy(update={method: changed_options})
        return plan_of(self.experiment.model_copy(update={"federation": federation}), self.recipe, self.seed)

    def bodies(self, names: Iterable[str] | None = None, **spec: Any) -> dict[str, Network]:
        """What each client trains by itself: from the journal after the first time."""
        plan = self.plan()
        plan = replace(plan, spec=NetworkSpec(**{**plan.spec.model_dump(), **spec}))
        cohort = self.cohort(names)
        return dict(train(cohort, plan, dict.fromkeys(cohort.clients), epochs=None, round_=1).networks)

    def with_head(self, cohort: MessageCohort, network: Network, plan: Plan | None = None) -> Network:
        """The network with a head solved from the clients' sums."""
        return with_heads(cohort, plan or self.plan(), cohort.clients, network)["exact"].network

    @cached_property
    def tests(self) -> WindowSet:
        """The last moment of every test unit that is long enough."""
        return evaluation_windows(self.scenario, self.recipe, self.experiment.evaluation).scored[EVERYONE]

    def predictions(self, network: Network) -> FloatArray:
        """Predictions for the test units."""
        return predict(network, self.tests, self.recipe)


def mean_of(predictions: Sequence[FloatArray]) -> FloatArray:
    """The mean of several predictions."""
    return np.asarray(np.mean(predictions, axis=0))


def scope_of(scenario: Scenario) -> str:
    """Names the data that a scenario's clients hold."""
    return hashlib.sha256(data_digest(scenario).encode()).hexdigest()[:16]
