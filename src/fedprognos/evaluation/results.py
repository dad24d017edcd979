"""The results table: one row per scenario, method, training clients, test client, seed and way of selecting."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from fedprognos.errors import DataError

METHOD_ORDER = (
    *("constant", "last", "age", "ridge", "boosting"),
    *("local", "mean-of-locals", "fedavg", "fedprox", "single", "concat", "fedma", "central"),
)


OLD_NAMES = {"setting": "scenario", "unit": "measure"}
"""Fields of rows as version 0.1 wrote them."""


def _with_new_names(raw: Any) -> Any:
    return {OLD_NAMES.get(k, k): v for k, v in raw.items()} if isinstance(raw, dict) else raw


class Row(BaseModel):
    """One final result. Rounds of a federation are history, not rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: str
    method: str
    head: str | None
    train_clients: tuple[str, ...]
    test_client: str
    seed: int
    round: int | None
    selected_on: Literal["validation", "test", "last"]
    rmse: float
    rmse_capped: float | None
    mae: float
    r2: float | None
    bias: float
    nasa_score: float | None
    nasa_score_mean: float | None
    late_rate: float
    n_test: int
    n_units: int
    rmse_low: float | None
    rmse_high: float | None
    measure: str
    width: tuple[int, ...] | None
    parameters: int | None
    local_epochs: int | None
    bytes: int | None
    collapsed: bool = False
    coverage: float | None = None
    interval_width: float | None = None
    scored_on: Literal["test", "validation"] = "test"
    """Validation parts where sites of a deployed federation have too few test units to tell anything of them."""

    _renamed = model_validator(mode="before")(_with_new_names)

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes the row unique, in the order of the table."""
        base = self.method.removesuffix("+personal")
        order = METHOD_ORDER.index(base) if base in METHOD_ORDER else len(METHOD_ORDER)
        return (
            self.scenario,
            order,
            self.method,
            self.head or "",
            len(self.train_clients),
            self.train_clients,
            self.test_client,
            self.seed,
            self.selected_on,
        )


class HistoryRow(BaseModel):
    """One epoch of local training, or (without `epoch`) the federated model after a round.

    `client` is who trained, or whom the model was tested on; `validation_rmse` is on capped labels of what training
    kept out; `bytes` and `messages` count all traffic of the method so far.
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

    _renamed = model_validator(mode="before")(_with_new_names)


@dataclass(frozen=True)
class Summary:
    """Rows that differ in the seed only, with mean and spread."""

    scenario: str
    method: str
    head: str | None
    train_clients: tuple[str, ...]
    test_client: str
    selected_on: str
    seeds: int
    rmse: float
    rmse_spread: float
    rmse_capped: float | None
    rmse_capped_spread: float | None
    mae: float
    r2: float | None
    bias: float
    nasa_score_mean: float | None
    late_rate: float
    n_test: int
    measure: str
    parameters: int | None
    width: tuple[int, ...] | None
    bytes: int | None
    collapsed: int


@dataclass(frozen=True)
class Results:
    """Everything results.json holds."""

    experiment: str
    version: str
    config: dict[str, Any]
    rows: tuple[Row, ...]
    history: tuple[HistoryRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """The content of results.json; equal runs give equal bytes."""
        return {
            "experiment": self.experiment,
            "version": self.version,
            "config": self.config,
            "rows": [row.model_dump(mode="json") for row in sorted(self.rows, key=lambda r: r.key)],
            "history": [row.model_dump(mode="json") for row in self.history],
        }

    @staticmethod
    def load(path: str | Path) -> Results:
        """Read results.json."""
        path = Path(path)
        try:
            raw = json.loads(path.read_text("utf-8"))
            return Results(
                raw["experiment"],
                raw["version"],
                raw["config"],
                tuple(Row.model_validate(row) for row in raw["rows"]),
                tuple(HistoryRow.model_validate(row) for row in raw["history"]),
            )
        except FileNotFoundError:
            raise DataError(
                "no results here", where=str(path), hint="give a folder that `fedprognos run` wrote"
            ) from None
        except (ValueError, KeyError, ValidationError) as error:
            raise DataError(f"cannot be read: {error}", where=str(path), hint="run the experiment again") from None

    def summary(self) -> list[Summary]:
        """Mean and spread over seeds."""
        return summarise(self.rows)


def summarise(rows: Iterable[Row]) -> list[Summary]:
    """Group rows that differ in the seed only, in the table's order."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: r.key):
        groups[(row.scenario, row.method, row.head, row.train_clients, row.test_client, row.selected_on)].append(row)
    return [_summary(group) for group in groups.values()]


def _summary(rows: Sequence[Row]) -> Summary:
    first = rows[0]
    errors = np.array([row.rmse for row in rows])
    capped = [row.rmse_capped for row in rows if row.rmse_capped is not None]
    return Summary(
        scenario=first.scenario,
        method=first.method,
        head=first.head,
        train_clients=first.train_clients,
        test_client=first.test_client,
        selected_on=first.selected_on,
        seeds=len(rows),
        rmse=float(errors.mean()),
        rmse_spread=float(errors.std()),
        rmse_capped=float(np.mean(capped)) if capped else None,
        rmse_capped_spread=float(np.std(capped)) if capped else None,
        mae=float(np.mean([row.mae for row in rows])),
        r2=_mean(row.r2 for row in rows),
        bias=float(np.mean([row.bias for row in rows])),
        nasa_score_mean=_mean(row.nasa_score_mean for row in rows),
        late_rate=float(np.mean([row.late_rate for row in rows])),
        n_test=first.n_test,
        measure=first.measure,
        parameters=first.parameters,
        width=first.width,
        bytes=first.bytes,
        collapsed=sum(row.collapsed for row in rows),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
