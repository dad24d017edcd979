"""A whole experiment: read the data, deal it out to clients, train with every method, evaluate, write the folder."""

from __future__ import annotations

import contextlib
import json
import platform
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedprognos import registry
from fedprognos.evaluation import Baseline, Metric, Results
from fedprognos.experiment import config
from fedprognos.experiment.conclusion import Published, conclude
from fedprognos.experiment.engines import Engine, cores, engine_for
from fedprognos.experiment.job import JobResult
from fedprognos.experiment.local_clients import LocalClients
from fedprognos.experiment.recipe_search import CHOSEN_FILE, search_recipe
from fedprognos.experiment.refit import refitted, with_refit
from fedprognos.experiment.run_events import EpochDone, Event, JobKey, Notice, Observer, RunStarted, warnings_as_notices
from fedprognos.experiment.run_folder import JobRecord, RunFolder, folder_name
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.experiment.schedule import Schedule, epochs_at_most, job_keys
from fedprognos.features import ChannelKind
from fedprognos.features.history import HistoryRule
from fedprognos.federation import Aggregator, ReplyJournal
from fedprognos.federation.exchanges import Exchange
from fedprognos.federation.strategies import Strategy
from fedprognos.files import write_json
from fedprognos.fleet import Fleet, PartitionRule, fleet_digest, pool
from fedprognos.fleet.readers import Reader
from fedprognos.networks import Bundle, Cell, device_of, one_torch_thread
from fedprognos.privacy import Mechanism
from fedprognos.shelf import Shelf

SHOWN = frozenset(
    {"job", "round", "layer", "width", "shared_by_all", "singletons", "absorbing", "validation_rmse", "rmse",
     "messages", "bytes", "client", "code", "text", "epochs"}
)  # fmt: skip
"""Fields of events that go into events.jsonl."""


@dataclass(frozen=True, eq=False)
class Run:
    """What a finished run left behind."""

    folder: Path
    results: Results
    bundle: Bundle
    report: Path | None = None


@dataclass(frozen=True)
class Extras:
    """Things of the caller's own that an experiment may name, beside what is registered."""

    strategies: Sequence[Strategy] = ()
    cells: Sequence[Cell] = ()
    readers: Sequence[Reader] = ()
    aggregators: Sequence[Aggregator] = ()
    metrics: Sequence[Metric] = ()
    baselines: Sequence[Baseline] = ()
    partitions: Sequence[PartitionRule] = ()
    channels: Sequence[ChannelKind] = ()
    histories: Sequence[HistoryRule] = ()
    mechanisms: Sequence[Mechanism] = ()
    exchanges: Sequence[Exchange] = ()

    @property
    def in_this_process(self) -> bool:
        """True if clients need any of them: worker processes do not have them."""
        return bool(self.cells or self.channels or self.histories or self.mechanisms or self.exchanges)

    def on_shelves(self) -> ExitStack:
        """A context in which they are on their shelves."""
        stack = ExitStack()
        for field in fields(self):
            shelf: Shelf[Any] = getattr(registry, field.name)
            stack.enter_context(shelf.including(getattr(self, field.name)))
        return stack


def run(
    source: str | Path | Mapping[str, Any],
    *,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    seeds: int | None = None,
    overrides: tuple[str, ...] = (),
    workers: int | None = None,
    cluster: str | Engine | None = None,
    resume: bool = True,
    observers: Sequence[Observer] = (),
    extras: Extras | None = None,
) -> Run:
    """Run an experiment and write its folder. A killed run resumes when it is called again with the same folder.

    Parameters
    ----------
    source
        Name of a preset, path of a TOML file, or the content of one.
    out
        Folder to write; `runs/<name>` by default.
    overrides
        `section.key=value`, as with `--set`.
    workers
        Worker processes; as many as processors by default.
    cluster
        Let clients answer on a Dask cluster: the scheduler's address, or `local`; or on an engine of your own.
    resume
        Reuse the finished jobs and replies in the folder; False removes them first.
    observers
        Called with every event.
    extras
        Things of the caller's own. With cells, channels, histories, mechanisms or exchanges all clients run in this
        process, because worker processes do not have them.
    """
    extras = extras or Extras()
    if extras.in_this_process:
        workers, cluster = 1, None
    changes = (*overrides, f"evaluation.seeds={seeds}") if seeds is not None else overrides
    watching = list(observers)

    def notify(event: Event) -> None:
        for observer in watching:
            observer(event)

    started = time.time()
    with extras.on_shelves(), one_torch_thread(), warnings_as_notices(notify):
        name, experiment, base = config.load(source, changes)
        device_of(experiment.train.device)
        scenarios_by_name = scenarios(experiment, None if data_dir is None else Path(data_dir), base)
        data = ";".join(data_digest(s) for s in scenarios_by_name.values())
        folder = RunFolder(Path(out) if out is not None else Path("runs") / name, name, experiment, data)
        with folder.alone(), ExitStack() as opened:
            if not resume:
                folder.clear()
            engine = engine_for(cluster, workers)
            if engine is not None:
                opened.callback(engine.close)
                if engine.note:
                    notify(Notice(engine.note))
            watching.append(_event_log(folder.path / "events.jsonl"))
            access = LocalClients(experiment, scenarios_by_name, folder, engine)
            with contextlib.closing(access):
                if experiment.search:
                    experiment, record = search_recipe(access, notify)
                    access.experiment = experiment
                    frozen = experiment.model_copy(update={"search": 0})
                    config.write(folder.path / CHOSEN_FILE, frozen, record.remarks(name), base)
                records, chosen = _scheduled(name, access, notify)
            first = next(iter(scenarios_by_name.values()))
            again = experiment.evaluation.refit and bool(first.whole)
            if again:
                chosen = with_refit(chosen)
            results, bundle = conclude(folder, name, experiment, records, chosen, access.clients)
            if again:
                bundle, owned = refitted(name, experiment, first, bundle, folder, engine, notify)
                bundle.save(folder.path / "bundle")
                for owner, chosen_bundle in owned.items():
                    chosen_bundle.save(folder.path / "owners" / folder_name(owner))
            write_json(folder.path / "provenance.json", _provenance(started, records))
            folder.forget()
        return Run(folder.path, results, bundle)


def _scheduled(name: str, access: LocalClients, notify: Observer) -> tuple[dict[JobKey, JobRecord], Published]:
    """Do all jobs that the folder does not hold already."""
    experiment, folder, clients = access.experiment, access.folder, access.clients

    def keep(key: JobKey, result: JobResult, record: JobRecord) -> None:
        folder.keep_outputs(key, result)
        folder.save_job(key, record)

    keys = job_keys(experiment, clients)
    finished = {key: record for key in keys if (record := folder.load_job(key)) is not None}
    epochs = sum(epochs_at_most(experiment, key, len(clients[key.scenario])) for key in keys if key not in finished)
    fleets = {s.name: dict(s.clients) for s in access.scenarios.values()}
    notify(RunStarted(str(folder.path), fleets, tuple(keys), tuple(finished), epochs))
    journal, jobs = ReplyJournal(folder.memory), 1 if access.engine is None else access.engine.jobs
    return Schedule(name, experiment, access, journal, keep, notify, jobs).work(finished)


def load_fleets(
    source: str | Path, *, data_dir: str | Path | None = None, overrides: tuple[str, ...] = ()
) -> tuple[Fleet, Fleet]:
    """All training units and all test units of an experiment's first scenario.

    Examples
    --------
    >>> train, test = load_fleets("demo")
    >>> train.schema.task, len(train), len(test)
    ('rul', 30, 54)
    """
    _, experiment, base = config.load(source, overrides)
    first = next(iter(scenarios(experiment, None if data_dir is None else Path(data_dir), base).values()))
    return pool(first.clients.values(), "train"), pool(first.tests.values(), "test")


def data_digest(scenario: Scenario) -> str:
    """A digest of all data of a scenario: results of other data must not be taken for these."""
    fleets = (*sorted(scenario.clients.items()), *sorted(scenario.tests.items()))
    return " ".join([scenario.name, *(f"{name}={fleet_digest(fleet)}" for name, fleet in fleets)])


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


def _event_log(path: Path) -> Observer:
    """Every event but single epochs as a line of JSON, to follow a run from outside."""
    lock = threading.Lock()

    def observer(event: Event) -> None:
        if not isinstance(event, EpochDone):
            facts = {k: str(v) if isinstance(v, JobKey) else v for k, v in vars(event).items() if k in SHOWN}
            line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": type(event).__name__, **facts}
            with lock, path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    return observer


__all__ = ["Extras", "Run", "load_fleets", "run"]
