"""Clients on this machine: the transport to worker processes, and the access of a run to all clients there."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedprognos.errors import FederationError
from fedprognos.evaluation import ClientPredictions, ResultRow, fleet_summary
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.engines import Engine
from fedprognos.experiment.evaluator import HeldTests, assess_baselines, evaluation_windows
from fedprognos.experiment.run_folder import RunFolder, folder_name
from fedprognos.experiment.scenario import Scenario
from fedprognos.experiment.worker_pool import OnEpoch, WorkerLostError, Workers
from fedprognos.features import Recipe, check_usable
from fedprognos.federation import ClientFolder, OpenSums, Sums
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Fleet, pool

POOLED = "pooled"


@dataclass(frozen=True, eq=False)
class WorkerTransport:
    """Sends to clients in worker processes.

    Parameters
    ----------
    keys
        Client name to its key in the pool.
    on_epoch
        Called after every epoch of training, with the client's key.
    """

    workers: Workers
    keys: Mapping[str, str]
    on_epoch: OnEpoch | None = None
    timeout_in_s: float | None = None

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.keys))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        by_key = {self.keys[name]: data for name, data in sorted(requests.items())}
        answers = self.workers.answers(by_key, self.on_epoch, self.timeout_in_s)
        replies: dict[str, bytes | Failure] = {}
        for name in sorted(requests):
            reply = answers[self.keys[name]]
            replies[name] = Failure(name, reply.code, reply.what) if isinstance(reply, WorkerLostError) else reply
        return replies


@dataclass(eq=False)
class LocalClients:
    """The clients of all scenarios on this machine, with their data and tests; fulfils `ClientAccess`."""

    experiment: Experiment
    scenarios: Mapping[str, Scenario]
    folder: RunFolder
    engine: Engine | None
    _tests: dict[str, HeldTests] = field(default_factory=dict)

    @cached_property
    def workers(self) -> Workers:
        """Whoever answers for the clients, started when first needed."""
        return Workers(self._all_clients(), self.engine, self.experiment.train.device, self.folder.path)

    @property
    def clients(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(sorted(scenario.clients)) for name, scenario in self.scenarios.items()}

    def transport(self, scenario: str, on_epoch: OnEpoch | None = None, *, pooled: bool = False) -> WorkerTransport:
        all_keys = {client: f"{scenario}/{client}" for client in self.scenarios[scenario].clients}
        keys = {POOLED: f"{scenario}//{POOLED}"} if pooled else all_keys
        return WorkerTransport(self.workers, keys, on_epoch, self.experiment.federation.timeout_in_s)

    @property
    def sums(self) -> Sums | None:
        """The integers of masked sums without the masks, where the experiment asks for them."""
        return OpenSums() if self.experiment.federation.mode == "masked" else None

    def evaluator(self, scenario: str, recipe: Recipe) -> HeldTests:
        evaluation = self.experiment.evaluation
        clients, tests = self.scenarios[scenario].clients, self.scenarios[scenario].tests
        for name, fleet in sorted(clients.items()):
            check_usable(recipe, fleet, f"client {name}")
        self.folder.save_fleet_summary(scenario, fleet_summary(clients, tests, recipe))
        raw = sum(8 * (u.sensors.size + u.settings.size + u.rows) for fleet in clients.values() for u in fleet)
        windows = evaluation_windows(self.scenarios[scenario], recipe, evaluation)
        self._tests[scenario] = HeldTests(windows, self._folders(scenario), evaluation.coverage, raw)
        return self._tests[scenario]

    def baselines(self, scenario: str) -> tuple[list[ResultRow], list[ClientPredictions]]:
        names = self.experiment.evaluation.baselines
        return assess_baselines(self._tests[scenario].tests, self.scenarios[scenario], names)

    def left_out(self, scenario: str, failure: Failure) -> None:
        """Raise the whole error from the client's log, for all data is here.

        A client that answered and was found harmful is shown as a warning.
        """
        if failure.code == "harmful":
            warnings.warn(f"client {failure.client}: {failure.text}", UserWarning, stacklevel=2)
            return
        logged = self.client_folder(scenario, failure.client).last_error()
        raise FederationError(logged or failure.text, where=f"client {failure.client}")

    def close(self) -> None:
        if "workers" in vars(self):  # a cached property: not started means nothing to close
            self.workers.close()

    def client_folder(self, scenario: str, client: str, *, pooled: bool = False) -> ClientFolder:
        """The folder of a client, or of the one that holds all data of a scenario."""
        if pooled:
            return ClientFolder(self.folder.path / "sites" / folder_name(scenario) / "(pooled)")
        return self.folder.client(scenario, client, self.experiment.federation)

    def _folders(self, scenario: str) -> dict[str, ClientFolder]:
        return {client: self.client_folder(scenario, client) for client in self.scenarios[scenario].clients}

    def _all_clients(self) -> dict[str, tuple[str, Fleet, ClientFolder]]:
        """All clients the workers answer for; central training is a client that holds the pooled fleet."""
        clients = {}
        for name, scenario in self.scenarios.items():
            folders = self._folders(name)
            for client, fleet in scenario.clients.items():
                clients[f"{name}/{client}"] = (client, fleet, folders[client])
            if any(strategies[method].pooled for method in self.experiment.federation.methods):
                pooled = pool([scenario.clients[c] for c in sorted(scenario.clients)])
                clients[f"{name}//{POOLED}"] = (POOLED, pooled, self.client_folder(name, POOLED, pooled=True))
        return clients
