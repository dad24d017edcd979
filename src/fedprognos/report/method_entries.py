"""Results as the report shows them: one entry a method, head and choice of training data, and who plays which part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedprognos.evaluation import EVERYONE, OWN, SHARED, Method, Points, ResultRow, Scores, Summary, score, summarise

if TYPE_CHECKING:
    from fedprognos.report.run_data import RunData

Interval = tuple[float, float]
PERSONAL, CHOICE = "personal", "choice"
PRIVATE = {PERSONAL: "personal heads", CHOICE: "each owner\u2019s choice"}
"""Heads that stay with the clients, and what they are called."""


@dataclass(frozen=True, eq=False)
class Entry(Summary):
    """A summary with what people see of its method.

    Parameters
    ----------
    about
        Label, order and kind of the method.
    names_head
        Whether a label has to mention the head.
    intervals
        95 % bounds of `rmse` and `rmse_capped`, mean over seeds, where they are known.
    """

    about: Method
    names_head: bool
    intervals: Mapping[str, Interval]

    @property
    def honest(self) -> bool:
        """Whether its round was chosen without looking at the test."""
        return self.selected_on != "test"

    @property
    def key(self) -> str:
        """What identifies it among the figures of one scenario."""
        return f"{self.method}|{self.data}|{self.head or ''}|{'' if self.honest else 'test'}"

    @property
    def short_label(self) -> str:
        """Method and, where it is not obvious, training data, for figures that show one head only."""
        obvious = self.about.kind != "baseline" and self.data in ("", OWN, SHARED)
        parts = [self.about.label, PRIVATE.get(self.head or "", "")]
        parts += ["" if obvious else self.data, "" if self.honest else "round chosen on the test"]
        return ", ".join(part for part in parts if part)

    @property
    def label(self) -> str:
        """The same with the head, where there are several."""
        named = self.names_head and self.head not in (None, *PRIVATE)
        return f"{self.short_label}, {self.head} head" if named else self.short_label

    @property
    def is_baseline(self) -> bool:
        """Whether it is no network."""
        return self.about.kind == "baseline"

    @property
    def is_federated(self) -> bool:
        """Whether clients made one model together without sharing data."""
        return self.about.kind == "federated"


def entries(run: RunData, view: str) -> list[Entry]:
    """Entries of one scenario seen from one client or from everybody, in the order of the results table."""
    return [_entry(run, summary) for summary in summarise(run.rows, view)]


def _entry(run: RunData, summary: Summary) -> Entry:
    points = points_of(run, summary)
    if summary.view != EVERYONE:
        mine = points["train_clients"] == summary.view
        points = points[mine if summary.data == OWN else points["test_client"].isin({summary.view, EVERYONE})]
    scored_rows: list[ResultRow] = []
    bounds: dict[str, list[Interval]] = {"rmse": [], "rmse_capped": []}
    for row in summary.rows:
        seed_points = points[points["seed"] == row.seed]
        if len(seed_points) and len(seed_points) == sum(part.n_test for part in summary.parts if part.seed == row.seed):
            raw = _scores(run, seed_points, np.inf)
            capped = _scores(run, seed_points, run.cap) if run.cap else {}
            for field, scores in (("rmse", raw), ("rmse_capped", capped)):
                low, high = scores.get("rmse_low"), scores.get("rmse_high")
                bounds[field] += [] if low is None or high is None else [(low, high)]
            row = row.model_copy(update={"r2": raw["r2"]})  # noqa: PLW2901 - pooled rows have none
        scored_rows.append(row)
    middle = {field: tuple(np.mean(np.array(ends), axis=0).tolist()) for field, ends in bounds.items() if ends}
    parts = {**vars(summary), "rows": tuple(scored_rows), "about": run.results.method(summary.method)}
    return Entry(**parts, names_head=len(run.shared_heads) > 1, intervals=middle)


def _scores(run: RunData, points: pd.DataFrame, cap: float) -> Scores:
    """Against labels cut off at a cap; a unit tested by several models is one unit."""
    unit = points.groupby(["test_client", "unit"], sort=True).ngroup().to_numpy().astype(np.int64)
    truth, prediction = (points[name].to_numpy(np.float64) for name in ("truth", "prediction"))
    samples = int(run.results.config.get("evaluation", {}).get("bootstrap", 200))
    return score(Points(np.minimum(truth, cap), prediction, unit, task="soh"), bootstrap=samples)


def points_of(run: RunData, summary: Summary) -> pd.DataFrame:
    """The points that count in the table; what was chosen on the test has none."""
    none = run.predictions.iloc[:0]
    if summary.selected_on == "test":
        return none
    return run.scored.get((summary.method, summary.data, summary.head or ""), none)


def comparable(candidates: Sequence[Entry]) -> list[Entry]:
    """Entries that answered for the whole test and were chosen without it: among these there may be a best."""
    whole = max((entry.n_test for entry in candidates), default=0)
    return [entry for entry in candidates if entry.n_test == whole and entry.honest]


def best(candidates: Iterable[Entry], field: str) -> Entry | None:
    """The entry with the smallest mean error."""
    ranked = [(mean, k, entry) for k, entry in enumerate(candidates) if (mean := entry.mean(field)) is not None]
    return min(ranked, key=lambda item: item[:2])[2] if ranked else None


def of_head(candidates: Sequence[Entry], head: str | None) -> list[Entry]:
    """Honest ones: baselines, networks with this head (or whatever a method has instead), and those clients keep."""
    methods = {(e.method, e.data) for e in candidates if e.head == head}
    kept = (None, head, *PRIVATE)
    return [e for e in candidates if e.honest and (e.head in kept or (e.method, e.data) not in methods)]


def drawn(run: RunData) -> list[Entry]:
    """Entries for figures: every network, and each baseline on the data that suits it best."""
    candidates = of_head(run.entries[EVERYONE], run.head)
    kept = [e for e in candidates if not e.is_baseline]
    for method in dict.fromkeys(e.method for e in candidates if e.is_baseline):
        same = [e for e in candidates if e.method == method]
        winner = best(comparable(same), run.error)
        kept += [winner] if winner is not None else []
    return kept


@dataclass(frozen=True, eq=False)
class Roles:
    """Whom the answer is about: the federated model that is published, and what it is compared with.

    `ensemble` is the mean of the clients' own predictions. `owners` is what the owners end with, where each of them
    chose the best for its own machines.
    """

    together: Entry | None
    alone: Entry | None
    central: Entry | None
    baseline: Entry | None
    ensemble: Entry | None
    owners: Entry | None = None

    @property
    def result(self) -> Entry | None:
        """What federating comes to: what the owners end with, or the shared model."""
        return self.owners or self.together

    @property
    def keys(self) -> list[str]:
        """What figures show at first."""
        return [e.key for e in (self.together, self.alone, self.central, self.baseline) if e is not None]


def roles(run: RunData) -> Roles:
    """Everyone's part, at equal head where there is one; alone counts even if it answered for a part of the test."""
    honest = [e for e in run.entries[EVERYONE] if e.honest]
    every = [e for e in honest if e.is_federated]
    federated = [e for e in every if e.head not in PRIVATE] or every
    same = [e for e in federated if e.head == run.head] or federated
    published = run.published[0] if run.published is not None else None
    together = next((e for e in same if e.method == published), same[-1] if same else None)
    head = together.head if together is not None else run.head

    def part(kind: str, data: Sequence[str]) -> Entry | None:
        matching = [e for e in honest if e.about.kind == kind and e.data in data and e.head not in PRIVATE]
        return min(matching, key=lambda e: e.head != head, default=None)

    baseline = best([e for e in comparable(honest) if e.is_baseline], run.error)
    alone, ensemble = part("local", (OWN, "")), part("local", (SHARED,))
    chosen = [e for e in every if e.head == CHOICE and together and e.method == f"{together.method}+{CHOICE}"]
    return Roles(together, alone, part("central", (SHARED, "")), baseline, ensemble, next(iter(chosen), None))
