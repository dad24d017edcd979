"""The jobs of a run, side by side: threads that only wait, and a shared pool of worker processes that does the work."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from fedprognos.errors import FederationError
from fedprognos.evaluation import fleet_summary, write_predictions, write_trajectories
from fedprognos.experiment import config
from fedprognos.experiment.assess import assess_baselines, evaluation_windows
from fedprognos.experiment.evaluator import HeldTests
from fedprognos.experiment.events import BASELINES, EpochDone, JobDone, JobKey, Observer, RunStarted
from fedprognos.experiment.in_process import InProcess
from fedprognos.experiment.job import Job, JobResult
from fedprognos.experiment.publish import Published, published
from fedprognos.experiment.run_folder import JobRecord, RunFolder, folder_name
from fedprognos.experiment.scenario import Scenario
from fedprognos.experiment.workers import Workers
from fedprognos.features import Recipe, check_usable
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.messages import Failure
from fedprognos.federation.recipe_setup import common_recipe
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.federation.strategies import Budget, strategies
from fedprognos.fleet import Fleet, pool
from fedprognos.networks import Epoch

POOLED = "pooled"


@dataclass(frozen=True, eq=False)
class Stage:
    """A scenario made ready; `raw_bytes` is the size of the data that central training would pool."""

    recipe: Recipe
    evaluator: HeldTests
    raw_bytes: int


@dataclass(frozen=True, eq=False)
class Schedule:
    """All jobs of an experiment; those that the folder holds already are not done again."""

    name: str
    experiment: config.Experiment
    scenarios: Mapping[str, Scenario]
    folder: RunFolder
    workers: int
    notify: Observer

    def work(self) -> tuple[dict[JobKey, JobRecord], Published]:
        """Records of all jobs, in the order of the experiment, and whose model is the one to use.

        The published method is known when all have run. Where intervals are wanted its jobs run again with folds; what
        they ask first was answered already.
        """
        keys = self._jobs()
        records = {key: record for key in keys if (record := self.folder.load_job(key)) is not None}
        todo = [key for key in keys if key not in records]
        fleets = {s.name: dict(s.clients) for s in self.scenarios.values()}
        budget = sum(self._epochs(key) for key in todo)
        self.notify(RunStarted(str(self.folder.path), fleets, tuple(keys), tuple(records), budget))
        if not todo and not self._to_calibrate(records):
            return records, self._published(records)
        with Workers(self._clients(), self.workers, self.experiment.train.device) as staff:
            stages = {s.name: self._stage(s, staff) for s in self.scenarios.values()}
            cache = ReplyCache(self.folder.memory)
            records |= self._run(sorted(todo, key=_in_good_order), stages, staff, cache)
            records |= self._run(self._to_calibrate(records), stages, staff, cache, calibrate=True)
        self.folder.forget()
        return {key: records[key] for key in keys}, self._published(records)

    def _published(self, records: Mapping[JobKey, JobRecord]) -> Published:
        return published(self.experiment, records, next(iter(self.scenarios)))

    def _to_calibrate(self, records: Mapping[JobKey, JobRecord]) -> list[JobKey]:
        if not self.experiment.evaluation.folds:
            return []
        method = self._published(records).method
        return [key for key, record in records.items() if key.method == method and not record.calibrated]

    def _run(
        self,
        keys: Sequence[JobKey],
        stages: Mapping[str, Stage],
        staff: Workers,
        cache: ReplyCache,
        *,
        calibrate: bool = False,
    ) -> dict[JobKey, JobRecord]:
        """Some jobs side by side; one that fails ends all."""
        records = {}
        with ThreadPoolExecutor(max_workers=self.workers) as threads:
            futures = {
                threads.submit(self._job, key, stages[key.scenario], staff, cache, calibrate): key for key in keys
            }
            try:
                for future in as_completed(futures):
                    records[futures[future]] = future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                staff.close()
                raise
        return records

    def _jobs(self) -> list[JobKey]:
        evaluation, methods = self.experiment.evaluation, self.experiment.federation.methods
        return [
            key
            for scenario in self.scenarios
            for key in (
                *([JobKey(scenario, BASELINES, 0)] if evaluation.baselines else []),
                *(JobKey(scenario, method, seed) for method in methods for seed in range(evaluation.seeds)),
            )
        ]

    def _epochs(self, key: JobKey) -> int:
        """Epochs a job takes at most, all its clients together."""
        if key.method == BASELINES:
            return 0
        strategy, model = strategies[key.method], self.experiment.model
        federation = self.experiment.federation
        budget = Budget(
            self.experiment.train.epochs, len(model.widths) + (model.input_width is not None), federation.heads
        )
        clients = 1 if strategy.pooled else len(self.scenarios[key.scenario].clients)
        return strategy.epochs(federation.of(strategy.name, strategy.options), budget) * clients

    def _clients(self) -> dict[str, tuple[str, Fleet, ClientFolder]]:
        """Everyone the workers answer for; central training is a client that holds the pooled fleet."""
        clients = {}
        federation = self.experiment.federation
        for name, scenario in self.scenarios.items():
            for client, fleet in scenario.clients.items():
                clients[f"{name}/{client}"] = (client, fleet, self.folder.client(name, client, federation))
            if any(strategies[method].pooled for method in federation.methods):
                pooled = pool([scenario.clients[c] for c in sorted(scenario.clients)])
                place = ClientFolder(self.folder.path / "sites" / folder_name(name) / "(pooled)")
                clients[f"{name}//{POOLED}"] = (POOLED, pooled, place)
        return clients

    def _stage(self, scenario: Scenario, staff: Workers) -> Stage:
        """Let the clients agree on a recipe and prepare the tests."""
        cohort = MessageCohort(InProcess(staff, {c: f"{scenario.name}/{c}" for c in scenario.clients}))
        federation = self.experiment.federation
        folders = {c: self.folder.client(scenario.name, c, federation) for c in scenario.clients}
        recipe = common_recipe(cohort, self.experiment.recipe, federation, in_full(folders))
        for name, fleet in sorted(scenario.clients.items()):
            check_usable(recipe, fleet, f"client {name}")
        self.folder.save_fleet_summary(scenario.name, fleet_summary(scenario.clients, scenario.tests, recipe))
        raw = sum(8 * (u.sensors.size + u.settings.size + u.rows) for f in scenario.clients.values() for u in f)
        tests = evaluation_windows(scenario, recipe, self.experiment.evaluation)
        return Stage(recipe, HeldTests(tests, folders, self.experiment.evaluation.coverage), raw)

    def _job(self, key: JobKey, stage: Stage, staff: Workers, cache: ReplyCache, calibrate: bool) -> JobRecord:
        started = time.perf_counter()
        spent = 0
        if key.method == BASELINES:
            names = self.experiment.evaluation.baselines
            rows, predictions = assess_baselines(stage.evaluator.tests, self.scenarios[key.scenario], names)
            result = JobResult(rows, predictions)
        else:

            def on_epoch(client: str, epoch: Epoch) -> None:
                nonlocal spent
                spent += 1
                self.notify(EpochDone(key, client.rpartition("/")[2], epoch.epoch, epoch.validation_rmse))

            federation = self.experiment.federation
            everyone = {c: f"{key.scenario}/{c}" for c in self.scenarios[key.scenario].clients}
            pooled = strategies[key.method].pooled
            keys = {POOLED: f"{key.scenario}//{POOLED}"} if pooled else everyone
            trainers = InProcess(staff, keys, on_epoch, federation.timeout_in_s)
            scope = f"{key.scenario} pooled" if pooled else key.scenario
            result = Job(
                key,
                self.name,
                self.experiment,
                stage.recipe,
                stage.evaluator,
                MessageCohort(trainers, wire=federation.wire, cache=cache, scope=scope),
                MessageCohort(InProcess(staff, everyone, timeout_in_s=federation.timeout_in_s)),
                self.notify,
                raw_bytes=stage.raw_bytes,
                calibrated=calibrate,
            ).run()
        record = self._keep(key, result, time.perf_counter() - started, calibrate)
        self.notify(JobDone(key, record.rows, max(self._epochs(key) - spent, 0)))
        return record

    def _keep(self, key: JobKey, result: JobResult, seconds: float, calibrated: bool) -> JobRecord:
        """Write a job's files, its record last."""
        for client, bundle in result.bundles.items():
            bundle.save(self.folder.bundle(key, client))
        if result.details:
            self.folder.save_details(key, result.details)
        write_predictions(self.folder.predictions(key), result.predictions)
        write_trajectories(self.folder.trajectories(key), result.predictions)
        record = JobRecord(tuple(result.rows), tuple(result.history), seconds, calibrated)
        self.folder.save_job(key, record)
        return record


def in_full(folders: Mapping[str, ClientFolder]) -> Callable[[Failure], None]:
    """What to do about a client that cannot answer where all data is here: raise the whole error from its log.

    One that was heard and not believed is shown as a warning.
    """

    def left_out(failure: Failure) -> None:
        if failure.code == "harmful":
            warnings.warn(f"client {failure.client}: {failure.text}", UserWarning, stacklevel=2)
            return
        raise FederationError(folders[failure.client].last_error() or failure.text, where=f"client {failure.client}")

    return left_out


def _in_good_order(key: JobKey) -> tuple[int, bool, int, str]:
    """What trains on its own first: others begin with what local training finds, and central training takes longest."""
    strategy = None if key.method == BASELINES else strategies[key.method]
    alone = strategy is not None and not strategy.federated
    return (key.seed, not alone, -1 if strategy is None else strategy.order, key.scenario)
