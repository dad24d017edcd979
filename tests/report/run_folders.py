"""Run folders written by hand: small, with values one can check, as many clients, seeds and scenarios as asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from fedprognos.evaluation import HistoryRow, Points, ResultRow, Results, score
from fedprognos.experiment.conclusion import methods_of

COLUMNS = (
    *("scenario", "method", "head", "train_clients", "test_client"),
    *("seed", "unit", "position", "truth", "prediction", "scored"),
)
CAP = 60.0
NOISE = {"constant": 30.0, "ridge": 14.0, "local": 9.0, "central": 5.0}


def write_run(
    folder: Path,
    *,
    task: str = "rul",
    clients: Sequence[str] = ("north", "south"),
    scenarios: Sequence[str] = ("all",),
    seeds: int = 2,
    shared_test: bool = False,
    noise: dict[str, float] | None = None,
    unit: str = "engine-{k}",
    units: int = 8,
    heads: Sequence[str] = ("mean",),
) -> Path:
    """A finished run: baselines and `local` on own data, baselines and everything else on all data."""
    maker = _Maker(task, tuple(clients), seeds, shared_test, noise or NOISE, unit, units, tuple(heads))
    rows: list[ResultRow] = []
    for scenario in scenarios:
        found, lines = maker.scenario(scenario)
        rows += found
        for name in ("predictions", "fleets"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        pd.DataFrame(lines, columns=list(COLUMNS)).to_csv(
            folder / "predictions" / f"{quote(scenario, safe='')}.csv", index=False
        )
        (folder / "fleets" / f"{quote(scenario, safe='')}.json").write_text(json.dumps(maker.fleet_summary()), "utf-8")
    config: dict[str, Any] = {
        "title": "A hand-made run",
        "data": {"kind": "synthetic-engines"},
        "partition": {s: {"by": "column", "column": "site", "edges": None} for s in scenarios},
        "recipe": {"cap": CAP if task == "rul" else None},
        "federation": {"heads": list(heads)},
        "evaluation": {"bootstrap": 50, "seeds": seeds},
    }
    history = [
        HistoryRow(
            scenario=s,
            method="central",
            seed=k,
            client="pooled",
            round=0,
            epoch=e,
            train_rmse=9.0 / e,
            validation_rmse=10.0 / e,
        )
        for s in scenarios
        for k in range(seeds)
        for e in range(1, 6)
    ]
    results = Results("hand-made", "0.1.0", config, tuple(rows), tuple(history), methods_of(rows))
    (folder / "results.json").write_text(json.dumps(results.as_dict()), "utf-8")
    provenance = {"finished": "2026-01-02T03:04:05+00:00", "seconds": 12.3, "versions": {"numpy": "2.0"}}
    (folder / "provenance.json").write_text(json.dumps(provenance), "utf-8")
    return folder


class _Maker:
    def __init__(
        self,
        task: str,
        clients: tuple[str, ...],
        seeds: int,
        shared_test: bool,
        noise: dict[str, float],
        unit: str,
        units: int,
        heads: tuple[str, ...],
    ) -> None:
        self.task, self.clients, self.seeds, self.shared_test = task, clients, seeds, shared_test
        self.noise, self.unit, self.units, self.heads = noise, unit, units, heads
        self.random = np.random.default_rng(7)

    def truth(self, test: str) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Units, positions and labels of a test: one point a unit for rul, five for soh."""
        offset = 3 * (["all", *self.clients].index(test))
        if self.task == "rul":
            names = [self.unit.format(k=k) for k in range(self.units)]
            return names, np.full(self.units, 40.0), np.linspace(5, 100, self.units) + offset
        names = [self.unit.format(k=k) for k in range(self.units) for _ in range(5)]
        positions = np.tile(np.arange(71.0, 76.0), self.units)
        return names, positions, 2 - positions / 100 + offset / 100

    def scenario(self, scenario: str) -> tuple[list[ResultRow], list[tuple[Any, ...]]]:
        rows: list[ResultRow] = []
        lines: list[tuple[Any, ...]] = []
        tests = ("all",) if self.shared_test else self.clients
        scale = 1.0 if self.task == "rul" else 0.005
        for method, noise in self.noise.items():
            baseline = method in ("constant", "last", "age", "ridge", "boosting")
            own = baseline or method.startswith("local")
            groups = [(c,) for c in self.clients] if own else []
            groups += (
                [self.clients] if not method.startswith("local") and (len(self.clients) > 1 or not baseline) else []
            )
            heads = ("",) if baseline else ("personal",) if method.endswith("+personal") else self.heads
            for seed, head in product(range(1 if baseline else self.seeds), heads):
                for group in groups:
                    mine = [t for t in tests if self.shared_test or t in group]
                    parts = []
                    for test in mine:
                        names, positions, truth = self.truth(test)
                        worse = noise * (1 + 0.3 * heads.index(head))
                        guess = truth + scale * worse * self.random.standard_normal(len(truth))
                        guess = np.minimum(guess, CAP) if self.task == "rul" else guess
                        parts.append((test, np.array([f"{test}/{name}" for name in names]), truth, guess))
                        same = (scenario, method, head, "+".join(group), test, seed)
                        points = zip(names, positions, truth, guess, strict=True)
                        lines += [(*same, *point, True) for point in points]
                        if seed == 0 and self.task == "rul":
                            lines += [
                                (*same, n, p, t + 40 - p, g + 40 - p, False)
                                for n, t, g in zip(names[:3], truth, guess, strict=False)
                                for p in (20.0, 30.0, 40.0)
                            ]
                    if len(mine) > 1:
                        parts.append(("all", *(np.concatenate([p[k] for p in parts]) for k in (1, 2, 3))))
                    rows += [self._row(scenario, method, head, group, seed, part) for part in parts]
        return rows, lines

    def _row(
        self, scenario: str, method: str, head: str, group: tuple[str, ...], seed: int, part: tuple[Any, ...]
    ) -> ResultRow:
        test, names, truth, guess = part
        index = np.unique(names, return_inverse=True)[1]
        cap = CAP if self.task == "rul" else None
        scores = score(Points(truth, guess, index, task=self.task, cap=cap), bootstrap=50)  # type: ignore[arg-type]
        facts = dict.fromkeys(("head", "round", "width", "parameters", "local_epochs", "bytes"))
        if head:
            facts |= {"head": head, "parameters": 1234}
        return ResultRow.model_validate(
            {
                **facts,
                **scores,
                "scenario": scenario,
                "method": method,
                "train_clients": group,
                "test_client": test,
                "seed": seed,
                "selected_on": "last",
                "measure": "cycles" if self.task == "rul" else "Ah",
            }
        )

    def fleet_summary(self) -> dict[str, Any]:
        soh = self.task == "soh"
        names = [self.unit.format(k=k) for k in range(3)]
        facts = {"units": 6, "rows": 300, "failed": 6, "lifespans": [80.0, 90.0, 130.0]}
        tests = ("all",) if self.shared_test else self.clients
        cycle = list(range(1, 71))
        sensors = {f"sensor_{k}": [round(0.01 * k * c, 3) for c in cycle] for k in range(9)}
        part = {"train": cycle, "test": list(range(71, 76))}
        return {
            "schema": {
                "task": self.task,
                "sensors": list(sensors),
                "settings": [],
                "time": "cycle",
                "time_measure": "s" if soh else "cycles",
                "target": "capacity" if soh else "rul",
                "target_measure": "Ah" if soh else "cycles",
            },
            "clients": dict.fromkeys(self.clients, facts),
            "tests": {t: {**facts, "units": self.units} for t in tests},
            "series": []
            if soh
            else [
                {"client": c, "unit": n, "position": cycle, "channels": sensors} for c in self.clients for n in names
            ],
            "cycles": [
                {"client": c, "unit": names[0], "cycle": k, "time": cycle, "channels": {"voltage": sensors["sensor_1"]}}
                for c in self.clients
                for k in (1, 30, 60)
            ]
            if soh
            else [],
            "degradation": [
                {"client": c, "unit": n, "part": p, "position": x, "value": [2 - v / 100 for v in x]}
                for c in self.clients
                for n in names
                for p, x in part.items()
                if soh or p == "train"
            ],
        }


def coloured(value: Any, key: str = "") -> Any:
    """Names of colours replaced by one plotly knows, as the page does."""
    if isinstance(value, dict):
        return {k: coloured(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [coloured(v, key) for v in value]
    return "#123456" if key.endswith(("color", "colorscale")) and isinstance(value, str) else value
