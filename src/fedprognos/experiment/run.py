"""A whole experiment: read, deal out, train every way there is, examine, write.

Jobs (a method in a setting with a seed) run side by side as threads that only wait; the work is done by a
shared pool of worker processes, so that long and short jobs fill all processors.
"""

from __future__ import annotations

import json
import platform
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from fedprognos import __version__
from fedprognos.errors import FederationError
from fedprognos.evaluation import Results, portrait, write_lives, write_predictions
from fedprognos.experiment import config
from fedprognos.experiment.assess import assess_yardsticks, examination, usable
from fedprognos.experiment.evaluator import HeldTests
from fedprognos.experiment.events import EpochDone, Event, JobDone, JobKey, Observer, RunStarted
from fedprognos.experiment.footing import data_digest, one_thread, surveyed_recipe, warnings_as_notices
from fedprognos.experiment.in_process import InProcessCohort
from fedprognos.experiment.job import JobResult, run_job
from fedprognos.experiment.run_folder import JobRecord, RunFolder, folder_name
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.experiment.workers import Workers, cores
from fedprognos.features import Recipe
from fedprognos.federation.client_folder import Site
from fedprognos.federation.cohort import gather
from fedprognos.federation.memory import Memory, RememberingCohort
from fedprognos.federation.messages import BringReply, BringRequest, Failure
from fedprognos.files import write_json
from fedprognos.fleet import Fleet, pool
from fedprognos.networks import Bundle, Epoch

YARDSTICKS = "yardsticks"
POOLED = "pooled"
SHOWN = frozenset(
    {"job", "round", "layer", "width", "shared_by_all", "singletons", "absorbing", "validation_rmse", "rmse",
     "messages", "bytes", "client", "code", "text", "epochs"}
)  # fmt: skip
"""Fields of events that go into events.jsonl."""
PREFERRED = ("fedma", "concat", "fedavg", "fedprox", "single", "central", "local")
"""Whose bundle is published: the federated model first."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A setting made ready; `raw_bytes` is what central training would have to bring together."""

    recipe: Recipe
    examiner: HeldTests
    raw_bytes: int


@dataclass(frozen=True, eq=False)
class Run:
    """What a finished run left behind."""

    folder: Path
    results: Results
    bundle: Bundle


def run(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    seeds: int | None = None,
    overrides: tuple[str, ...] = (),
    workers: int | None = None,
    resume: bool = True,
    observers: Sequence[Observer] = (),
) -> Run:
    """Run an experiment and write its folder; a run that was killed goes on where it was.

    Parameters
    ----------
    source
        Name of a preset or path of a TOML file.
    out
        Folder to write; `runs/<name>` by default.
    overrides
        `section.key=value`, as with `--set`.
    workers
        Worker processes; as many as processors by default.
    resume
        Go on with the finished jobs and answers that the folder holds from the same experiment; False removes them.
    observers
        Told of every event.
    """
    changes = (*overrides, f"evaluation.seeds={seeds}") if seeds is not None else overrides
    name, experiment, base = config.load(source, changes)

    def tell(event: Event) -> None:
        for observer in watching:
            observer(event)

    watching = list(observers)
    started = time.time()
    with one_thread(), warnings_as_notices(tell):
        settings = scenarios(experiment, None if data_dir is None else Path(data_dir), base)
        data = ";".join(data_digest(s) for s in settings.values())
        folder = RunFolder(Path(out) if out is not None else Path("runs") / name, name, experiment, data)
        if not resume:
            folder.clear()
        watching.append(_written(folder.path / "events.jsonl"))
        records = _work(name, experiment, settings, folder, workers or cores(), tell)
        results = Results(
            name,
            __version__,
            experiment.dump(),
            tuple(row for record in records.values() for row in record.rows),
            tuple(row for record in records.values() for row in record.history),
        )
        bundle = folder.publish(_best_bundle(experiment, settings, folder))
        write_json(folder.path / "results.json", results.as_dict())
        write_json(folder.path / "provenance.json", _provenance(started, records))
    return Run(folder.path, results, Bundle.load(bundle))


def load_fleets(
    source: str | Path, *, data_dir: str | Path | None = None, overrides: tuple[str, ...] = ()
) -> tuple[Fleet, Fleet]:
    """All training units and all test units of an experiment's first setting.

    Examples
    --------
    >>> train, test = load_fleets("demo")
    >>> train.schema.task, len(train), len(test)
    ('rul', 42, 36)
    """
    _, experiment, base = config.load(source, overrides)
    first = next(iter(scenarios(experiment, None if data_dir is None else Path(data_dir), base).values()))
    return pool(first.clients.values(), "train"), pool(first.tests.values(), "test")


def _work(
    name: str,
    experiment: config.Experiment,
    settings: Mapping[str, Scenario],
    folder: RunFolder,
    workers: int,
    tell: Observer,
) -> dict[JobKey, JobRecord]:
    """All jobs, those of an earlier run reused, in the order of the experiment."""
    keys = _jobs(experiment, settings)
    records = {key: record for key in keys if (record := folder.load_job(key)) is not None}
    todo = [key for key in keys if key not in records]
    fleets = {s.setting: dict(s.clients) for s in settings.values()}
    budget = sum(_epochs(key, experiment, settings[key.setting]) for key in todo)
    tell(RunStarted(str(folder.path), fleets, tuple(keys), tuple(records), budget))
    if not todo:
        return records
    with Workers(_clients(experiment, settings, folder), workers) as staff:
        stages = {s.setting: _stage(experiment, s, staff, folder, tell) for s in settings.values()}
        memory = Memory(folder.memory)
        with ThreadPoolExecutor(max_workers=workers) as threads:
            futures = {
                threads.submit(
                    _job, key, name, experiment, settings[key.setting], stages[key.setting], staff, memory, folder, tell
                ): key
                for key in sorted(todo, key=_in_good_order)
            }
            try:
                for future in as_completed(futures):
                    records[futures[future]] = future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                staff.close()
                raise
    folder.forget()
    return {key: records[key] for key in keys}


def _jobs(experiment: config.Experiment, settings: Mapping[str, Scenario]) -> list[JobKey]:
    return [
        key
        for setting in settings
        for key in (
            *([JobKey(setting, YARDSTICKS, 0)] if experiment.evaluation.yardsticks else []),
            *(
                JobKey(setting, method, seed)
                for method in experiment.federation.methods
                for seed in range(experiment.evaluation.seeds)
            ),
        )
    ]


def _in_good_order(key: JobKey) -> tuple[int, int, str]:
    """Long jobs first; local training early, because others begin with what it finds."""
    order = ("local", "central", "fedavg", "fedprox", "fedma", "concat", "single", YARDSTICKS)
    return (key.seed, order.index(key.method), key.setting)


def _epochs(key: JobKey, experiment: config.Experiment, scenario: Scenario) -> int:
    """Epochs a job takes at most, all its clients together."""
    train, federation, clients = experiment.train.epochs, experiment.federation, len(scenario.clients)
    fedma = federation.fedma
    layers = len(experiment.model.widths) + (experiment.model.input_width is not None)
    retrained = layers if "mean" in federation.heads else layers - 1
    rounds = {
        YARDSTICKS: 0,
        "central": train,
        "local": train * clients,
        "single": train * clients,
        "concat": (federation.concat.epochs or train) * clients,
        "fedavg": federation.fedavg.rounds * federation.fedavg.epochs * clients,
        "fedprox": federation.fedprox.rounds * federation.fedprox.epochs * clients,
        "fedma": fedma.rounds
        * clients
        * ((fedma.epochs or train) + retrained * (fedma.retrain_epochs or fedma.epochs or train)),
    }
    folds = experiment.evaluation.folds if key.method == published_method(experiment) else 0
    return rounds[key.method] * (1 + folds)


def _clients(
    experiment: config.Experiment, settings: Mapping[str, Scenario], folder: RunFolder
) -> dict[str, tuple[str, Fleet, Site]]:
    """Everyone the workers answer for; central training is a client that holds the pooled fleet."""
    clients = {}
    for setting, scenario in settings.items():
        for client, fleet in scenario.clients.items():
            clients[f"{setting}/{client}"] = (client, fleet, folder.site(setting, client, experiment.federation))
        if "central" in experiment.federation.methods:
            pooled = pool([scenario.clients[c] for c in sorted(scenario.clients)])
            site = Site(folder.path / "sites" / folder_name(setting) / "(pooled)")
            clients[f"{setting}//{POOLED}"] = (POOLED, pooled, site)
    return clients


def _stage(
    experiment: config.Experiment, scenario: Scenario, staff: Workers, folder: RunFolder, tell: Observer
) -> Stage:
    """Ask the clients for their moments and make the common recipe, or take that of the models they bring."""
    cohort = InProcessCohort(staff, {c: f"{scenario.setting}/{c}" for c in scenario.clients})
    sites = {c: folder.site(scenario.setting, c, experiment.federation) for c in scenario.clients}
    section = experiment.federation

    def left_out(failure: Failure) -> None:
        raise FederationError(sites[failure.client].last_error() or failure.text, where=f"client {failure.client}")

    if section.start == "bundles":
        brought = gather(cohort, dict.fromkeys(cohort.clients, BringRequest()), BringReply, None, left_out)
        recipe = brought[min(brought)].recipe
        for name, reply in brought.items():
            if reply.recipe != recipe:
                raise FederationError(
                    f"its model was made with another recipe than that of {min(brought)}",
                    where=f"client {name}",
                    hint="models can be federated only when they see the data alike; train them with one recipe",
                )
    else:
        recipe = surveyed_recipe(experiment.recipe, cohort, sites)
    usable(scenario, recipe)
    folder.save_portrait(scenario.setting, portrait(scenario.clients, scenario.tests, recipe))
    raw = sum(8 * (u.sensors.size + u.settings.size + u.rows) for f in scenario.clients.values() for u in f)
    exam = examination(scenario, recipe, experiment.evaluation)
    return Stage(recipe, HeldTests(exam, sites, experiment.evaluation.coverage), raw)


def _job(
    key: JobKey,
    name: str,
    experiment: config.Experiment,
    scenario: Scenario,
    stage: Stage,
    staff: Workers,
    memory: Memory,
    folder: RunFolder,
    tell: Observer,
) -> JobRecord:
    started = time.perf_counter()
    spent = 0
    if key.method == YARDSTICKS:
        rows, predictions = assess_yardsticks(stage.examiner.exam, scenario, experiment.evaluation.yardsticks)
        result = JobResult(rows, predictions)
    else:

        def on_epoch(client: str, epoch: Epoch) -> None:
            nonlocal spent
            spent += 1
            tell(EpochDone(key, client.rpartition("/")[2], epoch.epoch, epoch.validation_rmse))

        everyone = {c: f"{key.setting}/{c}" for c in scenario.clients}
        keys = {POOLED: f"{key.setting}//{POOLED}"} if key.method == "central" else everyone
        timeout = experiment.federation.timeout_in_s
        wire = experiment.federation.wire
        asked = InProcessCohort(staff, keys, on_epoch=on_epoch, timeout_in_s=timeout, wire=wire)
        scope = f"{key.setting} pooled" if key.method == "central" else key.setting
        trainers = RememberingCohort(asked, memory, scope)
        clients = InProcessCohort(staff, everyone, timeout_in_s=timeout)
        published = key.method == published_method(experiment)
        result = run_job(
            key,
            name,
            experiment,
            stage.recipe,
            stage.examiner,
            trainers,
            clients,
            tell,
            raw_bytes=stage.raw_bytes,
            published=published,
        )
    for client, bundle in result.bundles.items():
        bundle.save(folder.bundle(key, client))
    if result.details:
        folder.save_details(key, result.details)
    write_predictions(folder.predictions(key), result.predictions)
    write_lives(folder.lives(key), result.predictions)
    record = JobRecord(tuple(result.rows), tuple(result.history), time.perf_counter() - started)
    folder.save_job(key, record)
    tell(JobDone(key, record.rows, _epochs(key, experiment, scenario) - spent))
    return record


def published_method(experiment: config.Experiment) -> str:
    """The method whose bundle is the one to use."""
    return next(m for m in PREFERRED if m in experiment.federation.methods)


def _best_bundle(experiment: config.Experiment, settings: Mapping[str, Scenario], folder: RunFolder) -> Path:
    """The model for everybody; the first client's own where nothing is shared."""
    setting, method = next(iter(settings)), published_method(experiment)
    return folder.bundle(JobKey(setting, method, 0), min(settings[setting].clients) if method == "local" else None)


def _provenance(started: float, records: Mapping[JobKey, JobRecord]) -> dict[str, object]:
    packages = ("fedprognos", "numpy", "scipy", "pandas", "torch")
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
        "seconds_by_job": {str(key): round(record.seconds, 2) for key, record in records.items()},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": cores(),
        "versions": {package: version(package) for package in packages},
    }


def _written(path: Path) -> Observer:
    """Every event but single epochs as a line of JSON, for whoever wants to follow a run from outside."""
    lock = threading.Lock()

    def observer(event: Event) -> None:
        if not isinstance(event, EpochDone):
            facts = {k: str(v) if isinstance(v, JobKey) else v for k, v in vars(event).items() if k in SHOWN}
            line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": type(event).__name__, **facts}
            with lock, path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    return observer


__all__ = ["Run", "load_fleets", "run"]
