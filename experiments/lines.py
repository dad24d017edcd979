"""Rows of a record gathered into lines of a table: a method with a head on one choice of training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from experiments.record import Record
from experiments.samples import Sample, pooled
from fedprognos.evaluation import Row, baselines

EVERYONE = "all"
HEADS = ("mean", "exact", "personal")
NAMES = {
    "local": "Local",
    "mean-of-locals": "mean of the local models",
    "single": "best single client’s body",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "concat": "concat",
    "fedma": "FedMA",
    "central": "Central",
}
Field = Literal["rmse", "rmse_capped"]


@dataclass(frozen=True)
class Column:
    """A column of errors: whom was tested, and on which labels."""

    title: str
    test: str
    field: Field


@dataclass(frozen=True, eq=False)
class Line:
    """One line.

    Parameters
    ----------
    own
        Whether every client trained alone: then a column holds the model of the client it is about, or, where
        all are tested on one fleet, `train` has one name and every client has a line of its own.
    """

    method: str
    head: str | None
    train: tuple[str, ...]
    own: bool
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        base = self.method.partition("+")[0]
        return NAMES.get(base, base)

    @property
    def base(self) -> str:
        return self.method.partition("+")[0]

    def sample(self, column: Column) -> Sample | None:
        """The errors of one column, over seeds."""
        found = [row for row in self.rows if row.test_client == column.test]
        if not found and column.test == EVERYONE:
            return self._pooled(column.field)
        return sample_of(found, column.field)

    def _pooled(self, field: Field) -> Sample | None:
        """Every client's own model on its own test, taken together."""
        tests = sorted({row.test_client for row in self.rows})
        parts = {t: sample_of([r for r in self.rows if r.test_client == t], field) for t in tests}
        known = {t: s for t, s in parts.items() if s is not None}
        counts = {row.test_client: row.n_test for row in self.rows}
        return pooled(known, counts) if known and len(known) == len(parts) else None

    def fact(self, field: str) -> list[float]:
        """A number about the models, all of them."""
        values = [getattr(row, field) for row in self.rows]
        return [float(sum(v)) if isinstance(v, tuple) else float(v) for v in values if v is not None]


def sample_of(rows: Sequence[Row], field: str) -> Sample | None:
    """One quantity over seeds; None where there is none."""
    values = {row.seed: getattr(row, field, None) for row in rows}
    known = {seed: float(v) for seed, v in sorted(values.items()) if v is not None}
    return Sample(known, {row.seed: row.round for row in rows if row.round is not None}) if known else None


class Setting:
    """The rows of one setting of a record."""

    def __init__(self, record: Record, name: str) -> None:
        self.record, self.name = record, name
        self.rows = tuple(row for row in record.results.rows if row.scenario == name)
        self.clients = tuple(sorted({client for row in self.rows for client in row.train_clients}))

    @property
    def shared_test(self) -> bool:
        return {row.test_client for row in self.rows} == {EVERYONE}

    @property
    def digits(self) -> int:
        """Decimals of an error: hundredths of cycles, tenths of mAh."""
        return 4 if self.rows[0].measure == "Ah" else 2

    @property
    def columns(self) -> list[Column]:
        """All columns of errors that apply."""
        if self.shared_test:
            capped = any(row.scores.get("rmse_capped") is not None for row in self.rows)
            first = Column("raw", EVERYONE, "rmse")
            return [first, Column("capped", EVERYONE, "rmse_capped")] if capped else [first]
        return [*(Column(c, c, "rmse") for c in self.clients), Column("together", EVERYONE, "rmse")]

    @cached_property
    def lines(self) -> list[Line]:
        """Lines that were chosen without the test, baselines first, then head by head."""
        groups: dict[tuple[str, str | None, tuple[str, ...], bool], list[Row]] = {}
        for row in self.rows:
            if row.selected_on == "test":
                continue
            own = len(row.train_clients) == 1 < len(self.clients)
            train = row.train_clients if self.shared_test or not own else ()
            groups.setdefault((row.method, row.head, train, own), []).append(row)
        found = [Line(*key, tuple(rows)) for key, rows in groups.items()]
        return sorted(
            found, key=lambda line: (_head(line.head), not line.own, self.record.results.method(line.base).order)
        )

    def line(self, method: str, head: str | None, train: Sequence[str] | None = None) -> Line | None:
        """The line of a method with a head; `train` tells clients that trained alone apart."""
        for line in self.lines:
            if line.base == method and line.head == head and (train is None or set(line.train) == set(train)):
                return line
        return None

    def best_on_test(self, method: str, head: str, test: str, field: Field = "rmse") -> Sample | None:
        """The error after the round that did best on this very test, as the paper reports it.

        Chosen on raw labels, seed by seed; `field` says which error of that round is wanted.
        """
        rounds = [
            h
            for h in self.record.results.history
            if (h.scenario, h.method, h.head, h.client) == (self.name, method, head, test) and h.rmse is not None
        ]
        values, chosen = {}, {}
        for seed in sorted({h.seed for h in rounds}):
            best = min((h for h in rounds if h.seed == seed), key=lambda h: (h.rmse, h.round))
            error = getattr(best, field)
            if error is not None:
                values[seed], chosen[seed] = float(error), best.round
        return Sample(values, chosen) if values else None


def settings(record: Record) -> list[Setting]:
    """All settings of a record, in the order of the experiment."""
    named = dict.fromkeys([*record.results.config.get("partition", {}), *(r.scenario for r in record.results.rows)])
    there = {row.scenario for row in record.results.rows}
    return [Setting(record, name) for name in named if name in there]


def is_baseline(line: Line) -> bool:
    return line.method in baselines


def _head(head: str | None) -> int:
    return -1 if head is None else HEADS.index(head)
