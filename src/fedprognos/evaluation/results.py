"""Everything that results.json holds: rows, rounds, the experiment, and what its methods are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from fedprognos.errors import DataError
from fedprognos.evaluation.baselines import baselines
from fedprognos.evaluation.metrics import metrics
from fedprognos.evaluation.rows import HistoryRow, ResultRow
from fedprognos.evaluation.summary import EVERYONE, Summary, summarise
from fedprognos.files import read_json

Kind = Literal["baseline", "local", "federated", "central"]
LAST = 1_000_000
"""The order of methods that nothing is known of."""
OLD_KINDS: dict[str, Kind] = {"local": "local", "mean-of-locals": "local", "central": "central"}
"""Kinds of methods in files of version 0.1, which do not say it; the others were federated."""


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
    kind: Kind = "federated"


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
        """What a method is called; a variant such as `fedma+personal` is as its method."""
        found = self.methods.get(name) or self.methods.get(name.partition("+")[0])
        return found if found is not None else Method(label=name, order=LAST)

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
            Where it is missing or not what it should be.
        """
        path = Path(path)
        try:
            raw = read_json(path)
            rows = tuple(ResultRow.model_validate(row) for row in raw["rows"])
            history = tuple(HistoryRow.model_validate(row) for row in raw["history"])
            named = {name: Method.model_validate(one) for name, one in raw.get("methods", {}).items()}
            chosen = (raw.get("published", ""), raw.get("reason", ""))
            about = (raw["experiment"], raw["version"], raw["config"])
            return Results(*about, rows, history, named or _old_methods(rows), *chosen)
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


def _old_methods(rows: tuple[ResultRow, ...]) -> dict[str, Method]:
    """Methods as version 0.1 wrote them: in their order, without labels."""
    names = dict.fromkeys(row.method.partition("+")[0] for row in rows)
    return {
        name: Method(
            label=baselines[name].label if name in baselines else name,
            order=k,
            kind="baseline" if name in baselines else OLD_KINDS.get(name, "federated"),
        )
        for k, name in enumerate(names)
    }
