"""The committed form of a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.curves import curves
from experiments.places import Places
from experiments.record import Record, write_record
from fedprognos.files import write_json
from fedprognos.report import read_run

DETERMINED = ("python", "versions")
"""Parts of provenance that equal runs on equal machines have in common."""


def record_run(folder: Path, where: Places, preset: str) -> None:
    """Write the JSON of a run's folder and, beside it, its times."""
    run = read_run(folder)[0]
    provenance: Mapping[str, Any] = run.provenance
    versions = {"python": provenance["python"], **provenance["versions"]}
    write_record(where.json(preset), Record(run.results, versions, curves(run)))
    write_json(where.times(preset), {k: v for k, v in provenance.items() if k not in DETERMINED})
