"""The folder a run writes into: finished jobs are kept, so that a killed run resumes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedprognos.errors import OutputError
from fedprognos.evaluation import FOLDER, HistoryRow, ResultRow, write_predictions, write_trajectories
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.job import JobResult
from fedprognos.experiment.run_events import JobKey
from fedprognos.federation import ClientFolder, FederationOptions
from fedprognos.files import holding, read_json, replacing, write_json

IDENTITY, LOCK = "experiment.json", "running.lock"


@dataclass(frozen=True)
class JobRecord:
    """What a finished job left behind."""

    rows: tuple[ResultRow, ...]
    history: tuple[HistoryRow, ...]
    seconds: float
    calibrated: bool = False


def folder_name(name: str) -> str:
    """A client's or scenario's name as part of a path.

    >>> folder_name("plant a/hall 1")
    'plant a%2Fhall 1'
    """
    quoted = quote(name, safe=" +-_()&,")
    return quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted


class RunFolder:
    """Paths and records of one run."""

    def __init__(self, path: Path, name: str, experiment: Experiment, data: str) -> None:
        self.path = path
        self._identity = {"experiment": name, "digest": _digest(experiment, data)}
        self._claim()

    def _claim(self) -> None:
        """Take a new or empty folder, or one that holds this very experiment."""
        identity = self.path / IDENTITY
        if identity.is_file():
            try:
                held = read_json(identity)
            except (OSError, ValueError):
                held = None
            if held != self._identity:
                raise OutputError(
                    "this folder holds the results of another experiment",
                    where=str(self.path),
                    hint="choose another --out, or remove the folder",
                )
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise OutputError(
                "exists and is not a folder of results", where=str(self.path), hint="choose another --out"
            )
        write_json(identity, self._identity)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs out of the folder; one that was killed does not."""
        what, hint = "another run is writing into this folder", "wait for it, or choose another --out"
        with holding(self.path / LOCK, what, hint):
            self._claim()  # it may have been somebody else's a moment ago
            yield

    def _file(self, kind: str, key: JobKey, suffix: str = "json") -> Path:
        return self.path / kind / f"{folder_name(key.scenario)}~{key.method}~seed{key.seed}.{suffix}"

    def load_job(self, key: JobKey) -> JobRecord | None:
        """A finished job, or None."""
        path = self._file("jobs", key)
        if not path.is_file():
            return None
        try:
            raw = read_json(path)
            return JobRecord(
                tuple(ResultRow.model_validate(r) for r in raw["rows"]),
                tuple(HistoryRow.model_validate(r) for r in raw["history"]),
                float(raw["seconds"]),
                bool(raw.get("calibrated", False)),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged: the job is done again
            return None

    def save_job(self, key: JobKey, record: JobRecord) -> None:
        """Keep a finished job; written last, so that it vouches for its bundles and predictions."""
        rows = [r.model_dump(mode="json") for r in record.rows]
        history = [r.model_dump(mode="json") for r in record.history]
        kept = {"rows": rows, "history": history, "seconds": record.seconds, "calibrated": record.calibrated}
        write_json(self._file("jobs", key), kept)

    def keep_outputs(self, key: JobKey, result: JobResult) -> None:
        """Write the results of a job."""
        for client, bundle in result.bundles.items():
            bundle.save(self.bundle(key, client))
        if result.match_rounds:
            write_json(
                self._file(FOLDER, key), [r.model_dump(mode="json", exclude_none=True) for r in result.match_rounds]
            )
        if result.predictions:
            write_predictions(self._file("predictions", key, "csv"), result.predictions)
            write_trajectories(self._file("trajectories", key, "safetensors"), result.predictions)

    def save_fleet_summary(self, scenario: str, summary: dict[str, Any]) -> None:
        """Keep what the report shows of a scenario's fleet."""
        write_json(self.path / "fleets" / f"{folder_name(scenario)}.json", summary)

    def client(self, scenario: str, client: str, options: FederationOptions) -> ClientFolder:
        """A client's own folder, and the model it trained earlier."""
        bundle = None if options.bundles is None else Path(options.bundles) / folder_name(client)
        return ClientFolder(self.path / "sites" / folder_name(scenario) / folder_name(client), bundle)

    @property
    def memory(self) -> Path:
        """Answers of the clients, while the run goes on."""
        return self.path / "answers"

    def clear(self) -> None:
        """Begin anew: remove all that an earlier run of this experiment left here."""
        for entry in self.path.iterdir():
            if entry.name not in (IDENTITY, LOCK):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def forget(self) -> None:
        """Remove the answers: every job is done."""
        shutil.rmtree(self.memory, ignore_errors=True)

    def bundle(self, key: JobKey, client: str | None) -> Path:
        """Where a job's bundle goes; local models have one a client."""
        base = self.path / "bundles" / folder_name(key.scenario) / key.method / f"seed{key.seed}"
        return base if client is None else base / folder_name(client)

    def publish(self, bundle: Path) -> Path:
        """Copy the bundle to use to `bundle`."""
        with replacing(self.path / "bundle") as temporary:
            shutil.copytree(bundle, temporary)
        return self.path / "bundle"


def _digest(experiment: Experiment, data: str) -> str:
    """What must be equal for results to belong together: all but the number of seeds, which may grow."""
    content: dict[str, Any] = experiment.dump()
    content["evaluation"].pop("seeds")
    return hashlib.sha256(json.dumps([content, data], sort_keys=True).encode()).hexdigest()
