"""What results.json holds: rows, rounds, experiment, methods; and the one pooling of rows over seeds and clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.evaluation.metrics import metrics
from fedprognos.files import read_json

EVERYONE = "all"
"""The test client of rows that are about all test units together."""
OWN, SHARED = "own data", "all data"
"""Whose data a model was trained on: its client's own, or everybody's."""
UNKNOWN_ORDER = 1_000_000
"""Methods that results.json does not describe come last in tables."""


class ResultRow(BaseModel):
    """One final result: a method with a head, trained on some clients, tested on one of them, with one seed.

    The fields declared here say what was scored. Every further field is the value of a metric, None where that does
    not apply: see :attr:`scores`. Rounds of a federation are history, not rows.

    Parameters
    ----------
    rmse_low, rmse_high
        Bounds of the RMSE in 95 % of bootstrap samples of the test units.
    measure
        What errors are counted in, such as cycles or Ah.
    scored_on
        "validation" where sites of a deployed federation have too few test units to send sums of them.
    left_out
        Clients that the federation left out because their replies harmed the others.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float | None] = Field(init=False)

    scenario: str
    method: str
    head: str | None = None
    train_clients: tuple[str, ...]
    test_client: str
    seed: int
    round: int | None = None
    selected_on: Literal["validation", "test", "last"]
    n_test: int
    n_units: int
    rmse_low: float | None = None
    rmse_high: float | None = None
    measure: str
    width: tuple[int, ...] | None = None
    parameters: int | None = None
    local_epochs: int | None = None
    bytes: int | None = None
    collapsed: bool = False
    scored_on: Literal["test", "validation"] = "test"
    left_out: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_an_error(self) -> ResultRow:
        if self.scores.get("rmse") is None:
            raise ValueError("a result without an RMSE")
        return self

    @property
    def scores(self) -> dict[str, float | None]:
        """Values by metric."""
        return self.__pydantic_extra__

    @property
    def rmse(self) -> float:
        """The error that models are compared by."""
        return self.scores["rmse"] or 0.0


class HistoryRow(BaseModel):
    """One epoch of local training, or (without `epoch`) the federated model after a round.

    `client` is the client that trained, or the one whose test units were predicted; `validation_rmse` is on capped
    labels of what training kept out; `bytes` and `messages` count all traffic of the method so far.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: str
    method: str
    seed: int
    client: str
    round: int
    epoch: int | None = None
    train_rmse: float | None = None
    validation_rmse: float | None = None
    head: str | None = None
    rmse: float | None = None
    rmse_capped: float | None = None
    width: tuple[int, ...] | None = None
    bytes: int | None = None
    messages: int | None = None


class Method(BaseModel):
    """What people see of a method.

    Parameters
    ----------
    kind
        `baseline`: no network; `local`: every client for itself; `federated`: one model without sharing data;
        `central`: one model of pooled data.
    """

    model_config = ConfigDict(frozen=True)

    label: str
    order: int
    kind: Literal["baseline", "local", "federated", "central"] = "federated"


@dataclass(frozen=True, eq=False)
class Summary:
    """A method with one head on one choice of training data.

    Parameters
    ----------
    data
        Whose data it was trained on: :data:`OWN`, :data:`SHARED`, names of clients, or nothing where there is one
        client only.
    view
        The client whose test units it is scored on, or :data:`EVERYONE`.
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
        values = [row.scores[name] if name in row.scores else getattr(row, name, None) for row in self.rows]
        return np.array([v for v in values if v is not None], dtype=np.float64)

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
    by_scenario: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        by_scenario[row.scenario].append(row)
    return [summary for item in by_scenario.items() for summary in _summaries_of_scenario(*item, view, each_client)]


def _summaries_of_scenario(scenario: str, rows: Sequence[ResultRow], view: str, each_client: bool) -> list[Summary]:
    clients = {client for row in rows for client in row.train_clients}
    apart = each_client and {row.test_client for row in rows} == {EVERYONE}
    groups: dict[tuple[str, str | None, str, bool], list[ResultRow]] = defaultdict(list)
    for row in rows:
        data = trained_on(row.train_clients, clients)
        data = row.train_clients[0] if apart and data == OWN else data
        groups[row.method, row.head, data, row.selected_on == "test"].append(row)
    summaries = []
    for (method, head, data, _), group in groups.items():
        if parts := _rows_in_view(view, data, group):
            seeds = sorted({row.seed for row in parts})
            row_per_seed = tuple(pooled([row for row in parts if row.seed == seed]) for seed in seeds)
            selected_on = parts[0].selected_on
            summaries.append(Summary(scenario, method, head, data, view, selected_on, row_per_seed, tuple(parts)))
    return summaries


def trained_on(train_clients: Sequence[str], clients: Iterable[str]) -> str:
    """Whose data a model was trained on: :data:`OWN`, :data:`SHARED`, client names, or "" with one client only.

    >>> trained_on(("a",), ("a", "b", "c")), trained_on(("a", "b", "c"), ("a", "b", "c"))
    ('own data', 'all data')
    """
    everyone = set(clients)
    if len(everyone) == 1:
        return ""
    if set(train_clients) == everyone:
        return SHARED
    return OWN if len(train_clients) == 1 else " + ".join(train_clients)


def _rows_in_view(view: str, data: str, rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows that count for one client: its own models, and what was tested on its units or on everybody's."""
    if view != EVERYONE:
        usable = [row for row in rows if data != OWN or row.train_clients == (view,)]
        return [r for r in usable if r.test_client == view] or [r for r in usable if r.test_client == EVERYONE]
    return [row for row in rows if row.test_client == EVERYONE] or list(rows)


def pooled(rows: Sequence[ResultRow]) -> ResultRow:
    """Several clients' own models as if one model had answered for all.

    Pooled over points, so that it compares with a model tested on everybody: the RMSE is the root of
    sum(n * rmse**2) / sum(n). R2 and the interval of the RMSE need the points themselves and are left out.
    """
    if len(rows) == 1:
        return rows[0]
    n = np.array([row.n_test for row in rows], dtype=np.float64)
    common = all(row.test_client == EVERYONE for row in rows)  # one test fleet, not many
    scores: dict[str, float | None] = {}
    for name in rows[0].scores:
        values = [row.scores.get(name) for row in rows]
        pool = metrics[name].pool if name in metrics else None
        complete = all(v is not None for v in values)
        scores[name] = pool(np.array(values, dtype=np.float64), n) if pool is not None and complete else None
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


@dataclass(frozen=True)
class Results:
    """The results of an experiment.

    Parameters
    ----------
    rows
        In the order of the table, whatever order they are given in.
    methods
        Labels, order and kind of the methods, by name.
    published, reason
        The method whose model is the one to use, and why it was chosen.
    """

    experiment: str
    version: str
    config: dict[str, Any]
    rows: tuple[ResultRow, ...]
    history: tuple[HistoryRow, ...]
    methods: Mapping[str, Method] = field(default_factory=dict)
    published: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(sorted(self.rows, key=self._place)))

    def _place(self, row: ResultRow) -> tuple[Any, ...]:
        what = (self.method(row.method).order, row.method, row.head or "", row.selected_on == "test")
        trained = row.train_clients
        return (row.scenario, *what, len(trained), trained, row.test_client, row.seed, row.selected_on)

    def method(self, name: str) -> Method:
        """What people see of a method; a variant such as `fedma+personal` has the label and order of its method."""
        method = self.methods.get(name) or self.methods.get(name.partition("+")[0])
        return method if method is not None else Method(label=name, order=UNKNOWN_ORDER)

    def as_dict(self) -> dict[str, Any]:
        """The content of results.json; equal runs give equal bytes."""
        return {
            "experiment": self.experiment,
            "version": self.version,
            "config": self.config,
            "methods": {name: self.methods[name].model_dump() for name in sorted(self.methods)},
            "published": self.published,
            "reason": self.reason,
            "rows": [row.model_dump(mode="json") for row in self.rows],
            "history": [row.model_dump(mode="json") for row in self.history],
        }

    @staticmethod
    def load(path: str | Path) -> Results:
        """Read results.json.

        Raises
        ------
        DataError
            The file is missing, damaged, or from an older version.
        """
        path = Path(path)
        try:
            raw = read_json(path)
            rows = tuple(ResultRow.model_validate(row) for row in raw["rows"])
            history = tuple(HistoryRow.model_validate(row) for row in raw["history"])
            methods = {name: Method.model_validate(method) for name, method in raw["methods"].items()}
            about = (raw["experiment"], raw["version"], raw["config"])
            return Results(*about, rows, history, methods, raw["published"], raw["reason"])
        except FileNotFoundError:
            hint = "give a folder that `fedprognos run` wrote"
            raise DataError("no results here", where=str(path), hint=hint) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise DataError(f"cannot be read: {error}", where=str(path), hint="run the experiment again") from None

    def frame(self) -> pd.DataFrame:
        """One line a row: what was scored, then every metric; clients and widths joined by "+"."""
        scores = [*metrics, *dict.fromkeys(name for row in self.rows for name in row.scores if name not in metrics)]
        lines = [{name: _cell(value) for name, value in row.model_dump().items()} for row in self.rows]
        columns = [*ResultRow.model_fields, *scores]
        return pd.DataFrame(lines, columns=columns)

    def summary(self, scenario: str | None = None, view: str = EVERYONE, *, each_client: bool = False) -> list[Summary]:
        """Rows pooled over seeds and clients, of one scenario or of all; see :func:`summarise`."""
        rows = [row for row in self.rows if scenario in (None, row.scenario)]
        return summarise(rows, view, each_client=each_client)


def _cell(value: Any) -> Any:
    return "+".join(map(str, value)) if isinstance(value, tuple) else value
