"""What fedprognos costs beside what one would write or use instead. One thread, processor time, ratios of one run.

    python benchmarks/peers.py [--rounds 2] [--only fedavg] [--quick]

FedAvg learns windows of 50 rows (stride 2, LSTM 64, two epochs a round) of ten clients that share the engines of
C-MAPSS FD001, made-up ones where NASA's data is not found. Flower's simulation needs ray, which is not among our tools:
Flower's client app is called for one client after another, and Flower's own strategy adds up the replies.

Prints a table and writes build/benchmarks/peers.json.
"""
# ruff: noqa: E402 - the number of threads has to be set before NumPy is loaded

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from federation import clients_of, in_process
from fedprognos.errors import DataNotFoundError
from fedprognos.evaluation import baselines
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import Recipe, WindowSet, build_windows, recipe_for
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.federation_section import federation_options
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Fleet, pool
from fedprognos.fleet.partition import partition
from fedprognos.matching import match
from fedprognos.networks import Bundle, Network, NetworkSpec
from fedprognos.networks.cells import cells
from fedprognos.networks.model_options import TrainOptions
from fedprognos.prognosis import Predictor, Row, Stream
from matching import clients_with_truth, per_row_matching

OUTPUT = Path("build/benchmarks/peers.json")
NEURONS, CLIENTS, EPOCHS, BATCH = 64, 10, 2, 128
Times = dict[str, float]


def in_turns(works: dict[str, Callable[[], object]], turns: int) -> Times:
    """The least processor time of each in seconds; they take turns, so that other programs disturb all alike."""
    found = dict.fromkeys(works, np.inf)
    for _ in range(turns):
        for name, work in works.items():
            begun = time.process_time()
            work()
            found[name] = min(found[name], time.process_time() - begun)
    return found


def gemm_rate() -> float:
    """GFLOP/s of a product of two float32 matrices of 1,024 rows: the most that this machine does on one thread."""
    a = torch.randn(1024, 1024)
    return 2e-9 * 1024**3 / in_turns({"gemm": lambda: a @ a}, 8)["gemm"]


class PlainNetwork(nn.Module):
    """What one would write by hand."""

    def __init__(self, inputs: int, cell: str = "lstm") -> None:
        super().__init__()
        self.body = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](inputs, NEURONS, batch_first=True)
        self.head = nn.Linear(NEURONS, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        predicted: torch.Tensor = self.head(self.body(x)[0][:, -1]).squeeze(-1)
        return predicted


def engines(quick: bool) -> tuple[dict[str, Fleet], Recipe]:
    """Ten clients and their recipe."""
    if not quick:
        try:
            fleets = partition(load_fleets("turbofan-fd001")[0], "random", clients=CLIENTS)
            options = config.load("turbofan-fd001")[1].recipe
            return fleets, recipe_for(options.model_copy(update={"window": 50, "short": "exclude"}), fleets)
        except DataNotFoundError:
            pass
    return clients_of(CLIENTS, 2 if quick else 10)


def learn(network: PlainNetwork, x: torch.Tensor, y: torch.Tensor) -> None:
    """Two epochs, as a tutorial has them."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x)).split(BATCH):
            loss = nn.functional.mse_loss(network(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def fedavg(quick: bool, rounds: int) -> Times:
    """The same rounds in three ways, and ours again with all that a default run asks for."""
    fleets, recipe = engines(quick)
    windows = {name: build_windows(recipe, fleet) for name, fleet in fleets.items()}
    data = {
        name: (torch.from_numpy(part.batch(slice(None))), torch.from_numpy(recipe.encode(part.labels)).float())
        for name, part in windows.items()
    }

    def plain() -> None:
        common = PlainNetwork(recipe.channels)
        for _ in range(rounds):
            sums = {name: torch.zeros_like(tensor) for name, tensor in common.state_dict().items()}
            for x, y in data.values():
                network = PlainNetwork(recipe.channels)
                network.load_state_dict(common.state_dict())
                learn(network, x, y)
                for name, tensor in network.state_dict().items():
                    sums[name] += tensor * len(x)
            total = sum(len(x) for x, _ in data.values())
            common.load_state_dict({name: tensor / total for name, tensor in sums.items()})

    def ours(heads: tuple[str, ...], held_out: float) -> Callable[[], None]:
        spec = NetworkSpec(inputs=recipe.channels, widths=(NEURONS,))
        options = federation_options().model_validate({"fedavg": {"rounds": rounds, "epochs": EPOCHS}, "heads": heads})
        train = TrainOptions(batch_size=BATCH, validation_fraction=held_out)
        plan = Plan(recipe, spec, train, options, seed=1)

        def work(cohort: MessageCohort) -> None:
            for _ in judged_rounds(strategies["fedavg"], cohort, plan):
                pass

        return lambda: in_process(fleets, work)

    x, y = next(iter(data.values()))
    learn(PlainNetwork(recipe.channels), x[:BATCH], y[:BATCH])  # what torch loads late is nobody's
    return in_turns(
        {
            "plain torch loop": plain,
            "fedprognos": ours(("mean",), 0.0),
            "fedprognos, exact heads, a fifth kept out to judge every epoch": ours(("exact", "mean"), 0.2),
            "Flower's client app, one client after another": lambda: flower(data, recipe.channels, rounds),
        },
        1,
    )


def flower(data: dict[str, tuple[torch.Tensor, torch.Tensor]], inputs: int, rounds: int) -> None:
    """A client app as Flower's tutorials write it, called without its simulation."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # what its simulation sets
    app, names = ClientApp(), list(data)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        x, y = data[names[context.node_id - 1]]
        network = PlainNetwork(inputs)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        learn(network, x, y)
        content = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
        return Message(content=RecordDict(content), reply_to=message)

    strategy, arrays = FedAvg(), ArrayRecord(PlainNetwork(inputs).state_dict())
    for round_ in range(1, rounds + 1):
        replies = []
        for node in range(1, len(names) + 1):
            request = Message(content=RecordDict({"arrays": arrays}), dst_node_id=node, message_type="train")
            replies.append(app(request, Context(1, node, {}, RecordDict(), {})))
        averaged, _ = strategy.aggregate_train(round_, replies)
        if averaged is None:
            raise SystemExit("Flower's strategy gave no average")
        arrays = averaged


def steps(quick: bool, cell: str, batch: int, rows: int) -> Times:
    """A gradient step on whole lives, ours beside torch's; the LSTM of torch is one fused call."""
    x, y, channels = torch.randn(batch, rows, 24), torch.randn(batch, rows), 24
    head = nn.Linear(NEURONS, 1)

    def step(body: nn.Module) -> Callable[[], None]:
        def work() -> None:
            body.zero_grad()
            nn.functional.mse_loss(head(body(x)[0]).squeeze(-1), y).backward()  # type: ignore[no-untyped-call]

        return work

    works = {
        f"torch's {cell.upper()}": step({"lstm": nn.LSTM, "gru": nn.GRU}[cell](channels, NEURONS, batch_first=True)),
        "fedprognos": step(cells[cell].module(channels, NEURONS)),
        "torch's LSTM": step(nn.LSTM(channels, NEURONS, batch_first=True)),
    }
    return in_turns(works, 3 if quick else 15)


def matching(quick: bool) -> Times:
    """The published matching, a client's neurons priced one after another, beside `match`; the partitions are equal."""
    clients = clients_with_truth(16, 32 if quick else 256)
    options: dict[str, Any] = {"sigma": 1.0, "sigma0": 1.0, "solver": "scipy"}
    results: dict[str, Any] = {}

    def slow() -> None:
        results["slow"] = per_row_matching(clients, **options)

    def fast() -> None:
        results["fast"] = match(clients, cost="pfnm", estimate=False, sweeps=5, **options).assignments

    found = in_turns({"a plain loop over neurons": slow, "fedprognos": fast}, 1)
    if not all(np.array_equal(results["slow"][name], results["fast"][name]) for name in clients):
        raise SystemExit("the partitions differ")
    return found


def baseline(quick: bool, name: str) -> Times:
    """A fit to all windows and a prediction of them. Ours also chooses its strength or size on units kept out."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge

    fleets, recipe = engines(quick)
    windows: WindowSet = build_windows(recipe, pool(fleets.values()))
    labels = recipe.capped(windows.labels)

    def theirs() -> None:
        x = windows.batch(slice(None)).reshape(len(windows), -1)
        model = Ridge() if name == "ridge" else HistGradientBoostingRegressor(random_state=0)
        model.fit(x, labels).predict(x)

    def ours() -> None:
        predict = baselines[name].fit(windows, recipe)
        if predict is not None:
            predict(windows)

    return in_turns({"scikit-learn, on the rows of windows": theirs, "fedprognos": ours}, 1)


def stream(quick: bool) -> Times:
    """Seconds for a row of a unit, whole lives: checked, scaled and predicted beside a bare step of torch."""
    units = 100 if quick else 2000
    fleets, recipe = engines(True)
    life = recipe.model_copy(update={"life": True, "window": 1})
    network = Network.seeded(NetworkSpec(inputs=life.channels, widths=(NEURONS,), cell="gru"), 0)
    with tempfile.TemporaryDirectory() as folder:
        watch = Stream(Predictor.load(Bundle(life, network).save(Path(folder) / "bundle")))
    plain, unit, position = PlainNetwork(life.channels, "gru").eval(), next(iter(next(iter(fleets.values())))), 0
    sensors = dict(zip(life.sensors, unit.sensors[0].tolist(), strict=True))
    settings = dict(zip(life.settings, unit.settings[0].tolist(), strict=True)) if life.settings else {}
    rows = torch.zeros(units, 1, 1, life.channels)

    def ours() -> None:
        nonlocal position
        position += 1
        updates = watch.feed_many([Row(f"unit-{k}", position, sensors, settings) for k in range(units)])
        if any(update.reason and "rows" not in update.reason for update in updates):
            raise SystemExit(updates[0].reason)

    def each() -> None:
        with torch.inference_mode():
            for row in rows:
                plain.head(plain.body(row)[0])

    found = in_turns({"a step of torch for each row": each, "fedprognos": ours}, 3)
    return {name: seconds / units for name, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="of FedAvg; every round costs the same")
    parser.add_argument("--only", help="a benchmark whose name begins so")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not what it costs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    quick = options.quick
    works: dict[str, Callable[[], Times]] = {
        "fedavg": lambda: fedavg(quick, options.rounds),
        "gru step, 16 lives of 200 rows": lambda: steps(quick, "gru", 16, 200),
        "gru step, 8 lives of 200 rows": lambda: steps(quick, "gru", 8, 200),
        "lstm step, 16 lives of 200 rows": lambda: steps(quick, "lstm", 16, 200),
        "matching, 16 clients": lambda: matching(quick),
        "ridge": lambda: baseline(quick, "ridge"),
        "boosting": lambda: baseline(quick, "boosting"),
        "stream, a row": lambda: stream(quick),
    }
    console, record = Console(), {"gemm_in_gflop_s": gemm_rate(), "quick": quick, "rounds": options.rounds}
    table = Table("what", "how", "seconds", "to the first", title=f"GEMM: {record['gemm_in_gflop_s']:.0f} GFLOP/s")
    for name, work in works.items():
        if options.only is None or name.startswith(options.only):
            record[name] = found = work()
            first = next(iter(found.values()))
            for way, seconds in found.items():
                table.add_row(name, way, f"{seconds:.3g}", f"{seconds / first:.2f}")
            console.print(f"{name}: {found}")
    console.print(table)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
