"""The run that a contract describes, as one deterministic loop over a transport.

The coordinator runs it to ask; every site runs it to know what it must be asked next. Both see the same replies, so
both come to the same requests.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.messages import (
    DeliverReply,
    DeliverRequest,
    JoinReply,
    JoinRequest,
    RefusalReply,
    RefusalRequest,
)
from fedprognos.deployment.site_data import data_terms
from fedprognos.deployment.site_scores import Sites
from fedprognos.errors import FederationError
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.events import JobKey, Notice, Observer
from fedprognos.experiment.job import JobResult
from fedprognos.experiment.publish import Published
from fedprognos.experiment.run_folder import JobRecord
from fedprognos.experiment.schedule import Schedule
from fedprognos.federation.cohort import MessageCohort, RelayingTransport, Transport
from fedprognos.federation.messages import Failure
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.federation.secure.coordinator import MaskedSums
from fedprognos.federation.seeds import stream
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Schema
from fedprognos.networks import Bundle

Keep = Callable[[JobKey, JobResult, JobRecord], None]


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What a run came to: its jobs, the method to use, who took part, and who received the model."""

    records: Mapping[JobKey, JobRecord]
    chosen: Published
    members: tuple[str, ...]
    delivered: Mapping[str, bool]


@dataclass(frozen=True, eq=False)
class AgreedRun:
    """The loop: members join, agree on a recipe, train with every method, and receive the model.

    Parameters
    ----------
    keep
        Called with every finished job.
    before_delivery
        Called when all jobs are done.
    """

    contract: Contract
    transport: Transport
    notify: Observer
    keep: Keep = lambda key, result, record: None
    before_delivery: Callable[[], None] = lambda: None

    def perform(self) -> Outcomes:
        experiment = self.contract.experiment()
        members = self._join(experiment)
        self.notify(Notice(f"sites: {', '.join(members)}"))
        way, cache = _Members(self.transport, members), _Memory(Path())
        bundles: dict[JobKey, dict[str | None, Bundle]] = {}

        def keep(key: JobKey, result: JobResult, record: JobRecord) -> None:
            bundles[key] = result.bundles
            self.keep(key, result, record)

        sums = None
        if self.contract.mode == "masked":
            sums = MaskedSums(self.contract.digest, self.contract.members)
        venue = Sites(experiment, way, cache, self.notify, sums)
        records, chosen = Schedule(self.contract.run, experiment, venue, cache, keep, self.notify).work()
        self.before_delivery()
        owner = None if strategies[chosen.method].shared else min(members)
        bundle = bundles[JobKey(self.contract.scenario, chosen.method, 0)][owner]
        return Outcomes(records, chosen, members, self._deliver(way, experiment, bundle))

    def _join(self, experiment: Experiment) -> tuple[str, ...]:
        """The members whose data fits; the others are told why theirs does not."""
        cohort, name = MessageCohort(self.transport), self.contract.run
        request = JoinRequest(name, data_terms(experiment.recipe))
        replies = cohort.ask(dict.fromkeys(cohort.clients, request), (JoinReply, Failure))
        fitting = {site: reply for site, reply in replies.items() if isinstance(reply, JoinReply)}
        for site, reply in replies.items():
            if isinstance(reply, Failure):
                self.notify(Notice(f"{site} cannot take part: {reply.text}"))
        refused = misfits({site: reply.schema for site, reply in fitting.items()})
        for site, reason in refused.items():
            self.notify(Notice(f"{site} is refused: {reason}"))
            del fitting[site]
        if refused:
            requests = {site: RefusalRequest(name, reason) for site, reason in refused.items()}
            cohort.ask(requests, (RefusalReply, Failure))
        least, wanted = experiment.federation.min_clients, len(replies)
        if len(fitting) < (wanted if least is None else min(least, wanted)):
            raise FederationError(
                f"{len(fitting)} of {wanted} sites can take part",
                hint="Fix the other sites, or set federation.min_clients to continue without them.",
            )
        return tuple(sorted(fitting))

    def _deliver(self, way: Transport, experiment: Experiment, bundle: Bundle) -> dict[str, bool]:
        self.notify(Notice("delivering the model"))
        request = delivery_request(self.contract.run, experiment, bundle)
        replies = MessageCohort(way).ask(dict.fromkeys(way.clients, request), (DeliverReply, Failure))
        for site, reply in replies.items():
            if isinstance(reply, Failure):
                self.notify(Notice(f"{site} did not receive the model: {reply.text}"))
        return {site: isinstance(reply, DeliverReply) for site, reply in replies.items()}


def delivery_request(name: str, experiment: Experiment, bundle: Bundle) -> DeliverRequest:
    """The message that brings a finished model to the sites."""
    return DeliverRequest(
        name,
        bundle.recipe,
        bundle.network,
        json.dumps(dict(bundle.provenance)),
        json.dumps(dict(bundle.metrics)),
        bundle.calibration,
        stream(int(bundle.provenance["seed"]), "", 0, "run"),
        experiment.train.validation_fraction,
        experiment.evaluation.bootstrap,
        experiment.evaluation.coverage,
    )


def misfits(schemas: Mapping[str, Schema]) -> dict[str, str]:
    """Why sites cannot take part, in words their engineers can act on."""
    columns = {site: _described(schema) for site, schema in schemas.items()}
    common = Counter(columns.values()).most_common(1)
    return {
        site: f"its columns are {own}; the federation's are {common[0][0]}"
        for site, own in columns.items()
        if own != common[0][0]
    }


def _described(schema: Schema) -> str:
    settings = f", operating settings {', '.join(schema.settings)}" if schema.settings else ""
    return f"{schema.task} from {', '.join(schema.sensors)}{settings} in {schema.time_measure} ({schema.target})"


@dataclass(frozen=True, eq=False)
class _Members:
    """The way to those who joined."""

    transport: Transport
    clients: tuple[str, ...]

    def send(self, requests: Mapping[str, bytes]) -> Mapping[str, bytes | Failure]:
        return self.transport.send(requests)

    def reject(self, failure: Failure) -> None:
        if isinstance(self.transport, RelayingTransport):
            self.transport.reject(failure)


class _Memory(ReplyCache):
    """Replies that jobs share, for as long as the loop runs: the run's transcript is what is kept."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._known: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self._known.get(key)

    def keep(self, key: str, data: bytes) -> None:
        self._known[key] = data
