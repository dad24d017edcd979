"""Records with a few rows whose means, spreads and differences can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedprognos.evaluation import HistoryRow, ResultRow, Results
from fedprognos.experiment.conclusion import methods_of
from studies.record import Record

BATTERIES = ("B0006", "B0007", "B0018")
AIRLINES = ("life-200-350", "life-over-350", "life-under-200")
VERSIONS = {"python": "3.11.7", "fedprognos": "0.1.0", "torch": "2.13.0"}


def row(method: str, errors: Sequence[float], test: str = "all", **more: Any) -> list[ResultRow]:
    """One row a seed."""
    facts = {
        "scenario": "all",
        "head": "mean",
        "train_clients": BATTERIES,
        "round": 1,
        "selected_on": "last",
        "mae": 0.0,
        "bias": 0.0,
        "late_rate": 0.5,
        "n_test": 10,
        "n_units": 1,
        "measure": "Ah",
        "width": (8,),
        "parameters": 100,
        "local_epochs": 5,
        "bytes": 4000,
    }
    given = {**facts, **more, "method": method, "test_client": test}
    return [ResultRow.model_validate({**given, "seed": seed, "rmse": error}) for seed, error in enumerate(errors)]


def course(method: str, errors: Sequence[Sequence[float]], test: str, **more: Any) -> list[HistoryRow]:
    """Rounds of every seed: `errors[seed][round - 1]`."""
    shared = {"scenario": "all", "head": "mean", "client": test, "width": (8,), "bytes": 1000, **more, "method": method}
    return [
        HistoryRow.model_validate({**shared, "seed": seed, "round": number, "rmse": error, "validation_rmse": 1.0})
        for seed, rounds in enumerate(errors)
        for number, error in enumerate(rounds, start=1)
    ]


def record(
    preset: str, rows: Sequence[ResultRow], history: Sequence[HistoryRow] = (), heads: Sequence[str] = ("mean",)
) -> Record:
    """A record of a preset with these rows."""
    turbofan = preset.startswith("turbofan")
    config: dict[str, Any] = {
        "title": preset,
        "data": {"kind": "cmapss" if turbofan else "nasa-battery"},
        "partition": {name: {"by": "unit"} for name in dict.fromkeys(r.scenario for r in rows)},
        "recipe": {
            **({"window": 50, "stride": 4, "conditions": {}, "cap": 130.0} if turbofan else {"cap": None}),
            **{"cycle": "grid", "grid_points": 171, "grid_end_in_s": 2394.0},
        },
        "model": {"cell": "lstm", "widths": [8], "input_width": None},
        "train": {"epochs": 5, "patience": None, "validation_fraction": 0.0},
        "federation": {
            "heads": list(heads),
            "fedavg": {"rounds": 3, "epochs": 2},
            "fedma": {"rounds": 3, "epochs": None},
        },
        "evaluation": {"seeds": len({r.seed for r in rows}), "bootstrap": 0},
    }
    results = Results(preset, "0.1.0", config, tuple(rows), tuple(history), methods_of(rows))
    return Record(results, VERSIONS, {})


def battery_record(preset: str = "battery-paper") -> Record:
    """Two seeds on B0006 alone, by FedAvg and by FedMA."""
    rows = [
        *row("ridge", [0.03], "B0006", head=None, train_clients=("B0006",), round=None, width=None, bytes=None),
        *row("local", [0.04, 0.06], "B0006", train_clients=("B0006",), bytes=0),
        *row("local", [0.02, 0.04], "B0007", train_clients=("B0007",), bytes=0),
        *row("local", [0.02, 0.02], "B0018", train_clients=("B0018",), bytes=0),
    ]
    for test in (*BATTERIES, "all"):
        rows += row("fedavg", [0.05, 0.03], test, round=3, bytes=9000)
        rows += row("fedma", [0.02, 0.03], test, round=2, width=(12,), parameters=300, bytes=5_000_000)
        rows += row("central", [0.03, 0.05], test)
    history = [
        *course("fedavg", [[0.06, 0.04, 0.05], [0.02, 0.04, 0.03]], "B0006"),
        *course("fedma", [[0.03, 0.02, 0.01], [0.05, 0.03, 0.03]], "B0006"),
    ]
    return record(preset, rows, history)


def turbofan_record(preset: str = "turbofan-tuned", seeds: int = 5) -> Record:
    """Heterogeneous airlines with the exact head; FedMA lies 1 % above Central on raw labels, 1 % below capped."""
    shared = {"scenario": "heterogeneous", "head": "exact", "measure": "cycles"}
    steps = [0.1 * k for k in range(seeds)]
    rows = [
        *row("local", [40 + s for s in steps], train_clients=("life-under-200",), rmse_capped=30.0, **shared),
        *row("local", [25 + s for s in steps], train_clients=("life-200-350",), rmse_capped=16.0, **shared),
        *row("local", [45 + s for s in steps], train_clients=("life-over-350",), rmse_capped=40.0, **shared),
        *row("central", [20.0] * seeds, train_clients=AIRLINES, rmse_capped=14.0, **shared),
        *row("concat", [20.0 + s for s in steps], train_clients=AIRLINES, rmse_capped=13.0, **shared),
        *row("fedma", [20.2] * seeds, train_clients=AIRLINES, rmse_capped=13.86, **shared),
    ]
    return record(preset, rows, heads=("exact",))
