"""Sites as the clients of an experiment: the coordinator has no test units, so they send it sums of their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.evaluation import EVERYONE, ClientPredictions, ResultRow, ScoreSums
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.evaluator import Errors, FinishedModel
from fedprognos.experiment.events import JobKey, LeftOut, Notice, Observer
from fedprognos.experiment.workers import OnEpoch
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, MessageCohort, Transport, gather
from fedprognos.federation.messages import Failure
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.federation.score_messages import ScoreReply, ScoreRequest
from fedprognos.federation.secure.messages import LEAST_MEMBERS
from fedprognos.federation.secure.sums import Sums
from fedprognos.federation.seeds import stream
from fedprognos.federation.totals import total
from fedprognos.networks import Calibration, Network


@dataclass(frozen=True, eq=False)
class SiteScores:
    """Asks the sites about finished models only, not about every round: an `Evaluator`.

    Scores are on the sites' own test units where every site has enough of them to send anything, else on what
    training kept out; rows say which.
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
        """Rows without predictions; none for the mean of several models, which no site is shown."""
        if len(model.networks) > 1:
            return [], []
        heads = dict.fromkeys(model.owners, "")
        if model.own is not None:
            heads = {name: model.own[name] for name in model.owners if name in model.own}
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
        """Sums of each site's errors, with the personal head of that name where one is named."""

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
        self, requests: Mapping[str, ScoreRequest], left_out: Callable[[Failure], None]
    ) -> tuple[Literal["test", "validation"], dict[str, ScoreSums]]:
        """Sums of all sites together; none of a model that belongs to one or two."""
        if len(requests) < LEAST_MEMBERS:
            return "validation", {}
        found = total(self.cohort, requests, ScoreReply, self.experiment.federation.min_clients, left_out)
        if found.test is not None:
            return "test", {EVERYONE: found.test}
        return "validation", {} if found.validation is None else {EVERYONE: found.validation}


@dataclass(frozen=True, eq=False)
class Sites:
    """Clients at sites of their own, reached by one transport; they evaluate, too: a `Venue`."""

    experiment: Experiment
    way: Transport
    cache: ReplyCache | None
    notify: Observer
    sums: Sums | None = None

    @property
    def clients(self) -> dict[str, tuple[str, ...]]:
        (scenario,) = self.experiment.partition
        return {scenario: self.way.clients}

    def transport(self, scenario: str, on_epoch: OnEpoch | None = None, *, pooled: bool = False) -> Transport:
        """The one transport; `deployable` leaves out what is pooled, and epochs are not reported over a network."""
        return self.way

    def evaluator(self, scenario: str, recipe: Recipe) -> SiteScores:
        cohort = MessageCohort(self.way, cache=self.cache, scope=scenario, sums=self.sums)
        return SiteScores(cohort, recipe, self.experiment, self.notify)

    def baselines(self, scenario: str) -> tuple[list[ResultRow], list[ClientPredictions]]:
        return [], []

    def left_out(self, scenario: str, failure: Failure) -> None:
        self.notify(Notice(f"left out {failure.client}: {failure.text}"))

    def close(self) -> None:
        """Nothing to end: the engine belongs to the coordinator."""
