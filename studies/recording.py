"""From a preset to its committed form: run it, and thin what pictures need out of the run's folder.

A few down-sampled curves of public data and the predictions of one seed are kept, never whole series.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.evaluation import Results, read_predictions
from fedprognos.experiment.experiment_run import run
from fedprognos.experiment.run_events import Observer
from fedprognos.experiment.run_folder import folder_name
from fedprognos.files import write_json
from fedprognos.report import write_report
from studies.lines import comparisons
from studies.places import Places
from studies.record import Record, write_record

POINTS = 60
"""Most points of a drawn line."""
METHODS = ("local", "fedavg", "concat", "fedma", "central")
DIGITS = 4
DETERMINED = ("python", "versions")
"""Parts of provenance that equal runs on equal machines have in common."""


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


def record_run(folder: Path, where: Places, preset: str) -> None:
    """Write the JSON of a run's folder and, beside it, its times."""
    results = Results.load(folder / "results.json")
    provenance: Mapping[str, Any] = json.loads((folder / "provenance.json").read_text("utf-8"))
    versions = {"python": provenance["python"], **provenance["versions"]}
    write_record(where.json(preset), Record(results, versions, curves(folder, results)))
    write_json(where.times(preset), {k: v for k, v in provenance.items() if k not in DETERMINED})


def curves(folder: Path, results: Results) -> dict[str, Any]:
    """Of the first scenario: its fleet, predictions, and extractors before and after a matching."""
    first = comparisons(Record(results, {}, {}))[0]
    name = folder_name(first.name)
    points = read_predictions(list((folder / "predictions").glob(f"{name}~*.csv")))
    parts: dict[str, Any] = {"predictions": _predictions(points, first.record.heads, first.shared_test)}
    parts["fleet"] = _fleet(json.loads((folder / "fleets" / f"{name}.json").read_text("utf-8")))
    matched = folder / "details" / f"{name}~fedma~seed0.json"
    rounds = json.loads(matched.read_text("utf-8")) if matched.is_file() else []
    if found := next((r["extractors"] for r in rounds if r.get("extractors")), None):
        parts["extractors"] = _extractors(found)
    return {first.name: parts}


def _fleet(fleet: Mapping[str, Any]) -> dict[str, Any]:
    """Lifespans of all units; discharge curves and labels of a few, thinned. Sensor series are left out."""
    soh = fleet["schema"]["task"] == "soh"
    most = 10**6 if soh else POINTS  # one capacity a cycle is what a fade is
    return {
        "schema": fleet["schema"],
        "clients": fleet["clients"],
        "tests": fleet["tests"] if soh else {},
        "series": [],
        "cycles": [_thinned(c, POINTS) for c in fleet.get("cycles", [])],
        "degradation": [_thinned(d, most) for d in fleet.get("degradation", [])],
    }


def _thinned(item: Mapping[str, Any], most: int) -> dict[str, Any]:
    """All lists of a curve at the same, evenly spread points."""
    kept = _thin(max(len(v) for v in item.values() if isinstance(v, list)), most)

    def cut(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: cut(inner) for name, inner in value.items()}
        return [value[k] for k in kept] if isinstance(value, list) else value

    return {name: cut(value) for name, value in item.items()}


def _thin(length: int, most: int) -> list[int]:
    """Indices of at most so many points, evenly spread, first and last among them."""
    kept: list[int] = np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int)).tolist()
    return kept


def _predictions(points: pd.DataFrame, heads: Sequence[str], shared_test: bool) -> list[dict[str, Any]]:
    """Scored points of the first seed with the first head that there is, of the methods pictures compare."""
    points = points[(points["scored"].astype(str) == "True") & (points["seed"] == 0)]
    head = next((h for h in heads if (points["head"] == h).any()), None)
    if head is None:
        return []
    points = points[(points["head"] == head) & points["method"].str.split("+").str[0].isin(METHODS)]
    keys = ["method", "head", "train_clients", "test_client", *([] if shared_test else ["unit"])]
    return [
        _curve({name: str(value) for name, value in zip(keys, key, strict=True)}, part)
        for key, part in points.groupby(keys, sort=True)
    ]


def _curve(key: Mapping[str, str], part: pd.DataFrame) -> dict[str, Any]:
    """A unit's line; where all are tested on one fleet the cloud of all its units, which then need no names."""
    ordered = part.sort_values(["unit", "position"], kind="stable")
    numbers = {name: [float(f"{v:.{DIGITS}g}") for v in ordered[name]] for name in ("position", "truth", "prediction")}
    return {"unit": "", **key, **numbers}


def _extractors(found: Mapping[str, Any]) -> dict[str, Any]:
    length = max(len(values) for neurons in found["before"].values() for values in neurons)
    kept = _thin(length, POINTS)

    def cut(neurons: Sequence[Sequence[float] | None]) -> list[list[float] | None]:
        return [None if v is None else [float(f"{v[k]:.3g}") for k in kept] for v in neurons]

    sides = {when: {client: cut(neurons) for client, neurons in found[when].items()} for when in ("before", "after")}
    return {"layer": found["layer"], "neurons": list(found["neurons"]), **sides}
