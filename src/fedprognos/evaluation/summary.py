"""Rows pooled over seeds and clients: the one pooling that terminal, report and callers share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.evaluation.metrics import metrics
from fedprognos.evaluation.rows import ResultRow

EVERYONE = "all"
"""The test client of rows that are about all test units together."""
OWN, SHARED = "own data", "all data"
"""Whose data a model was trained on: its client's own, or everybody's."""


@dataclass(frozen=True, eq=False)
class Summary:
    """A method with one head on one choice of training data.

    Parameters
    ----------
    data
        Whose data it was trained on: :data:`OWN`, :data:`SHARED`, names of clients, or nothing where there is one
        client only.
    view
        The client on whose test units it is seen, or :data:`EVERYONE`.
    selected_on
        How rounds were chosen; clients without a validation part choose the last one, and are pooled with the others.
    rows
        One a seed; clients' own models, each tested on its own units, are pooled into one.
    parts
        The rows before pooling.
    """

    scenario: str
    method: str
    head: str | None
    data: str
    view: str
    selected_on: str
    rows: tuple[ResultRow, ...]
    parts: tuple[ResultRow, ...]

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.rows)

    @property
    def n_test(self) -> int:
        """Number of test points."""
        return self.rows[0].n_test

    def values(self, name: str) -> FloatArray:
        """A metric or another number of the rows, one value a seed; empty where it does not apply."""
        found = [row.scores[name] if name in row.scores else getattr(row, name, None) for row in self.rows]
        return np.array([v for v in found if v is not None], dtype=np.float64)

    def mean(self, name: str) -> float | None:
        """Mean over seeds."""
        values = self.values(name)
        return float(values.mean()) if values.size else None

    def spread(self, name: str) -> float | None:
        """Standard deviation over seeds; None with one seed."""
        values = self.values(name)
        return float(values.std()) if values.size > 1 else None


def summarise(rows: Iterable[ResultRow], view: str = EVERYONE, *, each_client: bool = False) -> list[Summary]:
    """Pool rows over seeds and over clients' own models, in the order of the rows.

    Parameters
    ----------
    view
        A client: only what was tested on its units, and of clients' own models only its own.
    each_client
        Keep clients' own models apart where all are tested on one fleet.
    """
    scenarios: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        scenarios[row.scenario].append(row)
    return [one for name, found in scenarios.items() for one in _of_scenario(name, found, view, each_client)]


def _of_scenario(scenario: str, rows: Sequence[ResultRow], view: str, each_client: bool) -> list[Summary]:
    clients = {client for row in rows for client in row.train_clients}
    apart = each_client and {row.test_client for row in rows} == {EVERYONE}
    groups: dict[tuple[str, str | None, str, bool], list[ResultRow]] = defaultdict(list)
    for row in rows:
        data = trained_on(row.train_clients, clients)
        data = row.train_clients[0] if apart and data == OWN else data
        groups[row.method, row.head, data, row.selected_on == "test"].append(row)
    found = []
    for (method, head, data, _), group in groups.items():
        if seen := _seen_from(view, data, group):
            seeds = sorted({row.seed for row in seen})
            one_a_seed = tuple(pooled([row for row in seen if row.seed == seed]) for seed in seeds)
            found.append(Summary(scenario, method, head, data, view, seen[0].selected_on, one_a_seed, tuple(seen)))
    return found


def trained_on(train_clients: Sequence[str], clients: Iterable[str]) -> str:
    """Whose data a model was trained on, in words.

    >>> trained_on(("a",), ("a", "b", "c")), trained_on(("a", "b", "c"), ("a", "b", "c"))
    ('own data', 'all data')
    """
    everyone = set(clients)
    if len(everyone) == 1:
        return ""
    if set(train_clients) == everyone:
        return SHARED
    return OWN if len(train_clients) == 1 else " + ".join(train_clients)


def _seen_from(view: str, data: str, rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows that count for one client: its own models, and whatever was tested on its units or on everybody's."""
    if view != EVERYONE:
        mine = [row for row in rows if data != OWN or row.train_clients == (view,)]
        return [r for r in mine if r.test_client == view] or [r for r in mine if r.test_client == EVERYONE]
    return [row for row in rows if row.test_client == EVERYONE] or list(rows)


def pooled(rows: Sequence[ResultRow]) -> ResultRow:
    """Several clients' own models as if one model had answered for all.

    Pooled over points, so that it compares with a model tested on everybody: the RMSE is the root of
    sum(n * rmse**2) / sum(n). What takes the points themselves (R2, the interval of the RMSE) is left out.
    """
    if len(rows) == 1:
        return rows[0]
    n = np.array([row.n_test for row in rows], dtype=np.float64)
    common = all(row.test_client == EVERYONE for row in rows)  # one test fleet, not many
    scores: dict[str, float | None] = {}
    for name in rows[0].scores:
        values = [row.scores.get(name) for row in rows]
        pool = metrics[name].pool if name in metrics else None
        known = pool is not None and all(v is not None for v in values)
        scores[name] = pool(np.array(values, dtype=np.float64), n) if pool is not None and known else None
    return rows[0].model_copy(
        update={
            **scores,
            "train_clients": tuple(sorted({client for row in rows for client in row.train_clients})),
            "test_client": EVERYONE,
            "n_test": rows[0].n_test if common else int(n.sum()),
            "n_units": rows[0].n_units if common else sum(row.n_units for row in rows),
            "rmse_low": None,
            "rmse_high": None,
            "collapsed": any(row.collapsed for row in rows),
        }
    )
