"""What a federation costs beside the training in it. Ratios measured side by side in one run.

    python benchmarks/federation.py [--quick]

Writes build/benchmarks/federation.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from fedprognos.federation.aggregate import average
from rich.console import Console
from rich.table import Table

from fedprognos.experiment.in_process import InProcessCohort
from fedprognos.experiment.workers import Workers
from fedprognos.features import Recipe, build_windows, recipe_for
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.heads import finish
from fedprognos.federation.messages import FitRequest
from fedprognos.federation.options import FederationOptions
from fedprognos.federation.strategies import Plan, strategy
from fedprognos.fleet import Fleet
from fedprognos.fleet.synthetic import synthetic_engines
from fedprognos.networks import HealthNetwork, NetworkSpec, fit, network_with, predict, weights_of
from fedprognos.networks.anatomy import anatomy_of
from fedprognos.networks.options import TrainOptions

CONDITIONS = {"altitude_in_kft": 0, "mach": 2}


def clients_of(sites: int, units: int) -> tuple[dict[str, Fleet], Recipe]:
    train, _ = synthetic_engines(sites=sites, units_per_site=units, test_units_per_site=1)
    by_site: dict[str, list] = {}
    for unit in train:
        by_site.setdefault(str(unit.attributes["site"]), []).append(unit)
    fleets = {name: train.select(units, name) for name, units in by_site.items()}
    section = RecipeOptions(window=30, stride=2, cap=125, conditions=CONDITIONS, min_count=20)
    return fleets, recipe_for(section, fleets)


def plan_of(recipe: Recipe, epochs: int, width: int, heads: tuple[str, ...] = ("exact", "mean")) -> Plan:
    federation = FederationOptions.model_validate({"heads": heads})
    train = TrainOptions(epochs=epochs, validation_fraction=0)
    return Plan(recipe, NetworkSpec(inputs=recipe.channels, widths=(width,)), train, federation, seed=1)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_pool(fleets: dict[str, Fleet], workers: int, work: Callable[[InProcessCohort], object]) -> float:
    """Time of some work, the pool warmed up: processes started, data loaded."""
    with tempfile.TemporaryDirectory() as folder:
        entries = {name: (name, fleet, ClientFolder(Path(folder) / name)) for name, fleet in fleets.items()}
        with Workers(entries, workers) as staff:
            cohort = InProcessCohort(staff, {name: name for name in fleets})
            work(cohort)  # until every worker is up, has its data and has trained once
            return seconds(lambda: work(cohort))


def round_overhead(quick: bool) -> dict[str, float]:
    """A FedMA round against its local epochs alone, and the naive way beside it."""
    fleets, recipe = clients_of(3, 4 if quick else 12)
    plan = plan_of(recipe, 6 if quick else 24, 32 if quick else 64)

    def epochs_only(cohort: InProcessCohort) -> None:
        request = FitRequest(recipe, plan.network, plan.train, plan.seed)
        cohort.ask(dict.fromkeys(fleets, request))

    def whole_round(cohort: InProcessCohort) -> None:
        for round_ in strategy("fedma")(cohort, plan):
            finish(cohort, plan, round_.models[0])

    alone = in_pool(fleets, 1, epochs_only)
    whole = in_pool(fleets, 1, whole_round)
    naive = alone + naive_retraining(fleets, recipe, plan)
    return {"epochs alone (s)": alone, "FedMA round / epochs": whole / alone, "naive round / epochs": naive / alone}


def naive_retraining(fleets: dict[str, Fleet], recipe: Recipe, plan: Plan) -> float:
    """Retraining the head with the frozen layers run again in every epoch."""

    def work() -> None:
        for fleet in fleets.values():
            windows = build_windows(recipe, fleet)
            network = HealthNetwork.seeded(plan.network, 0)
            network.recurrent.requires_grad_(False)
            optimizer = torch.optim.Adam(network.head.parameters(), lr=1e-3)
            targets = torch.from_numpy(recipe.encode(windows.labels).astype(np.float32))
            order = np.random.default_rng(0)
            for _ in range(plan.train.epochs):
                shuffled = order.permutation(len(windows))
                for start in range(0, len(windows), 128):
                    index = shuffled[start : start + 128]
                    loss = torch.nn.functional.mse_loss(network(torch.from_numpy(windows.batch(index))), targets[index])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

    return seconds(work)


def workers_ratio(quick: bool) -> dict[str, float]:
    """Eight equal clients on one worker, on two, and in one process with torch's own threads."""
    fleets, recipe = clients_of(8, 3 if quick else 6)
    plan = plan_of(recipe, 3 if quick else 12, 64)
    request = FitRequest(recipe, plan.network, plan.train, plan.seed)

    def work(cohort: InProcessCohort) -> None:
        cohort.ask(dict.fromkeys(fleets, request))

    def threads() -> None:
        for fleet in fleets.values():
            fit(HealthNetwork.seeded(plan.network, 0), build_windows(recipe, fleet), None, recipe, plan.train, seed=0)

    one, two = in_pool(fleets, 1, work), in_pool(fleets, 2, work)
    torch.set_num_threads(os.cpu_count() or 1)
    default = seconds(threads)
    torch.set_num_threads(1)
    return {"one worker / two workers": one / two, "torch threads / two workers": default / two}


def many_clients(quick: bool) -> dict[str, float]:
    """Time a client and memory of the coordinator as clients become many."""
    found = {}
    for count in (10, 30) if quick else (25, 50, 100):
        fleets, recipe = clients_of(count, 2)
        plan = plan_of(recipe, 1, 16)

        def work(cohort: InProcessCohort, plan: Plan = plan) -> None:
            for round_ in strategy("fedavg")(cohort, plan_with_rounds(plan, 1)):
                finish(cohort, plan, round_.models[0])

        found[f"{count} clients: ms a client"] = in_pool(fleets, 2, work) / count * 1e3
        found[f"{count} clients: peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return found


def plan_with_rounds(plan: Plan, rounds: int) -> Plan:
    from dataclasses import replace

    section = plan.federation.model_copy(
        update={"fedavg": plan.federation.fedavg.model_copy(update={"rounds": rounds, "epochs": 1})}
    )
    return replace(plan, federation=section)


def blocks_ratio(quick: bool) -> dict[str, float]:
    """A concatenated layer predicted densely and as blocks."""
    fleets, recipe = clients_of(3, 4)
    spec = NetworkSpec(inputs=recipe.channels, widths=(64,))
    clients = {str(k): weights_of(HealthNetwork.seeded(spec, k)) for k in range(3)}
    places = {n: {"recurrent.0": 64 * int(n) + np.arange(64)} for n in clients}
    weights = {
        k: np.asarray(v, np.float32)
        for k, v in average(clients, anatomy_of("lstm", 1, False), places, {"recurrent.0": 192}).items()
    }
    network = network_with(spec.model_copy(update={"widths": (192,)}), weights)
    windows = build_windows(recipe, next(iter(fleets.values())))

    def dense() -> None:
        with torch.no_grad():
            for batch in windows.batches(1024):
                network(torch.from_numpy(batch))

    dense_time = min(seconds(dense) for _ in range(3))
    block_time = min(seconds(lambda: predict(network, windows, recipe)) for _ in range(3))
    return {"dense / blocks (3 x 64 neurons)": dense_time / block_time}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one of the benchmarks by name")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not what it costs")
    chosen = parser.parse_args()
    quick = chosen.quick
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = {}
    table = Table("benchmark", "measure", "value", title="Federation")
    for name, measure in (
        ("round", round_overhead),
        ("workers", workers_ratio),
        ("clients", many_clients),
        ("blocks", blocks_ratio),
    ):
        if chosen.only not in (None, name):
            continue
        found[name] = measure(quick)
        for key, value in found[name].items():
            table.add_row(name, key, f"{value:.3g}")
    Console().print(table)
    path = Path("build/benchmarks/federation.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"quick": quick, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
