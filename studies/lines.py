"""Lines of a table: a method with a head on one choice of training data, with its errors test by test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fedprognos.evaluation import EVERYONE, OWN, SHARED, Method, Summary
from fedprognos.experiment.conclusion import all_methods
from studies.record import Record
from studies.samples import Sample

HEADS = ("mean", "exact", "personal")
Field = Literal["rmse", "rmse_capped"]


@dataclass(frozen=True)
class Column:
    """A column of errors: whom was tested, and on which labels."""

    title: str
    test: str
    field: Field


@dataclass(frozen=True, eq=False)
class Line:
    """One line; `views` holds its summary for every test."""

    views: Mapping[str, Summary]

    @property
    def whole(self) -> Summary:
        """What it is on all tests together."""
        return next(iter(self.views.values()))

    @property
    def name(self) -> str:
        """The method without its variant."""
        return self.whole.method.partition("+")[0]

    @property
    def method(self) -> Method:
        return all_methods()[self.name]

    @property
    def head(self) -> str | None:
        return self.whole.head

    @property
    def own(self) -> bool:
        """Whether every client trained alone."""
        return self.whole.data not in (SHARED, "")

    @property
    def client(self) -> str:
        """The client that trained alone, where its line holds no others."""
        return self.whole.data if self.own and self.whole.data != OWN else ""

    def sample(self, column: Column) -> Sample | None:
        """The errors of one column, over seeds."""
        rows = self.views[column.test].rows if column.test in self.views else ()
        errors = {row.seed: row.scores.get(column.field) for row in rows}
        by_seed = {seed: error for seed, error in errors.items() if error is not None}
        return Sample(by_seed, {row.seed: row.round for row in rows if row.round is not None}) if by_seed else None

    def fact(self, name: str) -> list[float]:
        """A number about the models, all of them."""
        values = [getattr(row, name) for row in self.whole.parts]
        return [float(sum(v)) if isinstance(v, tuple) else float(v) for v in values if v is not None]


class Comparison:
    """All lines of one scenario of a record."""

    def __init__(self, record: Record, name: str) -> None:
        self.record, self.name = record, name
        self.rows = tuple(row for row in record.results.rows if row.scenario == name)
        self.clients = tuple(sorted({client for row in self.rows for client in row.train_clients}))

    @property
    def shared_test(self) -> bool:
        return {row.test_client for row in self.rows} == {EVERYONE}

    @property
    def measure(self) -> str:
        return self.rows[0].measure

    @property
    def digits(self) -> int:
        """Decimals of an error: hundredths of cycles, tenths of mAh."""
        return 4 if self.measure == "Ah" else 2

    @property
    def main_head(self) -> str:
        """The head its experiment publishes; where every model is tested on one fleet nobody has a personal one."""
        return next(head for head in self.record.heads if head != "personal" or not self.shared_test)

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
        groups: dict[tuple[str, str | None, str], dict[str, Summary]] = {}
        for test in dict.fromkeys([EVERYONE, *(column.test for column in self.columns)]):
            for entry in self.record.results.summary(self.name, test, each_client=True):
                if entry.selected_on != "test" and (test == EVERYONE or entry.rows[0].test_client == test):
                    groups.setdefault((entry.method, entry.head, entry.data), {})[test] = entry
        compared = [Line(views) for views in groups.values()]
        return sorted(compared, key=lambda line: (_place(line.head), not line.own, line.method.order))

    def line(self, method: str, head: str | None, client: str | None = None) -> Line | None:
        """The line of a method with a head; `client` tells clients that trained alone apart."""
        for line in self.lines:
            if line.name == method and line.head == head and client in (None, line.client):
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


def comparisons(record: Record) -> list[Comparison]:
    """All scenarios of a record, in the order of the experiment."""
    there = dict.fromkeys(row.scenario for row in record.results.rows)
    named = dict.fromkeys([*record.results.config.get("partition", {}), *there])
    return [Comparison(record, name) for name in named if name in there]


def comparison(record: Record | None, scenario: str) -> Comparison | None:
    """One scenario of a record, where it is there."""
    compared: Sequence[Comparison] = comparisons(record) if record is not None else ()
    return next((scenario_lines for scenario_lines in compared if scenario_lines.name == scenario), None)


def label(method: str) -> str:
    """A method's name for people."""
    return all_methods()[method].label


def _place(head: str | None) -> int:
    return -1 if head is None else HEADS.index(head)
