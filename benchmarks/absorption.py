"""How fast absorption is: the elimination against a plain listing, and the sums against the forward pass.

The listing (tests/matching/plain_absorb.py) follows the mathematics line by line in NumPy. Both run in the same process
on one thread and must drop the same neurons in the same order, or the benchmark fails. Run from the root of the
repository:

    python benchmarks/absorption.py [--quick]

Prints tables and writes build/benchmarks/absorption.json.
"""
# ruff: noqa: E402 - the number of threads has to be set before NumPy is loaded

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "matching"))

from plain_absorb import plain_absorb
from scipy.linalg import block_diag

from fedprognos.matching import OutputSums, RecurrentWeights, absorb

GATES = {"gru": 3, "lstm": 4}
CLIENT = 64
OUTPUT = Path("build/benchmarks/absorption.json")


def problem(neurons: int, cell: str, seed: int = 0) -> tuple[dict[str, Any], OutputSums]:
    """A layer of clients of 64 neurons each, and sums of outputs that are correlated as those of one task are."""
    rng = np.random.default_rng(seed)
    rows, rank, gates = 6 * neurons, neurons // 2, GATES[cell]
    factors = rng.normal(size=(rows, rank)) * np.linspace(1.5, 0.05, rank)
    h = np.tanh(factors @ rng.normal(size=(rank, neurons)) / 3 + 0.1 * rng.normal(size=(rows, neurons)))
    y = h @ rng.normal(size=neurons) / np.sqrt(neurons) + 0.3 * rng.normal(size=rows)
    blocks = rng.normal(size=(gates, neurons // CLIENT, CLIENT, CLIENT)) / np.sqrt(CLIENT)
    layer = {
        "weight_ih": rng.normal(size=(gates * neurons, 14)),
        "weight_hh": np.concatenate([block_diag(*gate) for gate in blocks]),
        "bias_ih": rng.normal(size=gates * neurons),
        "bias_hh": rng.normal(size=gates * neurons),
    }
    return layer, OutputSums.from_outputs(h.reshape(-1, 6, neurons), y.reshape(-1, 6))


def timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Best CPU time in seconds over the repeats, and the last result."""
    best, result = np.inf, None
    for _ in range(repeats):
        begun = time.process_time()
        result = function()
        best = min(best, time.process_time() - begun)
    return float(best), result


def eliminations(shapes: list[tuple[int, int, str, bool]]) -> list[dict[str, Any]]:
    """Time from N neurons to K; where asked, beside the listing."""
    rows = []
    for neurons, width, cell, beside in shapes:
        layer, sums = problem(neurons, cell)
        fast, found = timed(partial(absorb, [RecurrentWeights(**layer)], [sums], width=width), 3 if beside else 1)
        row: dict[str, Any] = {"neurons": neurons, "width": width, "cell": cell, "absorb_in_s": fast}
        row |= {"plain_in_s": None, "ratio": None}
        if beside:
            slow, expected = timed(partial(plain_absorb, [layer], [sums], width=[width]), 1)
            if [a.neuron for a in found.absorbed[0]] != [neuron for neuron, _, _ in expected[2][0]]:
                raise SystemExit(f"N={neurons} {cell}: other neurons were dropped")
            row |= {"plain_in_s": slow, "ratio": slow / fast}
        rows.append(row)
    return rows


def forward(count: int, steps: int, neurons: int) -> list[dict[str, Any]]:
    """The sums of a fleet's rows beside the forward pass that makes the outputs."""
    import torch

    torch.set_num_threads(1)
    body = torch.nn.GRU(14, neurons, batch_first=True)
    x = torch.randn(count, steps, 14)
    y = np.random.default_rng(0).normal(size=(count, steps))
    with torch.no_grad():
        alone, (outputs, _) = timed(lambda: body(x), 3)
    sums, _ = timed(lambda: OutputSums.from_outputs(outputs.numpy(), y), 3)
    return [{"rows": count * steps, "neurons": neurons, "forward_in_s": alone, "with_sums": (alone + sums) / alone}]


def show(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """One table."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(table)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: a few seconds")
    quick = parser.parse_args().quick
    full = [(512, 64, "gru", True), (512, 64, "lstm", True), (2048, 128, "gru", False), (2048, 128, "lstm", False)]
    results = {
        "eliminations": eliminations([(128, 64, "gru", True), (192, 96, "lstm", True)] if quick else full),
        "forward": forward(25, 50, 192) if quick else forward(249, 245, 192),
        "quick": quick,
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "processor": platform.machine()},
    }
    console = Console(width=120)
    show(console, "absorb from N neurons to K, against a plain listing", results["eliminations"])
    show(console, "forward pass with the sums, against the forward pass alone", results["forward"])
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {OUTPUT}")


if __name__ == "__main__":
    main()
