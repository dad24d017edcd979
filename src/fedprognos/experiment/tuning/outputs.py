"""What a search leaves behind for people: the best experiment as a file to run, and every trial as a row."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import tomli_w

from fedprognos.experiment import config
from fedprognos.experiment.tuning.events import Trial
from fedprognos.experiment.tuning.space import Space
from fedprognos.files import write_text

BEST_FILE, TRIALS_FILE = "best.toml", "trials.csv"


def write_best(path: Path, experiment: config.Experiment, remarks: list[str], base: Path) -> None:
    """A complete experiment with remarks at its head; paths of its data are relative to where it lies.

    Parameters
    ----------
    base
        What relative paths in the experiment refer to.
    """
    document = _without_none(experiment.dump())
    document.pop("scale", None)  # its size is in its values now
    for key in ("path", "test_path"):
        if key in document["data"]:
            document["data"][key] = Path(os.path.relpath(base / document["data"][key], path.parent)).as_posix()
    head = "".join(f"# {line}\n" for line in remarks)
    write_text(path, f"{head}\n{tomli_w.dumps(document)}")


def write_trials(path: Path, trials: list[Trial], space: Space) -> None:
    """One row a trial, in the order they ran."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "validation_rmse", *space, "reason"])
    for trial in trials:
        error = "" if trial.error is None else repr(trial.error)
        writer.writerow([trial.number, trial.state, error, *(trial.values[name] for name in space), trial.reason])
    write_text(path, text.getvalue())


def _without_none(value: Any) -> Any:
    """TOML has no word for what is not there: keys without a value are left out, their default is None."""
    if isinstance(value, dict):
        return {key: _without_none(v) for key, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list) else value
