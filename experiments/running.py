"""Run a preset and write its committed form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.places import Places
from experiments.recording import record_run
from fedprognos.experiment.events import Observer
from fedprognos.experiment.run import run
from fedprognos.report import write_report


def run_preset(
    preset: str,
    where: Places,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    observers: Sequence[Observer] = (),
) -> None:
    """Run a preset, or go on with it, then write its report, its JSON and its times."""
    finished = run(preset, data_dir=data_dir, out=where.runs / preset, workers=workers, observers=observers)
    write_report(finished.folder)
    record_run(finished.folder, where, preset)
