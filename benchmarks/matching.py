"""How fast the matcher is, how it grows with the number of clients, and what memory it needs.

The baseline is a sound implementation of the same algorithm that prices one client neuron at a time with one
vectorised expression, offers a new column for every neuron, and uses the same solver. Both run in the same process
and must find the same partition, or the benchmark fails. Run from the root of the repository:

    python benchmarks/matching.py [--quick]

Prints tables and writes build/benchmarks/matching.json.
"""
# ruff: noqa: E402 - the number of threads has to be set before NumPy is loaded

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import json
import platform
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedprognos.matching import match
from fedprognos.matching.match.bbp_map import solver_named

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
SWEEPS = 5
OUTPUT = Path("build/benchmarks/matching.json")


def clients_with_truth(count: int, width: int, dimensions: int = 60, seed: int = 0) -> dict[str, Floats]:
    """Three quarters of each client's neurons are shared by all, a quarter is its own; all noisy and shuffled."""
    rng = np.random.default_rng(seed)
    scale = 1 / np.sqrt(width)
    shared = rng.normal(0, scale, (3 * width // 4, dimensions))
    clients = {}
    for j in range(count):
        own = rng.normal(0, scale, (width - len(shared), dimensions))
        neurons = np.vstack([shared, own])
        clients[f"client-{j:04d}"] = rng.permutation(neurons + rng.normal(0, 0.3 * scale, neurons.shape))
    return clients


def per_row_matching(clients: dict[str, Floats], *, sigma: float, sigma0: float, solver: str) -> dict[str, Indices]:
    """PFNM with one vectorised expression for each client neuron; clients are of equal width."""
    names, solve = sorted(clients), solver_named(solver)
    J, s, p = len(names), 1 / sigma, 1 / sigma0
    first = clients[names[0]]
    sums, counts = s * first, np.ones(len(first), np.intp)
    places = {names[0]: np.arange(len(first))}

    def assign(name: str) -> None:
        nonlocal sums, counts
        weights = clients[name]
        existing, width = len(counts), len(weights)
        precisions = (p + counts * s)[:, None]
        before = sums**2 / precisions
        popular = np.minimum(counts, J - 1)
        odds = np.log(popular / (J - popular))
        opening = 2 * np.log(1 / J) - 2 * np.log(np.arange(1, width + 1))
        gain = np.empty((width, existing + width))
        for row, w in enumerate(weights):
            gain[row, :existing] = ((w * s + sums) ** 2 / (s + precisions) - before).sum(axis=1) + odds
            gain[row, existing:] = ((w * s) ** 2 / (p + s)).sum() + opening
        columns = solve(-gain)
        new = columns >= existing
        columns[new] = existing + np.arange(np.count_nonzero(new))
        sums = np.vstack([sums, np.zeros((np.count_nonzero(new), sums.shape[1]))])
        counts = np.concatenate([counts, np.zeros(np.count_nonzero(new), np.intp)])
        sums[columns] += s * weights
        counts[columns] += 1
        places[name] = columns

    for name in names[1:]:
        assign(name)
    order = np.random.default_rng(0)
    for _ in range(SWEEPS):
        start = relabelled(places, names)
        for j in order.permutation(J):
            sums[places[names[j]]] -= s * clients[names[j]]
            counts[places[names[j]]] -= 1
            kept = counts > 0
            renumbered = np.cumsum(kept) - 1
            sums, counts = sums[kept], counts[kept]
            for other in names:
                if other != names[j]:
                    places[other] = renumbered[places[other]]
            assign(names[j])
        if all(np.array_equal(a, b) for a, b in zip(start, relabelled(places, names), strict=True)):
            break
    return dict(zip(names, relabelled(places, names), strict=True))


def relabelled(places: dict[str, Indices], names: list[str]) -> list[Indices]:
    """Global neurons numbered by first use, as :func:`match` does."""
    label: dict[int, int] = {}
    return [np.array([label.setdefault(int(i), len(label)) for i in places[name]]) for name in names]


def timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Best CPU time in seconds over the repeats, and the last result. Everything runs on one thread."""
    best, result = np.inf, None
    for _ in range(repeats):
        begun = time.process_time()
        result = function()
        best = min(best, time.process_time() - begun)
    return float(best), result


def ratios(shapes: list[tuple[int, int, float | None]]) -> list[dict[str, Any]]:
    """The matcher against the baseline, for each solver; fails unless the partitions are the same.

    Variances are PFNM's usual 1, under which hardly anything is ever new, or a multiple of the clients' own, under
    which the model grows and the assignment problems themselves take most of the time.
    """
    rows = []
    for count, width, multiple in shapes:
        clients = clients_with_truth(count, width)
        variance = float(np.var(np.vstack(list(clients.values()))))
        for solver in ("scipy", "lapx"):
            variances = (1.0, 1.0) if multiple is None else (multiple * variance, variance)
            same: dict[str, Any] = dict(zip(("sigma", "sigma0", "solver"), (*variances, solver), strict=True))
            slow, expected = timed(partial(per_row_matching, clients, **same), 2)
            fast, found = timed(partial(match, clients, cost="pfnm", estimate=False, sweeps=SWEEPS, **same), 5)
            if not all(np.array_equal(expected[name], found.assignments[name]) for name in clients):
                raise SystemExit(f"J={count} L={width} {solver}: the partitions differ")
            rows.append(
                {
                    "clients": count,
                    "width": width,
                    "variances": "1" if multiple is None else f"{multiple:g} pooled",
                    "size": found.size,
                    "sweeps": found.diagnostics.sweeps,
                    "solver": solver,
                    "per_row_in_s": slow,
                    "match_in_s": fast,
                    "ratio": slow / fast,
                }
            )
    return rows


def growth(counts: list[int], width: int = 64) -> list[dict[str, Any]]:
    """Time against the number of clients, with L' held at the width by the cap, and no early end."""
    rows = []
    for count in counts:
        clients = clients_with_truth(count, width)
        seconds, found = timed(partial(match, clients, cap=width, sweeps=2), 2 if count < 1000 else 1)
        passes = 1 + found.diagnostics.sweeps
        rows.append(
            {
                "clients": count,
                "width": width,
                "size": found.size,
                "passes": passes,
                "seconds": seconds,
                "ms_per_client_and_pass": 1000 * seconds / (count * passes),
            }
        )
    return rows


def memory(shapes: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Peak memory beyond the inputs, in units of L' (D + L_j) numbers of 8 bytes; the result is counted apart."""
    rows = []
    for count, width, cap in shapes:
        clients = clients_with_truth(count, width)
        tracemalloc.start()
        found = match(clients, cap=cap, sweeps=2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        result = sum(a.nbytes for a in found.assignments.values()) + found.means.nbytes + found.counts.nbytes
        unit = 8 * found.size * (60 + width)
        rows.append(
            {
                "clients": count,
                "width": width,
                "size": found.size,
                "inputs_in_MB": sum(w.nbytes for w in clients.values()) / 1e6,
                "result_in_MB": result / 1e6,
                "peak_in_MB": peak / 1e6,
                "units": (peak - result) / unit,
            }
        )
    return rows


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
    results = {
        "ratios": ratios([(4, 64, None)] if quick else [(10, 256, None), (16, 512, None), (10, 256, 0.5)]),
        "growth": growth([10, 30, 100] if quick else [10, 100, 1000]),
        "memory": memory([(10, 64, 64), (100, 64, 64)] if quick else [(10, 256, 400), (100, 256, 400), (1000, 64, 64)]),
        "quick": quick,
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "processor": platform.machine()},
    }
    console = Console(width=120)
    show(console, "match against one vectorised expression a neuron (pfnm, 5 sweeps)", results["ratios"])
    show(console, "time against the number of clients (L' fixed)", results["growth"])
    show(console, "peak memory beyond the inputs; units of L' (D + L_j) numbers", results["memory"])
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {OUTPUT}")


if __name__ == "__main__":
    main()
