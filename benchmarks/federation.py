"""What a federation costs beside the training in it. Ratios measured side by side in one run.

    python benchmarks/federation.py [--quick] [--only clients --clients 300 --rounds 20]

Writes build/benchmarks/federation.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedprognos.experiment.engines import OwnProcesses
from fedprognos.experiment.local_clients import WorkerTransport
from fedprognos.experiment.worker_pool import Workers
from fedprognos.features import Recipe, build_windows, recipe_for
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges.fit import FitRequest
from fedprognos.federation.federation_section import federation_options
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Fleet
from fedprognos.fleet.partition import partition
from fedprognos.fleet.synthetic import synthetic_engines
from fedprognos.networks import Network, NetworkSpec, fit
from fedprognos.networks.model_options import TrainOptions

COUNTS = (10, 30, 100, 300, 1000)
CONDITIONS = {"altitude_in_kft": 0, "mach": 2}


def clients_of(sites: int, units: int) -> tuple[dict[str, Fleet], Recipe]:
    train, _ = synthetic_engines(sites=sites, units_per_site=units, test_units_per_site=1)
    fleets = partition(train, "column", column="site")
    section = RecipeOptions(window=30, stride=2, cap=125, conditions=CONDITIONS, min_count=20)
    return fleets, recipe_for(section, fleets)


def plan_of(recipe: Recipe, epochs: int, width: int, rounds: int = 1) -> Plan:
    federation = federation_options().model_validate(
        {"fedavg": {"rounds": rounds, "epochs": 1}, "fedma": {"rounds": 1}}
    )
    train = TrainOptions(epochs=epochs, validation_fraction=0)
    return Plan(recipe, NetworkSpec(inputs=recipe.channels, widths=(width,)), train, federation, seed=1)


def trained(cohort: MessageCohort, plan: Plan) -> None:
    """The local epochs of every client and nothing else."""
    request = FitRequest(plan.recipe, plan.train.training(), 0.0, plan.seed, spec=plan.spec)
    cohort.ask(dict.fromkeys(cohort.clients, request))


def federated(method: str, cohort: MessageCohort, plan: Plan) -> None:
    """The rounds of a method, every model with its heads."""
    for _ in judged_rounds(strategies[method], cohort, plan):
        pass


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_process(fleets: dict[str, Fleet], work: Callable[[MessageCohort], object]) -> None:
    """Some work with clients that live in this process."""
    with tempfile.TemporaryDirectory() as folder:
        entries = {name: (name, fleet, ClientFolder(Path(folder) / name)) for name, fleet in fleets.items()}
        with Workers(entries, None) as workers:
            work(MessageCohort(WorkerTransport(workers, {name: name for name in fleets})))


def in_pool(fleets: dict[str, Fleet], workers: int, work: Callable[[MessageCohort], object]) -> float:
    """Time of some work, the pool warmed up: processes started, data loaded."""
    with tempfile.TemporaryDirectory() as folder:
        entries = {name: (name, fleet, ClientFolder(Path(folder) / name)) for name, fleet in fleets.items()}
        with Workers(entries, OwnProcesses(workers) if workers > 1 else None) as staff:
            cohort = MessageCohort(WorkerTransport(staff, {name: name for name in fleets}))
            work(cohort)  # until every worker is up, has its data and has trained once
            return seconds(lambda: work(cohort))


def round_overhead(quick: bool) -> dict[str, float]:
    """A FedMA round against its local epochs alone, and the naive way beside it."""
    fleets, recipe = clients_of(3, 4 if quick else 12)
    plan = plan_of(recipe, 6 if quick else 24, 32 if quick else 64)
    alone = in_pool(fleets, 1, lambda cohort: trained(cohort, plan))
    whole = in_pool(fleets, 1, lambda cohort: federated("fedma", cohort, plan))
    naive = alone + naive_retraining(fleets, plan)
    return {"epochs alone (s)": alone, "FedMA round / epochs": whole / alone, "naive round / epochs": naive / alone}


def naive_retraining(fleets: dict[str, Fleet], plan: Plan) -> float:
    """Retraining the head with the frozen layers run again in every epoch."""

    def work() -> None:
        for fleet in fleets.values():
            windows = build_windows(plan.recipe, fleet)
            module = Network.seeded(plan.spec, 0).module()
            module.freeze(plan.spec.layers - 1)
            optimizer = torch.optim.Adam(module.head.parameters(), lr=1e-3)
            targets = torch.from_numpy(plan.recipe.encode(windows.labels).astype(np.float32))
            order = np.random.default_rng(0)
            for _ in range(plan.train.epochs):
                shuffled = order.permutation(len(windows))
                for start in range(0, len(windows), 128):
                    index = shuffled[start : start + 128]
                    loss = torch.nn.functional.mse_loss(module(torch.from_numpy(windows.batch(index))), targets[index])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

    return seconds(work)


def workers_ratio(quick: bool) -> dict[str, float]:
    """Eight equal clients on one worker, on two, and in one process with torch's own threads."""
    fleets, recipe = clients_of(8, 3 if quick else 6)
    plan = plan_of(recipe, 3 if quick else 12, 64)

    def threads() -> None:
        for fleet in fleets.values():
            start = Network.seeded(plan.spec, 0)
            fit(start, build_windows(recipe, fleet), None, recipe, plan.train.training(), seed=0)

    one, two = (in_pool(fleets, workers, lambda cohort: trained(cohort, plan)) for workers in (1, 2))
    torch.set_num_threads(os.cpu_count() or 1)
    default = seconds(threads)
    torch.set_num_threads(1)
    return {"one worker / two workers": one / two, "torch threads / two workers": default / two}


def many_clients(counts: Sequence[int], rounds: int) -> dict[str, float]:
    """Processor time a client and memory of the coordinator as clients become many: FedAvg, all in one process."""
    found = {}
    for count in counts:
        fleets, recipe = clients_of(count, 1)
        plan = plan_of(recipe, 1, 8, rounds)
        begun = time.process_time()
        in_process(fleets, lambda cohort, plan=plan: federated("fedavg", cohort, plan))
        spent = time.process_time() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"{count} clients, {rounds} rounds: {spent:.2f} s, peak {peak:.0f} MB", flush=True)
        found[f"{count} clients: ms a client and round"] = spent / count / rounds * 1e3
        found[f"{count} clients: peak MB"] = peak
    return found


def clients_side_by_side(count: int, rounds: int) -> dict[str, float]:
    """The same many clients in this process, and in two worker processes: what messages leave of the gain."""
    fleets, recipe = clients_of(count, 1)
    plan = plan_of(recipe, 1, 8, rounds)
    one, two = (in_pool(fleets, workers, lambda cohort: federated("fedavg", cohort, plan)) for workers in (1, 2))
    return {f"{count} clients: one process / two workers": one / two}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one of the benchmarks by name")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not what it costs")
    parser.add_argument("--clients", type=int, nargs="+", help="clients: so many", default=COUNTS)
    parser.add_argument("--rounds", type=int, default=20, help="clients: rounds of FedAvg")
    chosen = parser.parse_args()
    quick = chosen.quick
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = {}
    table = Table("benchmark", "measure", "value", title="Federation")
    for name, measure in (
        ("round", round_overhead),
        ("workers", workers_ratio),
        (
            "clients",
            lambda quick: many_clients(COUNTS[:2], 2) if quick else many_clients(chosen.clients, chosen.rounds),
        ),
        ("side by side", lambda quick: clients_side_by_side(*((10, 2) if quick else (100, chosen.rounds)))),
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
