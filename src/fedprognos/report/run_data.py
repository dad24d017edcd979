"""What a run folder holds, read once and typed; whatever is missing is named, not fatal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import pandas as pd

from fedprognos.errors import DataError
from fedprognos.evaluation import (
    COLUMNS,
    EVERYONE,
    AbsorbedNeurons,
    HistoryRow,
    MatchRound,
    ResultRow,
    Results,
    Trajectories,
    read_match_records,
    read_predictions,
    read_trajectories,
    trained_on,
    written_clients,
)
from fedprognos.files import read_object
from fedprognos.report.method_entries import PRIVATE, Entry, Roles, entries, roles
from fedprognos.report.number_words import measured_in
from fedprognos.report.style import Palette

BOUNDS = ("low", "high")
NUMBERS = ("seed", "position", "truth", "prediction")


@dataclass(frozen=True, eq=False)
class RunData:
    """One scenario of a finished run; sections are built from it.

    Parameters
    ----------
    folder
        The run's folder.
    published
        Method and head of the model in `bundle/`, where there is one.
    limits
        What that model does not tell, and why.
    choices
        Which kind of head each owner chose for its own machines, and the reservoir head's share of it.
    predictions
        Lines of the prediction files with a column `data`, whose data was trained on; empty where there are none.
    fleet
        The summary of the fleet, or None.
    match_records
        How neurons were matched or absorbed, by method.
    trajectories
        Predictions along the whole lives of the test units; empty where health is predicted.
    missing
        What is not there, or not all of it, and why.
    """

    folder: Path
    results: Results
    scenario: str
    predictions: pd.DataFrame
    published: tuple[str, str] | None = None
    fleet: Mapping[str, Any] | None = None
    match_records: Mapping[str, Sequence[MatchRound]] = field(default_factory=dict)
    trajectories: Sequence[Trajectories] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    missing: Sequence[str] = ()
    choices: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    limits: Sequence[str] = ()

    @cached_property
    def rows(self) -> Sequence[ResultRow]:
        """The results of this scenario."""
        return [row for row in self.results.rows if row.scenario == self.scenario]

    @cached_property
    def history(self) -> Sequence[HistoryRow]:
        """Epochs and rounds of this scenario."""
        return [row for row in self.results.history if row.scenario == self.scenario]

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """Everyone who trained, in order of name."""
        return tuple(sorted({client for row in self.rows for client in row.train_clients}))

    @cached_property
    def data_of(self) -> Mapping[str, str]:
        """Whose data models were trained on, by the clients as files name them."""
        return {written_clients(row.train_clients): trained_on(row.train_clients, self.clients) for row in self.rows}

    @cached_property
    def task(self) -> Literal["rul", "soh"]:
        """Remaining life is scored with the NASA score, state of health is not."""
        return "rul" if any(row.scores.get("nasa_score") is not None for row in self.rows) else "soh"

    @property
    def cap(self) -> float | None:
        """Where labels were capped in training."""
        cap = self.results.config.get("recipe", {}).get("cap")
        return None if cap is None or self.task == "soh" else float(cap)

    @cached_property
    def matched(self) -> Mapping[str, Sequence[MatchRound]]:
        """Rounds in which neurons were matched by their weights, by method."""
        rounds_by_method = {method: [r for r in rounds if r.layers] for method, rounds in self.match_records.items()}
        return {method: rounds for method, rounds in rounds_by_method.items() if rounds}

    @cached_property
    def absorbed(self) -> tuple[AbsorbedNeurons, ...]:
        """What absorption kept in the round that was chosen, or in the last; empty where nothing was absorbed."""
        for method, rounds in self.match_records.items():
            absorbed_by_round = {r.round: r.absorption for r in rounds if r.absorption is not None}
            if absorbed_by_round:
                chosen = next((row.round for row in self.rows if row.method == method and row.seed == 0), None)
                return (absorbed_by_round[chosen if chosen in absorbed_by_round else max(absorbed_by_round)],)
        return ()

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Errors by name, with what sets them apart: first the one that tells methods apart.

        No prediction exceeds the cap, so beyond it all are equally wrong: capped labels come first.
        """
        capped = [("rmse_capped", f"labels capped at {self.cap:g}"), ("rmse", "raw labels")] if self.cap else []
        return capped or [("rmse", "")]

    @property
    def error(self) -> str:
        """The error that tells methods apart."""
        return self.errors[0][0]

    @property
    def measure(self) -> str:
        """What errors are counted in."""
        return self.rows[0].measure

    @property
    def forecast(self) -> str:
        """What is predicted ahead, such as "capacity in 50 cycles"; empty for other tasks."""
        schema = {} if self.fleet is None else self.fleet["schema"]
        return str(schema["target"]) if schema.get("ahead") is not None else ""

    @property
    def measured(self) -> str:
        """The measure as it stands behind a quantity."""
        return measured_in(self.measure)

    @cached_property
    def shared_test(self) -> bool:
        """Whether every model was tested on one common fleet."""
        return {row.test_client for row in self.rows} == {EVERYONE}

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Heads of the results: the published one first, then in the order the experiment asks for them."""
        heads_in_rows = {row.head for row in self.rows if row.head is not None}
        asked = [
            self.published[1] if self.published else "",
            *self.results.config.get("federation", {}).get("heads", ()),
        ]
        first = [head for head in asked if head in heads_in_rows and head not in PRIVATE]
        return tuple(dict.fromkeys([*first, *sorted(heads_in_rows)]))

    @property
    def shared_heads(self) -> list[str]:
        """Heads that are everybody's; the first is what figures and the answer are about."""
        return [head for head in self.heads if head not in PRIVATE]

    @property
    def head(self) -> str | None:
        """The head that figures and the answer are about."""
        return next(iter([*self.shared_heads, *self.heads]), None)

    @property
    def with_head(self) -> str:
        """Says which head a figure's networks have, where there are several."""
        return f" Head: {self.head}." if len(self.shared_heads) > 1 else ""

    @cached_property
    def scored(self) -> Mapping[tuple[str, str, str], pd.DataFrame]:
        """The points that count in the table, by method, training data and head."""
        points = self.predictions[self.predictions["scored"].astype(bool)]
        return {(str(m), str(d), str(h)): part for (m, d, h), part in points.groupby(["method", "data", "head"])}

    @cached_property
    def entries(self) -> Mapping[str, Sequence[Entry]]:
        """Results by method, seen from everybody's side first, then from each client's."""
        views = [EVERYONE, *self.clients] if len(self.clients) > 1 else [EVERYONE]
        return {view: entries(self, view) for view in views}

    @cached_property
    def roles(self) -> Roles:
        """The published model and what it is compared with."""
        return roles(self)

    @cached_property
    def palette(self) -> Palette:
        """Colours and shapes of the methods."""
        method_names = [row.method for row in self.results.rows] + [row.method for row in self.results.history]
        methods = {name: self.results.method(name) for name in dict.fromkeys(m.partition("+")[0] for m in method_names)}
        return Palette(methods, self.roles.together.method if self.roles.together else None, self.head)


def read_run(folder: str | Path) -> tuple[RunData, ...]:
    """Read a run's folder, one value a scenario.

    Raises
    ------
    DataError
        Where there is no readable results.json, or no result in it.
    """
    folder = Path(folder)
    results = Results.load(folder / "results.json")
    if not results.rows:
        raise DataError("holds no results yet", where=str(folder / "results.json"), hint="let the run finish first")
    predictions, why = _predictions(folder / "predictions")
    with_results = {row.scenario for row in results.rows}
    names = dict.fromkeys([*results.config.get("partition", {}), *(row.scenario for row in results.rows)])
    return tuple(_scenario(folder, results, name, predictions, why) for name in names if name in with_results)


def _choices(document: object) -> dict[str, tuple[str, float]]:
    """What each owner chose; what is damaged is left out."""
    choices = {}
    for owner, choice in document.items() if isinstance(document, dict) else ():
        share = choice.get("share", 0.0) if isinstance(choice, dict) else None
        if isinstance(share, int | float) and isinstance(choice.get("kind"), str):
            choices[owner] = (choice["kind"], float(share))
    return choices


def _scenario(folder: Path, results: Results, name: str, predictions: pd.DataFrame, why: str) -> RunData:
    bare = RunData(folder, results, name, predictions)
    lines = predictions[predictions["scenario"] == name]
    lines = lines.assign(data=lines["train_clients"].map(bare.data_of)).dropna(subset=["data"]).reset_index(drop=True)
    missing = [why or ("" if len(lines) else f"predictions/ holds nothing for the scenario {name}.")]
    fleet, no_fleet = _fleet(folder / "fleets", name)
    records, no_records = read_match_records(folder, name)
    trajectories, no_trajectories = _trajectories(folder, name)
    missing += [no_fleet, no_records, no_trajectories if bare.task == "rul" or trajectories else ""]
    bundle = read_object(folder / "bundle" / "bundle.json")
    origin = bundle.get("provenance")
    named = isinstance(origin, dict) and {"method", "head"} <= origin.keys()
    published = (str(origin["method"]), str(origin["head"])) if named and origin else None
    provenance = read_object(folder / "provenance.json")
    missing = [text for text in missing if text]
    mine = named and origin and origin.get("scenario") == name
    choices = _choices(origin.get("choices")) if mine and origin else {}
    more = (fleet, records, trajectories, provenance, missing, choices, _limits(bundle))
    return RunData(folder, results, name, lines, published, *more)


def _limits(bundle: Mapping[str, Any]) -> list[str]:
    """What a published model does not tell, in sentences."""
    origin, sentences = bundle.get("provenance"), []
    for part, key, what in (
        ("calibration", "no_intervals", "gives no intervals"),
        ("novelty", "no_novelty", "does not tell when a machine wears in an unknown way"),
    ):
        if part in bundle and bundle[part] is None and isinstance(origin, dict):
            sentences.append(f"The published model {what}: {origin.get(key, 'its bundle does not say why')}.")
    return sentences


def _predictions(folder: Path) -> tuple[pd.DataFrame, str]:
    empty = pd.DataFrame(columns=list(COLUMNS))
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        return empty, "The run's folder has no predictions/ (or an empty one)."
    try:
        frame = read_predictions(paths)
    except (OSError, ValueError) as error:
        return empty, f"predictions/ cannot be read: {error}"
    if lacking := set(COLUMNS) - set(BOUNDS) - set(frame.columns):
        return empty, f"predictions/ lacks the column {', '.join(sorted(lacking))}."
    frame["scored"] = frame["scored"].astype(str) == "True"
    for name in (*NUMBERS, *BOUNDS):
        frame[name] = _as_numbers(frame[name]) if name in frame else np.nan
    every = frame.attrs["every"]
    why = f"Figures show one test unit of {every}; scores count all of them." if every > 1 else ""
    return frame[np.isfinite(frame[list(NUMBERS)].to_numpy(dtype=float)).all(axis=1)], why


def _as_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column of a file that may be damaged, NaN where it is not a number.

    pandas makes whole numbers of hundreds of digits Python's own and then fails on them; of their text it makes inf.
    """
    return pd.to_numeric(column.astype(str) if column.dtype == object else column, errors="coerce")


def _fleet(folder: Path, scenario: str) -> tuple[Mapping[str, Any] | None, str]:
    for path in sorted(folder.glob("*.json")):
        if unquote(path.stem) == scenario:
            summary = read_object(path)
            if not {"schema", "clients", "tests"} <= summary.keys():
                return None, f"fleets/{path.name} cannot be read."
            return summary, ""
    return None, f"The run's folder has no summary of the fleet of the scenario {scenario} in fleets/."


def _trajectories(folder: Path, scenario: str) -> tuple[list[Trajectories], str]:
    lives: list[Trajectories] = []
    for path in sorted((folder / "trajectories").glob("*.safetensors")):
        if unquote(path.name.partition("~")[0]) == scenario:
            try:
                lives += [life for life in read_trajectories(path) if life.scenario == scenario]
            except DataError as error:
                return [], f"{path.parent.name}/{path.name} {error.what}. Decisions cannot be judged."
    return lives, "" if lives else "The run's folder has no predictions along whole lives. Decisions cannot be judged."
