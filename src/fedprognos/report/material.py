"""What a run left behind, read back for the report; whatever is missing is explained, not fatal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.evaluation import Results, Row, Trajectories, read_predictions, read_trajectories
from fedprognos.evaluation.predictions import COLUMNS
from fedprognos.report.records import MatchRound, SiteLedger, read_ledgers, read_matchings

EVERYONE = "all"
OWN = "own data"
SHARED = "all data"
PERSONAL = "personal"
BOUNDS = ("low", "high")
NO_HEADS = "predictions/ does not tell heads apart; points of methods with several heads are left out."


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
        The portrait, or None.
    matchings
        How neurons were matched, by method.
    lives
        Predictions along the whole lives of the test units; empty where health is predicted.
    missing
        Why a part ("predictions", "fleet", "matchings", "ledgers", "lives") is not there, or not all of it.
    """

    name: str
    rows: tuple[Row, ...]
    clients: tuple[str, ...]
    predictions: pd.DataFrame
    fleet: Mapping[str, Any] | None
    matchings: Mapping[str, Sequence[MatchRound]]
    ledgers: Sequence[SiteLedger]
    lives: Sequence[Trajectories]
    missing: Mapping[str, str]

    @property
    def shared_test(self) -> bool:
        """Whether every model was tested on one common fleet."""
        return {row.test_client for row in self.rows} == {EVERYONE}

    @cached_property
    def scored(self) -> dict[tuple[str, str, str], pd.DataFrame]:
        """The points that count in the table, by method, scope and head."""
        points = self.predictions[self.predictions["scored"].astype(bool)]
        parts = points.groupby(["method", "scope", "head"], sort=True)
        return {(str(m), str(s), str(h)): part for (m, s, h), part in parts}

    def scope(self, train_clients: tuple[str, ...]) -> str:
        """Whose data a model saw; see :func:`scope_of`."""
        return scope_of(train_clients, self.clients)

    @cached_property
    def scopes(self) -> dict[str, str]:
        """Scopes by the training clients as files name them."""
        return {"+".join(row.train_clients): self.scope(row.train_clients) for row in self.rows}


def scope_of(train_clients: tuple[str, ...], clients: tuple[str, ...]) -> str:
    """Whose data a model saw: its client's own, everybody's, or the names of those in between."""
    if len(clients) == 1:
        return ""
    if set(train_clients) == set(clients):
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
        return "rul" if any(row.scores.get("nasa_score") is not None for row in self.results.rows) else "soh"

    @property
    def cap(self) -> float | None:
        """Where labels were capped in training."""
        cap = self.results.config.get("recipe", {}).get("cap")
        return None if cap is None or self.task == "soh" else float(cap)

    @property
    def unit(self) -> str:
        """What errors are measured in."""
        return self.results.rows[0].measure if self.results.rows else ""

    @property
    def measured(self) -> str:
        """The unit as it stands behind a quantity."""
        return measured_in(self.unit)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Heads of the results, in the order the experiment asks for them."""
        found = {row.head for row in self.results.rows if row.head is not None}
        asked = self.results.config.get("federation", {}).get("heads", ())
        return tuple(dict.fromkeys([*(h for h in asked if h in found), *sorted(found)]))

    @property
    def head(self) -> str | None:
        """The head that figures and the verdict are about: the first that is not personal."""
        return next((head for head in self.heads if head != PERSONAL), next(iter(self.heads), None))

    @property
    def bootstrap(self) -> int:
        """Resamples behind intervals."""
        return int(self.results.config.get("evaluation", {}).get("bootstrap", 200))


def measured_in(unit: str) -> str:
    """A unit as it stands behind a quantity.

    >>> measured_in("cycles"), measured_in("of rated")
    ('in cycles', 'as a share of rated')
    """
    return f"as a share {unit}" if unit.startswith("of ") else f"in {unit}"


def with_head(material: Material) -> str:
    """Says which head a figure's networks have, where there are several."""
    several = len([head for head in material.heads if head != PERSONAL]) > 1
    return f" Networks end in the {material.head} head; the table has the others." if several else ""


def read_material(folder: Path) -> Material:
    """Read a run's folder.

    Raises
    ------
    DataError
        Where there is no readable results.json.
    """
    results = Results.load(folder / "results.json")
    predictions, why = _predictions(folder / "predictions")
    named = dict.fromkeys([*results.config.get("partition", {}), *(row.scenario for row in results.rows)])
    settings = []
    for name in named:
        rows = tuple(row for row in results.rows if row.scenario == name)
        if not rows:
            continue
        settings.append(_setting(folder, name, rows, predictions[predictions["scenario"] == name], why))
    return Material(results, tuple(settings), _json(folder / "provenance.json") or {})


def _setting(folder: Path, name: str, rows: tuple[Row, ...], lines: pd.DataFrame, why: str) -> Setting:
    clients = tuple(sorted({client for row in rows for client in row.train_clients}))
    scopes = {"+".join(row.train_clients): scope_of(row.train_clients, clients) for row in rows}
    known = lines.assign(scope=lines["train_clients"].map(scopes)).dropna(subset=["scope"])
    if not why and not len(lines):
        why = f"predictions/ holds nothing for the setting {name}."
    if "head" not in known.columns:
        known, mixed = _with_heads(known, rows)
        why = why or (NO_HEADS if mixed else "")
    fleet, no_fleet = _fleet(folder / "fleets", name)
    matchings, no_matchings = read_matchings(folder, name, [row.method for row in rows])
    ledgers, no_ledgers = read_ledgers(folder, name)
    lives, no_lives = _lives(folder, name)
    missing = {
        "predictions": why,
        "fleet": no_fleet,
        "matchings": no_matchings,
        "ledgers": no_ledgers,
        "lives": no_lives,
    }
    return Setting(name, rows, clients, known.reset_index(drop=True), fleet, matchings, ledgers, lives, missing)


def _lives(folder: Path, setting: str) -> tuple[list[Trajectories], str]:
    found: list[Trajectories] = []
    try:
        for path in sorted([*folder.glob("trajectories/*.safetensors"), *folder.glob("lives/*.safetensors")]):
            if unquote(path.name.partition("~")[0]) == setting:
                found += [one for one in read_trajectories(path) if one.scenario == setting]
    except DataError as error:
        return [], f"{path.parent.name}/{path.name} {error.what}."
    return found, "" if found else "The run's folder has no predictions along whole lives in trajectories/."


def _with_heads(lines: pd.DataFrame, rows: tuple[Row, ...]) -> tuple[pd.DataFrame, bool]:
    """The head of each line where its method has only one, without the others; and whether there are others."""
    heads: dict[str, set[str]] = {}
    for row in rows:
        heads.setdefault(row.method, set()).add(row.head or "")
    single = {method: next(iter(found)) for method, found in heads.items() if len(found) == 1}
    known = lines.assign(head=lines["method"].map(single)).dropna(subset=["head"])
    return known, len(known) < len(lines)


def _predictions(folder: Path) -> tuple[pd.DataFrame, str]:
    empty = pd.DataFrame(columns=list(COLUMNS))
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        return empty, "The run's folder has no predictions/ (or an empty one)."
    try:
        frame = read_predictions(paths)
    except (OSError, ValueError) as error:
        return empty, f"predictions/ cannot be read: {error}"
    if lacking := set(COLUMNS) - {"head", *BOUNDS} - set(frame.columns):
        return empty, f"predictions/ lacks the column {', '.join(sorted(lacking))}."
    frame["scored"] = frame["scored"].astype(str) == "True"
    numbers = frame[["position", "truth", "prediction"]].apply(pd.to_numeric, errors="coerce")
    frame[["position", "truth", "prediction"]] = numbers
    for bound in BOUNDS:
        frame[bound] = pd.to_numeric(frame[bound], errors="coerce") if bound in frame else np.nan
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
