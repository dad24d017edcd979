"""The jobs of an experiment, wherever its clients are: every method and seed, then the published one with intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Protocol

from fedprognos.errors import RefusedByFloorsError
from fedprognos.evaluation import ClientPredictions, ResultRow
from fedprognos.experiment.conclusion import Published, published
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.evaluator import Evaluator
from fedprognos.experiment.job import Job, JobResult
from fedprognos.experiment.run_events import (
    BASELINES,
    EpochDone,
    Event,
    JobDone,
    JobKey,
    LayerMatched,
    NeuronsAbsorbed,
    Notice,
    Observer,
    RoundDone,
)
from fedprognos.experiment.run_folder import JobRecord
from fedprognos.experiment.worker_pool import OnEpoch
from fedprognos.features import Recipe
from fedprognos.federation import MessageCohort, ReplyJournal, Sums, Transport, common_recipe
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.strategies import Budget, strategies
from fedprognos.networks import Epoch


class ClientAccess(Protocol):
    """The way to an experiment's clients: in this process and its workers, or at sites of their own."""

    @property
    def clients(self) -> Mapping[str, tuple[str, ...]]:
        """Names of those who may train, sorted, by scenario."""

    def transport(self, scenario: str, on_epoch: OnEpoch | None = None, *, pooled: bool = False) -> Transport:
        """The way to the clients of a scenario, or to the one that holds all their data."""

    @property
    def sums(self) -> Sums | None:
        """How totals are made where replies must not be seen one by one; None where they may."""

    def evaluator(self, scenario: str, recipe: Recipe) -> Evaluator:
        """The evaluator of networks that were made with a recipe."""

    def baselines(self, scenario: str) -> tuple[list[ResultRow], list[ClientPredictions]]:
        """How the experiment's baselines do; nothing where the data is not in one place."""

    def left_out(self, scenario: str, failure: Failure) -> None:
        """Called with a client that did not answer the survey for the recipe; may raise."""

    def close(self) -> None:
        """End everything that waits for a reply."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A scenario whose clients agreed on a recipe, and how many labelled points each client declared."""

    recipe: Recipe
    evaluator: Evaluator
    declared: dict[str, int]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The one loop over jobs. It is deterministic: the same replies lead to the same requests, in the same order.

    Parameters
    ----------
    journal
        Replies that are remembered.
    keep
        Called with every finished job, to write its results.
    workers
        Jobs side by side.
    declared
        By scenario: how many labelled points each client declares when it answers the survey.
    """

    name: str
    experiment: Experiment
    access: ClientAccess
    journal: ReplyJournal | None
    keep: Callable[[JobKey, JobResult, JobRecord], None]
    notify: Observer
    workers: int = 1
    declared: dict[str, dict[str, int]] = field(default_factory=dict)

    def work(self, finished: Mapping[JobKey, JobRecord] | None = None) -> tuple[dict[JobKey, JobRecord], Published]:
        """Records of all jobs, in the order of the experiment, and whose model is the one to use.

        The published method is known when all have run. Where intervals are wanted its job runs again with them; what
        it asks first was answered already. Finished jobs are not done again. A method that clients refuse by
        their floors is left out and named.

        Raises
        ------
        RefusedByFloorsError
            Where no method is left in the first scenario, whose model is published.
        """
        keys = job_keys(self.experiment, self.access.clients)
        records = {key: finished[key] for key in keys if finished is not None and key in finished}
        todo = [key for key in keys if key not in records]
        if todo or self._to_calibrate(records):
            stages = {scenario: self._stage(scenario) for scenario in self.access.clients}
            done, refused = self._run(sorted(todo, key=_running_order), stages)
            # A method that is refused with one seed is left out with all: methods are compared over the same seeds.
            left_out = {(key.scenario, key.method) for key in refused}
            records = {
                key: record for key, record in (records | done).items() if (key.scenario, key.method) not in left_out
            }
            first = next(iter(self.access.clients))
            if refused and not any(key.scenario == first and key.method != BASELINES for key in records):
                raise next(iter(refused.values()))
            records |= self._run(self._to_calibrate(records), stages, calibrate=True)[0]
        return {key: records[key] for key in keys if key in records}, self._published(records)

    def _published(self, records: Mapping[JobKey, JobRecord]) -> Published:
        return published(self.experiment, records, next(iter(self.access.clients)))

    def _to_calibrate(self, records: Mapping[JobKey, JobRecord]) -> list[JobKey]:
        wanted = self.experiment.evaluation.intervals
        if wanted == "none":
            return []
        method, scenario = self._published(records).method, next(iter(self.access.clients))
        uncalibrated = [key for key, record in records.items() if key.method == method and not record.calibrated]
        return [key for key in uncalibrated if wanted == "all" or (key.scenario, key.seed) == (scenario, 0)]

    def _stage(self, scenario: str) -> Stage:
        """Let the clients agree on a recipe."""
        transport, sums = self.access.transport(scenario), self.access.sums
        declared = self.declared.setdefault(scenario, {})
        cohort = MessageCohort(transport, journal=self.journal, scope=scenario, declared=declared, sums=sums)
        federation = self.experiment.federation
        recipe = common_recipe(cohort, self.experiment.recipe, federation, lambda f: self.access.left_out(scenario, f))
        return Stage(recipe, self.access.evaluator(scenario, recipe), declared)

    def _run(
        self, keys: Sequence[JobKey], stages: Mapping[str, Stage], *, calibrate: bool = False
    ) -> tuple[dict[JobKey, JobRecord], dict[JobKey, RefusedByFloorsError]]:
        """Some jobs, side by side or one after another: the finished and the refused ones. Other errors end all."""
        records: dict[JobKey, JobRecord] = {}
        refused: dict[JobKey, RefusedByFloorsError] = {}

        def work(key: JobKey) -> None:
            try:
                records[key] = self._job(key, stages[key.scenario], calibrate)
            except RefusedByFloorsError as error:
                refused[key] = error
                self.notify(Notice(f"{key} is left out, because clients refuse it by their floors: {error.what}"))
                self.notify(JobDone(key, ()))

        if self.workers <= 1:
            for key in keys:
                work(key)
            return records, refused
        with ThreadPoolExecutor(max_workers=self.workers) as threads:
            futures = [threads.submit(work, key) for key in keys]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                self.access.close()
                raise
        return records, refused

    def _job(self, key: JobKey, stage: Stage, calibrate: bool) -> JobRecord:
        """One job. Where intervals are added to a finished job, its rounds are not announced again."""
        started = time.perf_counter()
        spent = 0
        if calibrate:
            self.notify(Notice(f"Making intervals for {key}: its method trains once more, without some units."))

        def notify(event: Event) -> None:
            if not (calibrate and isinstance(event, RoundDone | LayerMatched | NeuronsAbsorbed)):
                self.notify(event)

        def on_epoch(client: str, epoch: Epoch) -> None:
            nonlocal spent
            spent += 1
            self.notify(EpochDone(key, client.rpartition("/")[2], epoch.epoch, epoch.validation_rmse))

        if key.method == BASELINES:
            result = JobResult(*self.access.baselines(key.scenario))
        else:
            pooled = strategies[key.method].pooled
            trainers = self.access.transport(key.scenario, on_epoch, pooled=pooled)
            scope = f"{key.scenario} pooled" if pooled else key.scenario
            sums, wire = None if pooled else self.access.sums, self.experiment.federation.wire
            declared = None if pooled else stage.declared
            result = Job(
                key,
                self.name,
                self.experiment,
                stage.recipe,
                stage.evaluator,
                MessageCohort(trainers, wire=wire, journal=self.journal, scope=scope, declared=declared, sums=sums),
                MessageCohort(self.access.transport(key.scenario), declared=stage.declared, sums=sums),
                notify,
                calibrated=calibrate,
            ).run()
        record = JobRecord(tuple(result.rows), tuple(result.history), time.perf_counter() - started, calibrate)
        self.keep(key, result, record)
        if calibrate:
            return record
        clients = len(self.access.clients[key.scenario])
        self.notify(JobDone(key, record.rows, max(epochs_at_most(self.experiment, key, clients) - spent, 0)))
        return record


def job_keys(experiment: Experiment, scenarios: Mapping[str, object]) -> list[JobKey]:
    """All jobs of an experiment, in the order of its results."""
    evaluation, methods = experiment.evaluation, experiment.federation.methods
    return [
        key
        for scenario in scenarios
        for key in (
            *([JobKey(scenario, BASELINES, 0)] if evaluation.baselines else []),
            *(JobKey(scenario, method, seed) for method in methods for seed in range(evaluation.seeds)),
        )
    ]


def epochs_at_most(experiment: Experiment, key: JobKey, clients: int) -> int:
    """Epochs a job takes at most, all its clients together."""
    if key.method == BASELINES:
        return 0
    strategy, model, federation = strategies[key.method], experiment.model, experiment.federation
    layers = len(model.widths) + (model.input_width is not None)
    budget = Budget(experiment.train.epochs, layers, federation.heads)
    options = federation.strategy_options(strategy.name, strategy.options)
    return strategy.epochs(options, budget) * (1 if strategy.pooled else clients)


def _running_order(key: JobKey) -> tuple[int, bool, int, str]:
    """What trains on its own first: others begin with what local training finds, and central training takes longest."""
    strategy = None if key.method == BASELINES else strategies[key.method]
    alone = strategy is not None and not strategy.federated
    return (key.seed, not alone, -1 if strategy is None else strategy.order, key.scenario)
