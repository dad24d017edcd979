"""Results as the report shows them: one entry a method, head and choice of training data, and who plays which part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedprognos.evaluation import (
    EVERYONE,
    OWN,
    SHARED,
    Method,
    Points,
    ResultRow,
    Scores,
    Summary,
    metrics,
    score,
    summarise,
)

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
            raw = _scores(run, seed_points)
            capped = _scores(run, seed_points, against_cap=True) if run.cap else {}
            for field, scores in (("rmse", raw), ("rmse_capped", capped)):
                low, high = scores.get("rmse_low"), scores.get("rmse_high")
                bounds[field] += [] if low is None or high is None else [(low, high)]
            unpooled = {name: raw[name] for name, metric in metrics.items() if metric.pool is None}
            unpooled |= {"crps": row.scores.get("crps")}  # intervals are not at hand here
            row = row.model_copy(update=unpooled)  # noqa: PLW2901 - pooled rows have none
        scored_rows.append(row)
    middle = {field: tuple(np.mean(np.array(ends), axis=0).tolist()) for field, ends in bounds.items() if ends}
    parts = {**vars(summary), "rows": tuple(scored_rows), "about": run.results.method(summary.method)}
    return Entry(**parts, names_head=len(run.shared_heads) > 1, intervals=middle)


def _scores(run: RunData, points: pd.DataFrame, *, against_cap: bool = False) -> Scores:
    """Against raw labels or labels cut off at the cap; a unit tested by several models is one unit."""
    unit = points.groupby(["test_client", "unit"], sort=True).ngroup().to_numpy().astype(np.int64)
    truth, prediction = (points[name].to_numpy(np.float64) for name in ("truth", "prediction"))
    samples = int(run.results.config.get("evaluation", {}).get("bootstrap", 200))
    labels = np.minimum(truth, run.cap) if against_cap and run.cap else truth
    return score(Points(labels, prediction, unit, task=run.task, cap=run.cap), bootstrap=samples)


def points_of(run: RunData, summary: Summary) -> pd.DataFrame:
    """The points that count in the table; none for an entry whose round was chosen on the test."""
    none = run.predictions.iloc[:0]
    if summary.selected_on == "test":
        return none
    return run.scored.get((summary.method, summary.data, summary.head or ""), none)


def comparable(candidates: Sequence[Entry]) -> list[Entry]:
    """Entries that were tested on every point and chosen without the test: only these are ranked."""
    whole = max((entry.n_test for entry in candidates), default=0)
    return [entry for entry in candidates if entry.n_test == whole and entry.honest]


def best(candidates: Iterable[Entry], field: str) -> Entry | None:
    """The entry with the smallest mean error."""
    ranked = [(mean, k, entry) for k, entry in enumerate(candidates) if (mean := entry.mean(field)) is not None]
    return min(ranked, key=lambda item: item[:2])[2] if ranked else None


def of_head(candidates: Sequence[Entry], head: str | None) -> list[Entry]:
    """Honest entries for one head: baselines, networks with it (with any head if a method lacks it), and own heads."""
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

    `baseline` is the best of all, `own_baseline` the best of those that need no other client's data; `ensemble` is the
    mean of the clients' own predictions. `owners` is what the owners end with, where each of them chose the best for
    its own machines.
    """

    together: Entry | None
    alone: Entry | None
    central: Entry | None
    baseline: Entry | None
    own_baseline: Entry | None
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
    """Everyone's part. Alone and central stand at their own best head; alone counts even for a part of the test."""
    honest = [e for e in run.entries[EVERYONE] if e.honest]
    every = [e for e in honest if e.is_federated]
    federated = [e for e in every if e.head not in PRIVATE] or every
    same = [e for e in federated if e.head == run.head] or federated
    published = run.published[0] if run.published is not None else None
    together = next((e for e in same if e.method == published), same[-1] if same else None)
    head = together.head if together is not None else run.head

    def part(kind: str, data: Sequence[str]) -> Entry | None:
        matching = [e for e in honest if e.about.kind == kind and e.data in data and e.head not in PRIVATE]
        first = [e for e in matching if e.method == matching[0].method]
        validation = [kept_out_error(run, e) for e in first]
        if first and None not in validation:
            return first[int(np.argmin(np.array(validation, dtype=float)))]
        return min(first, key=lambda e: e.head != head, default=None)

    simple = [e for e in comparable(honest) if e.is_baseline]
    chosen = [e for e in every if e.head == CHOICE and together and e.method == f"{together.method}+{CHOICE}"]
    return Roles(
        together=together,
        alone=part("local", (OWN, "")),
        central=part("central", (SHARED, "")),
        baseline=best(simple, run.error),
        own_baseline=best([e for e in simple if e.data != SHARED], run.error),
        ensemble=part("local", (SHARED,)),
        owners=next(iter(chosen), None),
    )


def kept_out_error(run: RunData, entry: Entry) -> float | None:
    """The error on what training kept out, mean over seeds and clients; None where it kept nothing out.

    A head is chosen by this error, never by the test.
    """
    errors: dict[tuple[int, str], list[float]] = {}
    for row in run.history:
        if row.epoch is None and (row.method, row.head) == (entry.method, entry.head):
            if row.validation_rmse is None:
                return None
            errors.setdefault((row.seed, row.client), []).append(row.validation_rmse)
    return float(np.mean([min(rounds) for rounds in errors.values()])) if errors else None


def best_owner(run: RunData, alone: Entry) -> tuple[str, float] | None:
    """The client whose own model has the lowest error, mean over seeds, and that error; None with one client."""
    errors: dict[str, list[float]] = {}
    for row in alone.parts:
        error = row.scores.get(run.error)
        if len(row.train_clients) == 1 and error is not None:
            errors.setdefault(row.train_clients[0], []).append(error)
    means = {owner: float(np.mean(values)) for owner, values in errors.items()}
    return min(means.items(), key=lambda item: item[1]) if len(means) > 1 else None
