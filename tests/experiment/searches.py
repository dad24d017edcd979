"""Searches small enough for tests: two plants, a few engines, networks of a handful of neurons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedprognos.experiment.tuning import Search, tune

SMALL = (
    "data.sites=2",
    "data.units_per_site=4",
    "data.test_units_per_site=2",
    "recipe.stride=8",
    "train.epochs=2",
    "train.batch_size=64",
    "federation.fedavg.rounds=3",
)
SPACE = (
    "recipe.window=[6, 12]",
    "layers=[1]",
    "neurons=[3, 5]",
    "train.learning_rate=[0.001, 0.02]",
    "federation.fedavg.epochs=[1, 2]",
)


def small(out: Path, trials: int, **more: Any) -> Search:
    options: dict[str, Any] = {"source": "plants", "method": "fedavg", "overrides": SMALL, "space": SPACE, "workers": 1}
    return tune(**{**options, **more}, trials=trials, out=out)


def arguments(out: Path, trials: int, workers: int = 1) -> list[str]:
    """The same search as words of a command."""
    words = [
        "tune",
        "plants",
        "--method",
        "fedavg",
        "--trials",
        str(trials),
        "--out",
        str(out),
        "--workers",
        str(workers),
    ]
    for change in SMALL:
        words += ["--set", change]
    for choice in SPACE:
        words += ["--space", choice]
    return words
