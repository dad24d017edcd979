"""Rows of the results gathered into entries: one method and head on one choice of training data, from one side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.evaluation import Row, baselines, pooled, score
from fedprognos.report.material import EVERYONE, OWN, PERSONAL, SHARED, Material, Setting

NOT_FEDERATED = (*baselines, "local", "mean-of-locals", "central")


@dataclass(frozen=True, eq=False)
class Entry:
    """A line of the table: rows that differ in the seed only, clients' own models pooled into one row a seed.

    Parameters
    ----------
    scope
        Whose data was trained on; see :meth:`Setting.scope`.
    view
        The client from whose side this is seen, or "all".
    head
        The kind of head, None for yardsticks; `names_head` says whether a label has to mention it.
    remark
        How its round was chosen, where that sets it apart.
    intervals, intervals_capped
        95 % bounds of the RMSE a seed; empty where there are none.
    """

    method: str
    scope: str
    head: str | None
    view: str
    remark: str
    rows: tuple[Row, ...]
    intervals: tuple[tuple[float, float], ...]
    intervals_capped: tuple[tuple[float, float], ...]
    names_head: bool = False

    @property
    def key(self) -> str:
        """What identifies it among the figures of one setting."""
        return f"{self.method}|{self.scope}|{self.head or ''}|{self.remark}"

    @property
    def base(self) -> str:
        """The method without its variant."""
        return self.method.partition("+")[0]

    @property
    def head_label(self) -> str:
        """The head in words, where there are several and the name does not say it."""
        said = self.head is None or self.method.endswith(f"+{self.head}")
        return "" if said or not self.names_head else f"{self.head} head"

    @property
    def label(self) -> str:
        """Method, training data and head in words."""
        return " · ".join(part for part in (self.method, self.scope, self.head_label, self.remark) if part)

    @property
    def short_label(self) -> str:
        """The same without the head, for figures that show one head only."""
        return " · ".join(part for part in (self.method, self.scope, self.remark) if part)

    @property
    def is_personal(self) -> bool:
        """Whether every client has a head of its own."""
        return self.head == PERSONAL

    @property
    def is_federated(self) -> bool:
        """Whether clients made one model together without sharing data."""
        return self.base not in NOT_FEDERATED

    @property
    def everybodys(self) -> bool:
        """Whether all clients took part."""
        return self.scope in (SHARED, "")

    @property
    def is_yardstick(self) -> bool:
        """Whether it costs nothing to train."""
        return self.method in baselines

    @property
    def honest(self) -> bool:
        """Whether it was chosen without looking at the test."""
        return all(row.selected_on != "test" for row in self.rows)

    @property
    def n_test(self) -> int:
        """Test points."""
        return self.rows[0].n_test

    def values(self, field: str) -> FloatArray:
        """One metric, a value a seed; empty where it does not apply."""
        found = [getattr(row, field, None) for row in self.rows]
        return np.array([v for v in found if v is not None and np.isfinite(v)], dtype=np.float64)

    def mean(self, field: str) -> float | None:
        """Mean of a metric over seeds."""
        values = self.values(field)
        return float(values.mean()) if values.size else None

    def interval(self, capped: bool = False) -> tuple[float, float] | None:
        """Bounds of the RMSE, averaged over seeds."""
        found = self.intervals_capped if capped else self.intervals
        if not found:
            return None
        low, high = np.mean(np.array(found), axis=0)
        return float(low), float(high)


def views(setting: Setting) -> list[str]:
    """From whose side results can be seen: everybody's first, then each client's."""
    return [EVERYONE, *setting.clients] if len(setting.clients) > 1 else [EVERYONE]


def entries(material: Material, setting: Setting, view: str) -> list[Entry]:
    """Entries of one setting seen from one side, in the order of the results table."""
    groups: dict[tuple[str, str, str | None, str], list[Row]] = defaultdict(list)
    for row in setting.rows:
        groups[(row.method, setting.scope(row.train_clients), row.head, row.selected_on)].append(row)
    ways: dict[tuple[str, str, str | None], set[str]] = defaultdict(set)
    for method, scope, head, selected_on in groups:
        if selected_on != "test":
            ways[(method, scope, head)].add(selected_on)
    found = []
    for (method, scope, head, selected_on), rows in groups.items():
        seen = _seen_from(view, scope, rows)
        if not seen:
            continue
        remark = f"by {selected_on}" if len(ways[(method, scope, head)]) > 1 else ""
        remark = "round chosen on the test" if selected_on == "test" else remark
        found.append(_entry(material, setting, (method, scope, head, view, remark), seen))
    return found


def _seen_from(view: str, scope: str, rows: Sequence[Row]) -> list[Row]:
    """The rows that count from one side: a client's own models and whatever was tested on its units."""
    if view != EVERYONE:
        mine = [r for r in rows if scope != OWN or r.train_clients == (view,)]
        return [r for r in mine if r.test_client == view] or [r for r in mine if r.test_client == EVERYONE]
    return [r for r in rows if r.test_client == EVERYONE] or list(rows)


def _entry(material: Material, setting: Setting, name: tuple[str, str, str | None, str, str], rows: list[Row]) -> Entry:
    method, scope, head, view, _ = name
    honest = all(row.selected_on != "test" for row in rows)
    lines = _points(setting, method, scope, head, honest)
    if view != EVERYONE:
        lines = lines[
            (lines["train_clients"] == view) if scope == OWN else (lines["test_client"].isin({view, EVERYONE}))
        ]
    one_a_seed, raw, capped = [], [], []
    for seed in sorted({row.seed for row in rows}):
        group = [row for row in rows if row.seed == seed]
        points = lines[lines["seed"] == seed]
        fits = len(points) == sum(row.n_test for row in group)
        row = group[0] if len(group) == 1 else _pooled(group, points if fits else points.iloc[:0], material)
        one_a_seed.append(row)
        if row.rmse_low is not None and row.rmse_high is not None:
            raw.append((row.rmse_low, row.rmse_high))
        if fits and material.cap is not None and (bounds := _bounds(points, material, material.cap)) is not None:
            capped.append(bounds)
    several = len([h for h in material.heads if h != PERSONAL]) > 1
    return Entry(*name, tuple(one_a_seed), tuple(raw), tuple(capped), several)


def scored(setting: Setting, entry: Entry) -> pd.DataFrame:
    """The points of an entry that count in the table; what was chosen on the test has none."""
    return _points(setting, entry.method, entry.scope, entry.head, entry.honest)


def _points(setting: Setting, method: str, scope: str, head: str | None, honest: bool) -> pd.DataFrame:
    none = setting.predictions.iloc[:0]
    return setting.scored.get((method, scope, head or ""), none) if honest else none


def unit_index(points: pd.DataFrame) -> NDArray[np.int64]:
    """Which test unit each point belongs to; a unit tested by several models is one unit."""
    return np.asarray(points.groupby(["test_client", "unit"], sort=True).ngroup(), dtype=np.int64)


def _pooled(rows: Sequence[Row], points: pd.DataFrame, material: Material) -> Row:
    """Each client's own model on its own test, as if one model had answered for all."""
    row = pooled(rows)
    if not len(points):
        return row
    truth, prediction = points["truth"].to_numpy(), points["prediction"].to_numpy()
    scores = score(truth, prediction, unit_index(points), task=material.task, bootstrap=material.bootstrap)
    return row.model_copy(update={name: scores[name] for name in ("r2", "rmse_low", "rmse_high")})


def _bounds(points: pd.DataFrame, material: Material, cap: float) -> tuple[float, float] | None:
    truth, prediction = np.minimum(points["truth"].to_numpy(), cap), points["prediction"].to_numpy()
    scores = score(truth, prediction, unit_index(points), task="soh", bootstrap=material.bootstrap)
    low, high = scores["rmse_low"], scores["rmse_high"]
    return None if low is None or high is None else (low, high)
