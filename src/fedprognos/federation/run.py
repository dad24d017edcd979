"""A whole experiment: read, deal out, train every way there is, examine, write.

Jobs (a method in a setting with a seed) run side by side as threads that only wait; the work is done by a
shared pool of worker processes, so that long and short jobs fill all processors.
"""

from __future__ import annotations

import dataclasses
import platform
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from fedprognos import __version__, config
from fedprognos.evaluation import HistoryRow, Results, Row, portrait, write_predictions
from fedprognos.features import Recipe, make_recipe
from fedprognos.federation.assess import Examination, SelectedOn, assess, assess_yardsticks, examination, usable
from fedprognos.federation.cohort import InProcessCohort, answered
from fedprognos.federation.events import EpochDone, JobDone, JobKey, Notice, Observer, RunStarted
from fedprognos.federation.folder import JobRecord, RunFolder
from fedprognos.federation.messages import SurveyReply, SurveyRequest
from fedprognos.federation.scenario import Scenario, scenarios
from fedprognos.federation.seeds import stream
from fedprognos.federation.strategies import Model, Plan, strategy
from fedprognos.federation.workers import Workers, cores
from fedprognos.files import write_json
from fedprognos.fleet import Fleet, pool
from fedprognos.model import Bundle, Epoch, NetworkSpec

YARDSTICKS = "yardsticks"
POOLED = "pooled"


@dataclass(frozen=True, eq=False)
class Run:
    """What a finished run left behind."""

    folder: Path
    results: Results
    bundle: Bundle


@dataclass(frozen=True, eq=False)
class _Stage:
    """A setting made ready: its fleets, recipe and test windows."""

    scenario: Scenario
    recipe: Recipe
    exam: Examination


def run(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    seeds: int | None = None,
    overrides: tuple[str, ...] = (),
    workers: int | None = None,
    observer: Observer | None = None,
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
    """
    changes = (*overrides, f"evaluation.seeds={seeds}") if seeds is not None else overrides
    name, experiment, base = config.load(source, changes)
    tell = observer or (lambda event: None)
    started = time.time()
    with _one_thread(), _warnings_as_notices(tell):
        settings = scenarios(experiment, None if data_dir is None else Path(data_dir), base)
        data = ";".join(_identity(s) for s in settings.values())
        folder = RunFolder(Path(out) if out is not None else Path("runs") / name, name, experiment, data)
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
    budget = sum(experiment.train.epochs * _trainings(key, settings[key.setting]) for key in todo)
    tell(RunStarted(str(folder.path), fleets, tuple(keys), tuple(records), budget))
    if not todo:
        return records
    stages: dict[str, _Stage] = {}
    with Workers(_clients(experiment, settings), workers) as staff:
        for scenario in settings.values():
            stage = stages[scenario.setting] = _stage(experiment, scenario, staff)
            folder.save_portrait(scenario.setting, portrait(scenario.clients, scenario.tests, stage.recipe))
        with ThreadPoolExecutor(max_workers=workers) as threads:
            futures = {
                threads.submit(_job, key, name, experiment, stages[key.setting], staff, folder, tell): key
                for key in sorted(todo, key=_longest_first)
            }
            try:
                for future in as_completed(futures):
                    records[futures[future]] = future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                staff.close()
                raise
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


def _longest_first(key: JobKey) -> tuple[int, int, str]:
    return (key.seed, {"central": 0, YARDSTICKS: 2}.get(key.method, 1), key.setting)


def _trainings(key: JobKey, scenario: Scenario) -> int:
    return {YARDSTICKS: 0, "central": 1}.get(key.method, len(scenario.clients))


def _clients(experiment: config.Experiment, settings: Mapping[str, Scenario]) -> dict[str, tuple[str, Fleet]]:
    """Everyone the workers answer for; central training is a client that holds the pooled fleet."""
    clients = {}
    for setting, scenario in settings.items():
        for client, fleet in scenario.clients.items():
            clients[f"{setting}/{client}"] = (client, fleet)
        if "central" in experiment.federation.methods:
            clients[f"{setting}//{POOLED}"] = (POOLED, pool([scenario.clients[c] for c in sorted(scenario.clients)]))
    return clients


def _stage(experiment: config.Experiment, scenario: Scenario, staff: Workers) -> _Stage:
    """Ask the clients for their moments and make the common recipe."""
    cohort = InProcessCohort(staff, {c: f"{scenario.setting}/{c}" for c in scenario.clients})
    replies = cohort.ask(dict.fromkeys(cohort.clients, SurveyRequest(experiment.recipe)))
    answered(replies, SurveyReply)
    surveys = {name: reply.survey for name, reply in replies.items() if isinstance(reply, SurveyReply)}
    recipe = make_recipe(experiment.recipe, surveys)
    usable(scenario, recipe)
    return _Stage(scenario, recipe, examination(scenario, recipe, experiment.evaluation))


def _job(
    key: JobKey,
    name: str,
    experiment: config.Experiment,
    stage: _Stage,
    staff: Workers,
    folder: RunFolder,
    tell: Observer,
) -> JobRecord:
    started = time.perf_counter()
    if key.method == YARDSTICKS:
        rows, predictions = assess_yardsticks(stage.exam, stage.scenario, experiment.evaluation.yardsticks)
        history: list[HistoryRow] = []
    else:
        models = _train(key, experiment, stage, staff, tell)
        rows, predictions, history = [], [], []
        selected_on: SelectedOn = "validation" if experiment.train.validation_fraction > 0 else "last"
        for model in models:
            more_rows, more_predictions = assess(stage.exam, key.method, key.seed, model, selected_on=selected_on)
            rows += more_rows
            predictions += more_predictions
            history += _history(key, model)
            _bundle(name, key, model, stage.recipe, more_rows).save(
                folder.bundle(key, model.train_clients[0] if key.method == "local" else None)
            )
    write_predictions(folder.predictions(key), predictions)
    record = JobRecord(tuple(rows), tuple(history), time.perf_counter() - started)
    folder.save_job(key, record)
    budget = experiment.train.epochs * _trainings(key, stage.scenario)
    tell(JobDone(key, record.rows, budget - len(history)))
    return record


def _train(
    key: JobKey, experiment: config.Experiment, stage: _Stage, staff: Workers, tell: Observer
) -> tuple[Model, ...]:
    section, scenario = experiment.model, stage.scenario
    network = NetworkSpec(
        inputs=stage.recipe.channels, widths=section.widths, cell=section.cell, input_width=section.input_width
    )
    plan = Plan(stage.recipe, network, experiment.train, stream(key.seed, "", 0, "run"))
    central = key.method == "central"
    keys = {POOLED: f"{key.setting}//{POOLED}"} if central else {c: f"{key.setting}/{c}" for c in scenario.clients}

    def on_epoch(client: str, epoch: Epoch) -> None:
        tell(EpochDone(key, client.rpartition("/")[2], epoch.epoch, epoch.validation_rmse))

    outcome = strategy(key.method)(InProcessCohort(staff, keys, on_epoch=on_epoch), plan)
    if not central:
        return outcome.models
    everyone = tuple(sorted(scenario.clients))
    moved = sum(8 * (u.sensors.size + u.settings.size + u.rows) for f in scenario.clients.values() for u in f)
    return tuple(dataclasses.replace(m, train_clients=everyone, bytes=moved) for m in outcome.models)


def _history(key: JobKey, model: Model) -> list[HistoryRow]:
    client = model.train_clients[0] if key.method == "local" else POOLED
    return [
        HistoryRow(
            setting=key.setting,
            method=key.method,
            seed=key.seed,
            client=client,
            round=0,
            epoch=e.epoch,
            train_rmse=e.train_rmse,
            validation_rmse=e.validation_rmse,
        )
        for e in model.history
    ]


def _bundle(name: str, key: JobKey, model: Model, recipe: Recipe, rows: list[Row]) -> Bundle:
    provenance = {
        "experiment": name,
        "fedprognos": __version__,
        "setting": key.setting,
        "method": key.method,
        "seed": key.seed,
        "train_clients": list(model.train_clients),
    }
    metrics = {row.test_client: {"rmse": row.rmse, "mae": row.mae, "n_test": row.n_test} for row in rows}
    return Bundle(recipe, model.network, model.weights, provenance, metrics)


def _best_bundle(experiment: config.Experiment, settings: Mapping[str, Scenario], folder: RunFolder) -> Path:
    """The model for everybody: central training, or the first client's own where nothing is shared."""
    setting = next(iter(settings))
    if "central" in experiment.federation.methods:
        return folder.bundle(JobKey(setting, "central", 0), None)
    return folder.bundle(JobKey(setting, "local", 0), min(settings[setting].clients))


def _identity(scenario: Scenario) -> str:
    """Enough of the data to tell it from another fleet's: clients, units and rows."""
    return ",".join(f"{c}:{len(f)}:{f.rows}" for c, f in sorted({**scenario.clients, **scenario.tests}.items()))


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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Predictions on one torch thread too, whatever the machine: results must not depend on it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _warnings_as_notices(tell: Observer) -> Iterator[None]:
    """Show each distinct warning about the data once, where the user looks."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if str(message) not in seen and issubclass(category, UserWarning):
            seen.add(str(message))
            tell(Notice(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


__all__ = ["Run", "load_fleets", "run"]
