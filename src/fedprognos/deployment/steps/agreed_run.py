"""The run that a contract describes, as one deterministic loop over a transport.

The coordinator runs it to ask. Every site runs it to know what the next step asks of it. Both see the same replies, so
both come to the same requests, up to the last digits of computed numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedprognos.deployment.contract import Contract
from fedprognos.errors import FederationError
from fedprognos.evaluation import EVERYONE, ClientPredictions, ResultRow, ScoreSums
from fedprognos.experiment import (
    Errors,
    Experiment,
    FinishedModel,
    JobKey,
    JobRecord,
    JobResult,
    LeftOut,
    Notice,
    Observer,
    OnEpoch,
    Published,
    Schedule,
    for_all_units,
    trained_again,
    with_refit,
)
from fedprognos.features import Recipe
from fedprognos.federation import (
    Cohort,
    DataTerms,
    DeliverReply,
    DeliverRequest,
    JoinReply,
    JoinRequest,
    MaskedSums,
    MessageCohort,
    OnLeftOut,
    RefusalReply,
    RefusalRequest,
    ReplyJournal,
    ScoreReply,
    ScoreRequest,
    Sums,
    Transport,
    gather,
    needed,
    total,
)
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Schema
from fedprognos.networks import Bundle, Calibration, Network
from fedprognos.privacy import LEAST_MEMBERS, stream

Keep = Callable[[JobKey, JobResult, JobRecord], None]


class MembersTransport(Transport, Protocol):
    """Reaches the members of a contract."""

    def keep_only(self, members: tuple[str, ...]) -> None:
        """Ask no members but these from now on."""


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """The result of a run: its jobs, the published model, who took part, and who received the model.

    Parameters
    ----------
    refitted
        The published model, trained once more on all units; None where the evaluated model is published.
    """

    records: Mapping[JobKey, JobRecord]
    chosen: Published
    members: tuple[str, ...]
    delivered: Mapping[str, bool]
    refitted: Bundle | None = None


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
    transport: MembersTransport
    notify: Observer
    keep: Keep = lambda key, result, record: None
    before_delivery: Callable[[], None] = lambda: None

    def perform(self) -> RunOutcome:
        experiment = self.contract.experiment()
        joined = self._join(experiment)
        members = tuple(sorted(joined))
        self.notify(Notice(f"sites: {', '.join(members)}"))
        self.transport.keep_only(members)
        # Jobs share replies by digests of their requests. Processors round differently, so only this process may
        # compare such digests, and this journal is in memory. The journal on disk is the transport's: it goes by steps.
        journal = ReplyJournal()
        bundles: dict[JobKey, dict[str | None, Bundle]] = {}

        def keep(key: JobKey, result: JobResult, record: JobRecord) -> None:
            bundles[key] = result.bundles
            self.keep(key, result, record)

        sums = None
        if self.contract.mode == "masked":
            sums = MaskedSums(self.contract.digest, self.contract.members)
        sites, declared = Sites(experiment, self.transport, journal, self.notify, sums), dict[str, dict[str, int]]()
        schedule = Schedule(self.contract.run, experiment, sites, journal, keep, self.notify, declared=declared)
        records, chosen = schedule.work()
        key = JobKey(self.contract.scenario, chosen.method, 0)
        owner = None if strategies[chosen.method].shared else min(members)
        evaluated, refitted = bundles[key][owner], None
        if experiment.evaluation.refit and any(reply.can_refit for reply in joined.values()):
            chosen = with_refit(chosen)
            refitted = self._refit(key, experiment, evaluated, sums, declared[key.scenario])
        self.before_delivery()
        delivered = self._deliver(experiment, evaluated, refitted)
        return RunOutcome(records, chosen, members, delivered, refitted)

    def _refit(
        self, key: JobKey, experiment: Experiment, evaluated: Bundle, sums: Sums | None, declared: Mapping[str, int]
    ) -> Bundle:
        """Train the published model once more, on all units of the members."""
        again = for_all_units(experiment, evaluated)
        trainers = MessageCohort(
            self.transport,
            wire=again.federation.wire,
            # A member may have as many test points as training points: it declared the latter only.
            declared={name: 2 * points for name, points in declared.items()},
            sums=None if sums is None else sums.about_other_units(),
            all_units=True,
        )
        members = self.transport.clients
        return trained_again(self.contract.run, key, again, evaluated, members, trainers, self.notify)[0]

    def _join(self, experiment: Experiment) -> dict[str, JoinReply]:
        """What the members reply whose data fits; the others are sent the reason."""
        cohort, name = MessageCohort(self.transport), self.contract.run
        request = JoinRequest(name, DataTerms.from_recipe(experiment.recipe))
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
        if len(fitting) < needed(len(replies), experiment.federation.min_clients):
            raise FederationError(
                f"{len(fitting)} of {len(replies)} sites can take part",
                hint="Fix the other sites, or set federation.min_clients to continue without them.",
            )
        return fitting

    def _deliver(self, experiment: Experiment, evaluated: Bundle, refitted: Bundle | None) -> dict[str, bool]:
        self.notify(Notice("delivering the model"))
        request = delivery_request(self.contract.run, experiment, evaluated, refitted)
        replies = MessageCohort(self.transport).ask(
            dict.fromkeys(self.transport.clients, request), (DeliverReply, Failure)
        )
        for site, reply in replies.items():
            if isinstance(reply, Failure):
                self.notify(Notice(f"{site} did not receive the model: {reply.text}"))
        return {site: isinstance(reply, DeliverReply) for site, reply in replies.items()}


def delivery_request(
    name: str, experiment: Experiment, evaluated: Bundle, refitted: Bundle | None = None
) -> DeliverRequest:
    """The request that sends a finished model to the sites."""
    bundle = refitted or evaluated
    return DeliverRequest(
        name,
        bundle.recipe,
        evaluated.network,
        json.dumps(dict(bundle.provenance)),
        json.dumps(dict(bundle.metrics)),
        bundle.calibration,
        stream(int(bundle.provenance["seed"]), "", 0, "run"),
        experiment.train.validation_fraction,
        experiment.evaluation.bootstrap,
        experiment.evaluation.coverage,
        bundle.novelty,
        None if refitted is None else refitted.network,
    )


def misfits(schemas: Mapping[str, Schema]) -> dict[str, str]:
    """Why sites cannot take part, by site: their columns are not those of most sites."""
    columns = {site: _described(schema) for site, schema in schemas.items()}
    common = Counter(columns.values()).most_common(1)
    return {
        site: f"its columns are {described}; the federation's are {common[0][0]}"
        for site, described in columns.items()
        if described != common[0][0]
    }


def _described(schema: Schema) -> str:
    settings = f", operating settings {', '.join(schema.settings)}" if schema.settings else ""
    return f"{schema.task} from {', '.join(schema.sensors)}{settings} in {schema.time_measure} ({schema.target})"


@dataclass(frozen=True, eq=False)
class SiteScores:
    """Evaluates finished models, not every round, by sums of errors that the sites send: an `Evaluator`.

    The coordinator has no test units. Scores are on the sites' test units if every site has enough of them to send a
    sum, otherwise on what training kept out; each row says which.
    """

    cohort: Cohort
    recipe: Recipe
    experiment: Experiment
    notify: Observer

    shared_test: bool = False
    probe: NDArray[np.float32] | None = None
    raw_bytes: int = 0

    @property
    def clients(self) -> tuple[str, ...]:
        return self.cohort.clients

    def errors(self, owners: Sequence[str], network: Network) -> Errors:
        return {}

    def rows(self, model: FinishedModel) -> tuple[list[ResultRow], list[ClientPredictions]]:
        """Rows without predictions; no rows for the mean of several models, which no site may see."""
        if len(model.networks) > 1:
            return [], []
        heads = dict.fromkeys(model.owners, "")
        if model.personal_heads is not None:
            heads = {name: model.personal_heads[name] for name in model.owners if name in model.personal_heads}
        scored_on, sums = self._sums(model.key, model.networks[0], heads, model.calibration)
        if len(sums) > 1:
            sums[EVERYONE] = reduce(add, sums.values())
        shared = {
            **model.facts,
            "scenario": model.key.scenario,
            "method": model.method,
            "train_clients": model.owners,
            "seed": model.key.seed,
            "measure": self.recipe.target_measure,
            "scored_on": scored_on,
        }
        return [ResultRow.model_validate({**shared, **s.scores(), "test_client": test}) for test, s in sums.items()], []

    def _sums(
        self, key: JobKey, network: Network, heads: Mapping[str, str], calibration: Calibration | None
    ) -> tuple[Literal["test", "validation"], dict[str, ScoreSums]]:
        """Sums of each site's errors; `heads` names the personal head to use at a site, empty for the model's own."""

        def left_out(failure: Failure) -> None:
            self.notify(LeftOut(key, failure.client, failure.code, failure.text))

        evaluation = self.experiment.evaluation
        requests = {
            name: ScoreRequest(
                self.recipe,
                network,
                stream(key.seed, "", 0, "run"),
                self.experiment.train.validation_fraction,
                evaluation.score_at,
                heads[name],
                calibration,
                evaluation.coverage,
            )
            for name in self.clients
            if name in heads
        }
        if self.cohort.sums is not None:
            return self._masked_sums(requests, left_out)
        replies = gather(self.cohort, requests, ScoreReply, self.experiment.federation.min_clients, left_out)
        test = {name: reply.test for name, reply in replies.items() if reply.test is not None}
        if len(test) == len(replies):
            return "test", test
        return "validation", {name: r.validation for name, r in replies.items() if r.validation is not None}

    def _masked_sums(
        self, requests: Mapping[str, ScoreRequest], left_out: OnLeftOut
    ) -> tuple[Literal["test", "validation"], dict[str, ScoreSums]]:
        """Sums over all sites; none for a model of one or two sites, because such a sum would reveal their parts."""
        if len(requests) < LEAST_MEMBERS:
            return "validation", {}
        scores = total(self.cohort, requests, ScoreReply, self.experiment.federation.min_clients, left_out)
        if scores.test is not None:
            return "test", {EVERYONE: scores.test}
        return "validation", {} if scores.validation is None else {EVERYONE: scores.validation}


@dataclass(frozen=True, eq=False)
class Sites:
    """Deployed sites as the clients of an experiment: where a schedule finds transport and evaluator."""

    experiment: Experiment
    site_transport: Transport
    journal: ReplyJournal | None
    notify: Observer
    sums: Sums | None = None

    @property
    def clients(self) -> dict[str, tuple[str, ...]]:
        (scenario,) = self.experiment.partition
        return {scenario: self.site_transport.clients}

    def transport(self, scenario: str, on_epoch: OnEpoch | None = None, *, pooled: bool = False) -> Transport:
        """The same for all: `deployable` leaves out pooled methods, and epochs are not reported over a network."""
        return self.site_transport

    def evaluator(self, scenario: str, recipe: Recipe) -> SiteScores:
        cohort = MessageCohort(self.site_transport, journal=self.journal, scope=scenario, sums=self.sums)
        return SiteScores(cohort, recipe, self.experiment, self.notify)

    def baselines(self, scenario: str) -> tuple[list[ResultRow], list[ClientPredictions]]:
        return [], []

    def left_out(self, scenario: str, failure: Failure) -> None:
        self.notify(Notice(f"left out {failure.client}: {failure.text}"))

    def close(self) -> None:
        """Nothing to end: the carrier belongs to the coordinator."""
