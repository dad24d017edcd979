"""What reading whole lives costs: an epoch of them against an epoch of windows, the time to get as far as windows get,
and training against a plain torch loop over the same batches.

All in one process on one thread. Engines are those of C-MAPSS FD004 where it is there, made-up ones otherwise. Run from
the root of the repository:

    python benchmarks/lives.py [--quick] [--plain]

Prints a table and writes build/benchmarks/lives.json.
"""
# ruff: noqa: E402 - the number of threads has to be set before NumPy is loaded

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from fedprognos.errors import DataNotFoundError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import Recipe, WindowSet, build_windows, hold_out, recipe_for
from fedprognos.networks import Epoch, Network, NetworkSpec, fit
from fedprognos.networks.batches import LifeBatches
from fedprognos.networks.model_options import Training

OUTPUT = Path("build/benchmarks/lives.json")


def data_of(preset: str, **changes: Any) -> tuple[Recipe, WindowSet, Training]:
    """Recipe, points of all training units, and training options of a preset."""
    try:
        fleet, _ = load_fleets(preset)
        _, experiment, _ = config.load(preset)
    except DataNotFoundError:
        fleet, _ = load_fleets("demo")
        _, experiment, _ = config.load(preset)
        changes = {**changes, "drop": (), "sensors": None, "conditions": {}}
    options = experiment.recipe.model_copy(update=changes)
    recipe = recipe_for(options, {"all": fleet})
    return recipe, build_windows(recipe, fleet), experiment.train.training()


def spec_of(recipe: Recipe) -> NetworkSpec:
    return NetworkSpec(inputs=recipe.channels, widths=(64,), cell="gru")


def seconds_an_epoch(recipe: Recipe, points: WindowSet, training: Training, epochs: int = 3) -> float:
    """Processor time of an epoch, the first one left out."""
    marks: list[float] = []
    plan = training.model_copy(update={"epochs": epochs + 1, "steps": None})
    network = Network.seeded(spec_of(recipe), 0)
    fit(network, points, None, recipe, plan, seed=0, device="cpu", on_epoch=lambda _: marks.append(time.process_time()))
    return float(np.median(np.diff(marks)))


def course(recipe: Recipe, points: WindowSet, training: Training, least: int) -> list[tuple[float, float]]:
    """Processor time since the beginning and validation error after each epoch, on every moment from row `least` on."""
    train, held = hold_out(points, 0.2, 1, recipe.task)
    assert held is not None
    held = held.select(held.position >= least)
    errors: list[tuple[float, float]] = []
    mark = time.process_time()

    def note(epoch: Epoch) -> None:
        errors.append((time.process_time() - mark, epoch.validation_rmse or np.inf))

    plan = training.model_copy(update={"patience": None})
    fit(Network.seeded(spec_of(recipe), 0), train, held, recipe, plan, seed=0, device="cpu", on_epoch=note)
    return errors


class PlainNetwork(nn.Module):
    """What one would write by hand."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.body = nn.GRU(inputs, 64, batch_first=True)
        self.head = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.head(self.body(x)[0]).squeeze(-1)
        return values


def plain_seconds(recipe: Recipe, points: WindowSet, training: Training, epochs: int = 3) -> float:
    """Processor time of an epoch of a hand-written loop over the very batches that ours takes."""
    torch.manual_seed(0)
    network = PlainNetwork(recipe.channels)
    optimizer = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    data = LifeBatches(Network.seeded(spec_of(recipe), 0).module(), points, recipe, training, 0)
    order, marks = np.random.default_rng(0), [time.process_time()]
    for _ in range(epochs + 1):
        by_length = np.argsort(data._lengths * order.uniform(0.9, 1.1, len(data._lengths)))
        batches = np.array_split(by_length, data.per_epoch)
        for k in order.permutation(len(batches)):
            x, y, weights = data._padded([data._shown(int(u), order) for u in batches[k]])
            x = x + training.noise * torch.randn(x.shape)
            loss = (weights * (network(x) - y).square()).sum() / weights.sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
        marks.append(time.process_time())
    return float(np.median(np.diff(marks)[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the time to get as far as windows get")
    parser.add_argument("--plain", action="store_true", help="training against the plain loop, and nothing else")
    options = parser.parse_args()
    quick = options.quick
    torch.set_num_threads(1)
    console, measured = Console(), {}
    life = data_of("turbofan-life")
    if options.plain:
        ours, plain = seconds_an_epoch(*life), plain_seconds(*life)
        console.print(f"an epoch of lives: {ours:.2f} s, in a plain torch loop {plain:.2f} s, ratio {ours / plain:.2f}")
        return
    dense = data_of("turbofan-tuned", stride=1)
    measured["epoch_of_windows_in_s"] = seconds_an_epoch(*dense, epochs=1 if quick else 2)
    measured["epoch_of_lives_in_s"] = seconds_an_epoch(*life)
    unwarped = life[2].model_copy(update={"warp": 0.0})
    measured["epoch_of_lives_as_they_are_in_s"] = seconds_an_epoch(life[0], life[1], unwarped)
    measured["plain_epoch_of_lives_in_s"] = plain_seconds(*life)
    measured["windows_over_lives"] = measured["epoch_of_windows_in_s"] / measured["epoch_of_lives_as_they_are_in_s"]
    measured["windows_over_warped_lives"] = measured["epoch_of_windows_in_s"] / measured["epoch_of_lives_in_s"]
    measured["plain_over_ours"] = measured["plain_epoch_of_lives_in_s"] / measured["epoch_of_lives_in_s"]
    table = Table("what", "measured", "bar", title="Whole lives, GRU of 64 neurons")
    table.add_row("an epoch of windows of 50 / an epoch of lives", f"{measured['windows_over_lives']:.1f}", ">= 10")
    table.add_row("the same, lives shown at other paces", f"{measured['windows_over_warped_lives']:.1f}", "")
    table.add_row("a plain torch loop / ours, same batches", f"{measured['plain_over_ours']:.2f}", ">= 2")
    if not quick:
        windows, lives = course(*data_of("turbofan-tuned"), least=50), course(*life, least=50)
        spent, error = windows[-1]
        reached = next((seconds for seconds, rmse in lives if rmse <= error), np.inf)
        measured |= {"windows_in_s": spent, "windows_rmse": error, "lives_in_s": reached, "lives_rmse": lives[-1][1]}
        table.add_row(
            f"time to reach {error:.1f} on engines kept out, lives / windows", f"{reached / spent:.2f}", "<= 0.33"
        )
        table.add_row("error on engines kept out in the end, lives", f"{lives[-1][1]:.1f}", "")
    console.print(table)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(measured, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
