"""What a run left behind, read back for the report; whatever is missing is explained, not fatal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import pandas as pd

from fedprognos.evaluation import Results, Row, read_predictions
from fedprognos.evaluation.predictions import COLUMNS

EVERYONE = "all"
OWN = "own data"
SHARED = "all data"


@dataclass(frozen=True, eq=False)
class Setting:
    """One setting of the experiment: its rows, predictions and fleet.

    Parameters
    ----------
    clients
        Everyone who trained, in order of name.
    predictions
        Lines of the prediction files with a column `scope`; empty where there are none.
    fleet
        The portrait, or None; `fleet_missing` and `predictions_missing` then say why.
    """

    name: str
    rows: tuple[Row, ...]
    clients: tuple[str, ...]
    predictions: pd.DataFrame
    predictions_missing: str
    fleet: Mapping[str, Any] | None
    fleet_missing: str

    @property
    def shared_test(self) -> bool:
        """Whether every model was tested on one common fleet."""
        return {row.test_client for row in self.rows} == {EVERYONE}

    @cached_property
    def scored(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The points that count in the table, by method and scope."""
        points = self.predictions[self.predictions["scored"].astype(bool)]
        return {(str(m), str(s)): part for (m, s), part in points.groupby(["method", "scope"], sort=True)}

    def scope(self, train_clients: tuple[str, ...]) -> str:
        """Whose data a model saw: its client's own, everybody's, or the names of those in between."""
        if len(self.clients) == 1:
            return ""
        if set(train_clients) == set(self.clients):
            return SHARED
        return OWN if len(train_clients) == 1 else " + ".join(train_clients)


@dataclass(frozen=True, eq=False)
class Material:
    """Everything the report is made from."""

    results: Results
    settings: tuple[Setting, ...]
    provenance: Mapping[str, Any]

    @property
    def task(self) -> Literal["rul", "soh"]:
        """Remaining life is scored with the NASA score, state of health is not."""
        return "rul" if any(row.nasa_score is not None for row in self.results.rows) else "soh"

    @property
    def cap(self) -> float | None:
        """Where labels were capped in training."""
        cap = self.results.config.get("recipe", {}).get("cap")
        return None if cap is None or self.task == "soh" else float(cap)

    @property
    def unit(self) -> str:
        """What errors are measured in."""
        return self.results.rows[0].unit if self.results.rows else ""

    @property
    def bootstrap(self) -> int:
        """Resamples behind intervals."""
        return int(self.results.config.get("evaluation", {}).get("bootstrap", 200))


def read_material(folder: Path) -> Material:
    """Read a run's folder.

    Raises
    ------
    DataError
        Where there is no readable results.json.
    """
    results = Results.load(folder / "results.json")
    predictions, why = _predictions(folder / "predictions")
    named = dict.fromkeys([*results.config.get("partition", {}), *(row.setting for row in results.rows)])
    settings = []
    for name in named:
        rows = tuple(row for row in results.rows if row.setting == name)
        if not rows:
            continue
        clients = tuple(sorted({client for row in rows for client in row.train_clients}))
        fleet, no_fleet = _fleet(folder / "fleets", name)
        lines = predictions[predictions["setting"] == name]
        missing = why if why or len(lines) else f"predictions/ holds nothing for the setting {name}."
        setting = Setting(name, rows, clients, lines, missing, fleet, no_fleet)
        scopes = {"+".join(row.train_clients): setting.scope(row.train_clients) for row in rows}
        known = lines.assign(scope=lines["train_clients"].map(scopes)).dropna(subset=["scope"])
        settings.append(Setting(name, rows, clients, known.reset_index(drop=True), missing, fleet, no_fleet))
    return Material(results, tuple(settings), _json(folder / "provenance.json") or {})


def _predictions(folder: Path) -> tuple[pd.DataFrame, str]:
    empty = pd.DataFrame(columns=list(COLUMNS))
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        return empty, "The run's folder has no predictions/ (or an empty one)."
    try:
        frame = read_predictions(paths)
    except (OSError, ValueError) as error:
        return empty, f"predictions/ cannot be read: {error}"
    if not set(COLUMNS) <= set(frame.columns):
        lacking = ", ".join(sorted(set(COLUMNS) - set(frame.columns)))
        return empty, f"predictions/ lacks the column {lacking}."
    frame["scored"] = frame["scored"].astype(str) == "True"
    numbers = frame[["position", "truth", "prediction"]].apply(pd.to_numeric, errors="coerce")
    frame[["position", "truth", "prediction"]] = numbers
    return frame[np.isfinite(numbers.to_numpy(dtype=float)).all(axis=1)], ""


def _fleet(folder: Path, setting: str) -> tuple[Mapping[str, Any] | None, str]:
    for path in sorted(folder.glob("*.json")):
        if unquote(path.stem) == setting:
            found = _json(path)
            if found is None or not {"schema", "clients", "tests"} <= found.keys():
                return None, f"fleets/{path.name} cannot be read."
            return found, ""
    return None, f"The run's folder has no portrait of the fleet for the setting {setting} in fleets/."


def _json(path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None
