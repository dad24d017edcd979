"""What pictures need besides rows and history, thinned out of a run's folder.

A few down-sampled curves of public data and the predictions of one seed; never whole series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedprognos.report.match_records import Extractors
from fedprognos.report.run_data import RunData
from fedprognos.report.style import thin

POINTS = 60
"""Most points of a drawn line."""
METHODS = ("local", "fedavg", "concat", "fedma", "central")
DIGITS = 4


def curves(run: RunData) -> dict[str, Any]:
    """Of one scenario: the summary of its fleet, predictions, and extractors before and after a matching."""
    parts: dict[str, Any] = {"predictions": _predictions(run)}
    if run.fleet is not None:
        parts["fleet"] = _fleet(run.fleet)
    rounds = run.match_records.get("fedma", ())
    extractors = next((r.extractors for r in rounds if r.extractors is not None), None)
    if extractors is not None:
        parts["extractors"] = _extractors(extractors)
    return {run.scenario: parts}


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
    length = max(len(v) for v in item.values() if isinstance(v, list))
    kept = thin(length, most).tolist()

    def cut(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: cut(inner) for name, inner in value.items()}
        return [value[k] for k in kept] if isinstance(value, list) else value

    return {name: cut(value) for name, value in item.items()}


def _predictions(run: RunData) -> list[dict[str, Any]]:
    """Scored points of the first seed with the first head that the scenario has, of the methods pictures compare."""
    points = run.predictions
    points = points[points["scored"].astype(bool) & (points["seed"] == 0)]
    head = next((h for h in run.heads if (points["head"] == h).any()), None)
    if head is None:
        return []
    points = points[(points["head"] == head) & points["method"].str.split("+").str[0].isin(METHODS)]
    keys = ["method", "head", "train_clients", "test_client", *([] if run.shared_test else ["unit"])]
    return [
        _curve({name: str(value) for name, value in zip(keys, key, strict=True)}, part)
        for key, part in points.groupby(keys, sort=True)
    ]


def _curve(key: Mapping[str, str], part: pd.DataFrame) -> dict[str, Any]:
    """A unit's line; where all are tested on one fleet the cloud of all its units, which then need no names."""
    ordered = part.sort_values(["unit", "position"], kind="stable")
    numbers = {name: [float(f"{v:.{DIGITS}g}") for v in ordered[name]] for name in ("position", "truth", "prediction")}
    return {"unit": "", **key, **numbers}


def _extractors(found: Extractors) -> dict[str, Any]:
    length = max(len(values) for neurons in found.before.values() for values in neurons)
    kept = thin(length, POINTS).tolist()

    def cut(neurons: Sequence[Sequence[float] | None]) -> list[list[float] | None]:
        return [None if v is None else [float(f"{v[k]:.3g}") for k in kept] for v in neurons]

    return {
        "layer": found.layer,
        "neurons": list(found.neurons),
        "before": {client: cut(neurons) for client, neurons in found.before.items()},
        "after": {client: cut(neurons) for client, neurons in found.after.items()},
    }
