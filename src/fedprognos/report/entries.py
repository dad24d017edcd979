"""Rows of the results gathered into entries: one method on one choice of training data, seen from one test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedprognos.evaluation import YARDSTICKS, Row, score
from fedprognos.report.material import EVERYONE, OWN, Material, Setting

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Entry:
    """A line of the table: rows that differ in the seed only, clients' own models pooled into one row a seed.

    Parameters
    ----------
    scope
        Whose data was trained on; see :meth:`Setting.scope`.
    view
        The client from whose side this is seen, or "all".
    remark
        What sets it apart from an entry of the same method and scope: head, way of selecting.
    intervals, intervals_capped
        95 % bounds of the RMSE a seed; empty where there are none.
    """

    method: str
    scope: str
    view: str
    remark: str
    rows: tuple[Row, ...]
    intervals: tuple[tuple[float, float], ...]
    intervals_capped: tuple[tuple[float, float], ...]

    @property
    def key(self) -> str:
        """What identifies it among the figures of one setting."""
        return f"{self.method}|{self.scope}|{self.remark}"

    @property
    def label(self) -> str:
        """Method and training data in words."""
        return " · ".join(part for part in (self.method, self.scope, self.remark) if part)

    @property
    def is_yardstick(self) -> bool:
        """Whether it costs nothing to train."""
        return self.method in YARDSTICKS

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
        found = [getattr(row, field) for row in self.rows]
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
    for row in sorted(setting.rows, key=lambda r: r.key):
        groups[(row.method, setting.scope(row.train_clients), row.head, row.selected_on)].append(row)
    variants: dict[tuple[str, str], list[tuple[str | None, str]]] = defaultdict(list)
    for method, scope, head, selected_on in groups:
        variants[(method, scope)].append((head, selected_on))
    found = []
    for (method, scope, head, selected_on), rows in groups.items():
        seen = _seen_from(view, scope, rows)
        if not seen:
            continue
        several = variants[(method, scope)]
        remark = ", ".join(
            part
            for part in (
                f"{head} head" if len({h for h, _ in several}) > 1 and head else "",
                "chosen on the test" if selected_on == "test" else "",
                f"by {selected_on}" if selected_on != "test" and len({s for _, s in several}) > 1 else "",
            )
            if part
        )
        found.append(_entry(material, setting, (method, scope, view, remark), seen))
    return found


def _seen_from(view: str, scope: str, rows: Sequence[Row]) -> list[Row]:
    """The rows that count from one side: a client's own models and whatever was tested on its units."""
    if view != EVERYONE:
        mine = [r for r in rows if scope != OWN or r.train_clients == (view,)]
        return [r for r in mine if r.test_client == view] or [r for r in mine if r.test_client == EVERYONE]
    return [r for r in rows if r.test_client == EVERYONE] or list(rows)


def _entry(material: Material, setting: Setting, name: tuple[str, str, str, str], rows: list[Row]) -> Entry:
    method, scope, view, remark = name
    lines = scored(setting, method, scope)
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
    return Entry(method, scope, view, remark, tuple(one_a_seed), tuple(raw), tuple(capped))


def scored(setting: Setting, method: str, scope: str) -> pd.DataFrame:
    """The points of one method and scope that count in the table."""
    return setting.scored.get((method, scope), setting.predictions.iloc[:0])


def unit_index(points: pd.DataFrame) -> NDArray[np.int64]:
    """Which test unit each point belongs to; a unit tested by several models is one unit."""
    return np.asarray(points.groupby(["test_client", "unit"], sort=True).ngroup(), dtype=np.int64)


def _pooled(rows: Sequence[Row], points: pd.DataFrame, material: Material) -> Row:
    """Each client's own model on its own test, as if one model had answered for all.

    Pooled over points, so that it compares with a model tested on everybody: the RMSE is the root of
    sum(n * rmse**2) / sum(n). R2 and the interval need the points themselves.
    """
    n = np.array([row.n_test for row in rows], dtype=np.float64)
    common = all(row.test_client == EVERYONE for row in rows)

    def weighted(values: Iterable[float | None], of: Callable[[FloatArray], FloatArray] = lambda x: x) -> float | None:
        known = list(values)
        if any(v is None for v in known):
            return None
        return float((n * of(np.array(known, dtype=np.float64))).sum() / n.sum())

    def root(values: Iterable[float | None]) -> float | None:
        squared = weighted(values, np.square)
        return None if squared is None else float(np.sqrt(squared))

    changes: dict[str, Any] = {
        "test_client": EVERYONE,
        "rmse": root(row.rmse for row in rows),
        "rmse_capped": root(row.rmse_capped for row in rows),
        "mae": weighted(row.mae for row in rows),
        "bias": weighted(row.bias for row in rows),
        "late_rate": weighted(row.late_rate for row in rows),
        "nasa_score_mean": weighted(row.nasa_score_mean for row in rows),
        "n_test": rows[0].n_test if common else int(n.sum()),
        "n_units": rows[0].n_units if common else sum(row.n_units for row in rows),
        "r2": None,
        "rmse_low": None,
        "rmse_high": None,
        "collapsed": any(row.collapsed for row in rows),
    }
    if len(points):
        truth, prediction = points["truth"].to_numpy(), points["prediction"].to_numpy()
        scores = score(truth, prediction, unit_index(points), task=material.task, bootstrap=material.bootstrap)
        changes |= {"r2": scores.r2, "rmse_low": scores.rmse_low, "rmse_high": scores.rmse_high}
    return rows[0].model_copy(update=changes)


def _bounds(points: pd.DataFrame, material: Material, cap: float) -> tuple[float, float] | None:
    truth, prediction = np.minimum(points["truth"].to_numpy(), cap), points["prediction"].to_numpy()
    scores = score(truth, prediction, unit_index(points), task="soh", bootstrap=material.bootstrap)
    if scores.rmse_low is None or scores.rmse_high is None:
        return None
    return scores.rmse_low, scores.rmse_high


def comparable(found: Sequence[Entry]) -> list[Entry]:
    """Entries that answered for the whole test and were chosen without it: among these there may be a best."""
    whole = max((entry.n_test for entry in found), default=0)
    return [entry for entry in found if entry.n_test == whole and entry.honest]


def best(found: Iterable[Entry], field: str = "rmse") -> Entry | None:
    """The entry with the smallest mean error."""
    known = [(mean, k, entry) for k, entry in enumerate(found) if (mean := entry.mean(field)) is not None]
    return min(known, key=lambda item: item[:2])[2] if known else None


def drawn(found: Sequence[Entry]) -> list[Entry]:
    """Entries for figures: every network, and each yardstick on the data that suits it best."""
    fair = comparable(found)
    kept = [e for e in found if not e.is_yardstick]
    methods = dict.fromkeys(e.method for e in found if e.is_yardstick)
    for method in methods:
        winner = best([e for e in fair if e.method == method]) or best([e for e in found if e.method == method])
        kept += [winner] if winner is not None else []
    return kept
