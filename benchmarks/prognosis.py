"""How fast predictions are, and what memory watching ten thousand units takes. One thread everywhere.

The network is that of the FD004 experiment (64 neurons; windows of 50 rows, or whole lives row by row); its weights are
drawn, not trained, which changes no time. Windows are those of the FD004 test engines where NASA's data is found,
made-up ones elsewhere.
Run from the root of the repository:

    python benchmarks/prognosis.py [--quick]
    python benchmarks/prognosis.py --int8 runs/turbofan/bundle
    python benchmarks/prognosis.py --file 1000000

The first prints tables and writes build/benchmarks/prognosis.json. The second tells what 8-bit weights change in a
trained model. The third predicts files of so many rows with the `predict` command (training engines of FD001 again and
again, a GRU of 64 neurons that reads whole lives), and says how much processor time commands take to start.
"""
# ruff: noqa: E402 - the number of threads has to be set before NumPy is loaded

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedprognos.errors import DataNotFoundError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.features import Recipe, build_windows, recipe_for
from fedprognos.networks import Bundle, Calibration, Network, NetworkSpec, Novelty
from fedprognos.prognosis import Predictor, Row, Stream
from fedprognos.prognosis.onnx_runtime import OnnxPredictor, example_rows, export_onnx

OUTPUT = Path("build/benchmarks/prognosis.json")
UNITS = 10_000
Windows = NDArray[np.float32]


def material() -> tuple[str, Recipe, Windows]:
    """Name of the data, recipe and all windows of the test engines."""
    try:
        name, preset = "FD004 test engines", "turbofan"
        train, test = load_fleets(preset)
    except DataNotFoundError:
        name, preset = "made-up engines", "plants"
        train, test = load_fleets(preset)
    options = config.load(preset)[1].recipe.model_copy(update={"history": 50, "window": None})
    recipe = recipe_for(options, {"all": train})
    windows = build_windows(recipe, test, stride=1, labelled=False)
    return name, recipe, windows.batch(slice(None))


def shortest(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Shortest time of each in seconds, all taking turns so that a busy moment of the machine meets them alike."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(times + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            found[name].append(time.perf_counter() - start)
    return {name: min(times[1:]) for name, times in found.items()}


def typical(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Median time of each in seconds over turns of ten calls; the first turns are not counted."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(times // 10 + 3):
        for name, work in works.items():
            for _ in range(10):
                start = time.perf_counter()
                work()
                found[name].append(time.perf_counter() - start)
    return {name: float(np.median(times[30:])) for name, times in found.items()}


def latencies(bundle: Bundle, windows: Windows, times: int) -> dict[str, float]:
    """Median time of a single window in each engine, in microseconds."""
    network = bundle.network.module().eval()
    one = np.ascontiguousarray(windows[:1])
    tensor = torch.from_numpy(one)
    exact = OnnxPredictor.from_bundle(bundle)
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(bundle, Path(folder) / "int8.onnx", int8=True)
        small = OnnxPredictor.load(Path(folder) / "int8.onnx")
    torch_predictor = Predictor.from_bundle(bundle)

    def eager() -> Any:
        with torch.inference_mode():
            return network(tensor).numpy()

    works: dict[str, Callable[[], object]] = {
        "torch eager": eager,
        "Predictor (torch)": lambda: torch_predictor.windows(one),
        "OnnxPredictor": lambda: exact.windows(one),
        "OnnxPredictor, int8": lambda: small.windows(one),
    }
    return {name: 1e6 * seconds for name, seconds in typical(works, times).items()}


def streamed_rows(recipe: Recipe, windows: Windows, times: int) -> dict[str, float]:
    """Median time in microseconds of one more row of a life, and of a window of 50, in each engine and cell.

    A call of ONNX Runtime takes some 7 microseconds whatever it does, so its rows are not a tenth of its own windows.
    """
    one, row = np.ascontiguousarray(windows[:1]), np.ascontiguousarray(windows[:1, -1:])
    works: dict[str, Callable[[], object]] = {}
    for cell in ("lstm", "gru"):
        network = Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(64,), cell=cell), 0)
        life = Bundle(recipe.model_copy(update={"life": True, "window": 1}), network)
        for engine, kind in (("torch", Predictor), ("onnx", OnnxPredictor)):
            window, steps = kind.from_bundle(Bundle(recipe, network)), kind.from_bundle(life).steps
            state = steps.read(row, steps.rest(row[:, 0]))[2]
            works[f"{cell}, {engine}: window"] = lambda window=window: window.outputs(one)  # type: ignore[misc]
            works[f"{cell}, {engine}: row"] = lambda steps=steps, state=state: steps.read(row, state)  # type: ignore[misc]
    return {name: 1e6 * seconds for name, seconds in typical(works, times).items()}


def batches(bundle: Bundle, windows: Windows, loop: int, times: int) -> dict[str, float]:
    """Windows a second: one by one in torch (over `loop` of them), all in batches in each engine."""
    network = bundle.network.module().eval()

    def one_by_one() -> None:
        with torch.inference_mode():
            for window in windows[:loop]:
                network(torch.from_numpy(window[None])).numpy()

    torch_predictor, onnx_predictor = Predictor.from_bundle(bundle), OnnxPredictor.from_bundle(bundle)
    works: dict[str, Callable[[], object]] = {
        "torch, window by window": one_by_one,
        "Predictor (torch), in batches": lambda: torch_predictor.windows(windows),
        "OnnxPredictor, in batches": lambda: onnx_predictor.windows(windows),
    }
    counts = [loop, len(windows), len(windows)]
    return {name: n / s for n, (name, s) in zip(counts, shortest(works, times).items(), strict=True)}


def streaming(bundle: Bundle, rounds: int) -> dict[str, float]:
    """Ten thousand units that each send a row a round: rows a second, memory taken, size of a snapshot."""
    recipe = bundle.recipe
    sensors, settings = (rows[:, :50] for rows in example_rows(recipe, count=UNITS, unseen=0.0))
    predictor = Predictor.from_bundle(bundle)
    stream = Stream(predictor)
    process = psutil.Process()
    before = process.memory_info().rss
    spent = 0.0
    before_first = recipe.window if recipe.window > 1 else 3
    for k in range(before_first + rounds):
        at = k % sensors.shape[1]
        rows = [
            Row(
                f"unit-{u}",
                float(k + 1),
                dict(zip(recipe.sensors, sensors[u, at].tolist(), strict=True)),
                dict(zip(recipe.settings, settings[u, at].tolist(), strict=True)),
            )
            for u in range(UNITS)
        ]
        start = time.perf_counter()
        stream.feed_many(rows)
        spent += (time.perf_counter() - start) * (k >= before_first)
    taken = process.memory_info().rss - before
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream"
        start = time.perf_counter()
        stream.snapshot(path)
        written = time.perf_counter() - start
        start = time.perf_counter()
        Stream(predictor).restore(path)
        restored = time.perf_counter() - start
        size = path.stat().st_size
    return {
        "rows a second": UNITS * rounds / spent,
        "memory taken (MB)": taken / 1e6,
        "memory of the whole process (MB)": process.memory_info().rss / 1e6,
        "snapshot (MB)": size / 1e6,
        "snapshot written (s)": written,
        "snapshot restored (s)": restored,
    }


def alone(work: Callable[[Bundle, int], dict[str, float]], bundle: Bundle, rounds: int) -> dict[str, float]:
    """Run something in a process of its own: memory that others gave back would be counted as its own."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_loaded, work, bundle.save(Path(folder) / "bundle"), rounds).result()


def _loaded(work: Callable[[Bundle, int], dict[str, float]], folder: Path, rounds: int) -> dict[str, float]:
    return work(Bundle.load(folder), rounds)


def rounding(folder: Path) -> dict[str, float]:
    """What 8-bit weights change in a trained FD004 model, on every window of the test engines."""
    bundle = Bundle.load(folder)
    test = load_fleets("turbofan")[1]
    with tempfile.TemporaryDirectory() as scratch:
        exact, small = Path(scratch) / "exact.onnx", Path(scratch) / "int8.onnx"
        export_onnx(bundle, exact)
        strange = export_onnx(bundle, small, int8=True)
        sizes = exact.stat().st_size, small.stat().st_size
        engines = OnnxPredictor.load(exact), OnnxPredictor.load(small)
    windows = build_windows(bundle.recipe, test, stride=1, labelled=False)
    parts = [windows.batch(slice(a, min(a + 4096, len(windows)))) for a in range(0, len(windows), 4096)]
    before, after = (np.concatenate([engine.windows(part) for part in parts]) for engine in engines)
    last = build_windows(bundle.recipe, test, points="last")
    truth = np.minimum(last.labels, bundle.recipe.cap or np.inf)
    errors = [np.sqrt(np.mean(np.square(e.windows(last.batch(slice(None))) - truth))) for e in engines]
    turns = typical({str(k): lambda e=e: e.windows(parts[0][:1]) for k, e in enumerate(engines)}, 500)  # type: ignore[misc]
    return {
        "windows": len(windows),
        "change, root mean square (cycles)": float(np.sqrt(np.mean(np.square(after - before)))),
        "change, largest (cycles)": float(np.abs(after - before).max()),
        "with 2 % of rows in unknown conditions, root mean square": strange.int8_rms or 0.0,
        "with 2 % of rows in unknown conditions, largest": strange.int8_worst or 0.0,
        "test RMSE, capped labels, exact": float(errors[0]),
        "test RMSE, capped labels, int8": float(errors[1]),
        "file, exact (kB)": sizes[0] / 1e3,
        "file, int8 (kB)": sizes[1] / 1e3,
        "time of a window, int8 to exact": turns["1"] / turns["0"],
    }


def predicted_files(rows: int) -> dict[str, float]:
    """Processor time of commands, and rows a second of `predict` beyond its time for one engine."""
    train, _ = load_fleets("turbofan-fd001")
    options = config.load("turbofan-fd001")[1].recipe.model_copy(update={"history": "life", "window": None})
    recipe = recipe_for(options, {"all": train})
    width = 64
    still = tuple(tuple(1e-3 * (k == c) for c in range(width)) for k in range(width))
    edges, counts = tuple(np.linspace(-1, 1, 41).round(3).tolist()), (0, *[10] * 40, 0)
    bundle = Bundle(
        recipe,
        Network.seeded(NetworkSpec(inputs=recipe.channels, widths=(width,), cell="gru"), 0),
        calibration=Calibration(
            ranges=(), edges=edges, counts=(counts,), units=(40,), unit=125.0, growing=False, cap=recipe.cap
        ),
        novelty=Novelty(mean=(0.0,) * width, whitening=still),
    )
    parts, total = [], 0
    while total < rows:
        unit = train.units[len(parts) % len(train.units)]
        frame = pd.DataFrame(unit.sensors, columns=list(train.schema.sensors))
        frame[list(train.schema.settings)] = unit.settings
        frame.insert(0, "unit", f"engine-{len(parts)}")
        frame.insert(1, "time", unit.time)
        parts.append(frame)
        total += len(frame)
    table, found = pd.concat(parts).iloc[:rows], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle.save(folder / "bundle")
        table.to_csv(folder / "rows.csv", index=False)
        table.to_parquet(folder / "rows.parquet", index=False)
        parts[0].to_csv(folder / "one.csv", index=False)

        def processor_time(*command: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        def predict(source: str, *more: str) -> float:
            columns = ("--unit", "unit", "--time", "time")
            return min(
                processor_time("-m", "fedprognos", "predict", "bundle", source, *columns, *more) for _ in range(2)
            )

        found["import fedprognos (s)"] = processor_time("-c", "import fedprognos")
        found["--help (s)"] = processor_time("-m", "fedprognos", "--help")
        found["predict, one engine (s)"] = start = predict("one.csv")
        for kind in ("csv", "parquet"):
            for how, more in (("latest", ()), ("every row", ("--all", "--out", "health.parquet"))):
                spent = predict(f"rows.{kind}", *more)
                found[f"{kind}, {how} (s)"] = spent
                found[f"{kind}, {how} (rows a second)"] = len(table) / (spent - start)
    return found


def show(console: Console, title: str, values: dict[str, float], compared: str | None = None) -> None:
    table = Table("what", "value", *(["ratio"] if compared else []), title=title, title_justify="left")
    for name, value in values.items():
        table.add_row(name, f"{value:,.4g}", *([f"{value / values[compared]:.2f}"] if compared else []))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--file", type=int, metavar="ROWS", help="predict files of so many rows")
    parser.add_argument("--int8", type=Path, metavar="BUNDLE", help="what 8-bit weights change in this FD004 model")
    options = parser.parse_args()
    quick = options.quick
    torch.set_num_threads(1)
    console = Console()
    if options.int8 is not None:
        show(console, f"8-bit weights in {options.int8}", rounding(options.int8))
        return
    if options.file is not None:
        show(console, f"Files of {options.file:,} rows, processor time", predicted_files(options.file))
        return
    name, recipe, windows = material()
    spec = NetworkSpec(inputs=recipe.channels, widths=(64,))
    bundle = Bundle(recipe, Network.seeded(spec, 0))
    single = latencies(bundle, windows, 100 if quick else 500)
    many = batches(bundle, windows, 300 if quick else 3000, 2 if quick else 4)
    rows = streamed_rows(recipe, windows, 200 if quick else 1000)
    units = alone(streaming, bundle, 1 if quick else 5)
    life = recipe.model_copy(update={"life": True, "window": 1})
    gru = NetworkSpec(inputs=recipe.channels, widths=(64,), cell="gru", reservoir=600)
    lives = alone(streaming, Bundle(life, Network.seeded(gru, 0)), 1 if quick else 5)
    console.print(f"{name}: {len(windows)} windows of {recipe.window} rows, {recipe.channels} channels")
    show(console, "One window, microseconds", single, "torch eager")
    show(console, "Windows a second", many, "torch, window by window")
    show(console, "One more row of a life against a window of 50, microseconds", rows)
    show(console, f"{UNITS:,} units streaming, windows", units)
    show(console, f"{UNITS:,} units streaming, whole lives with a reservoir of 600", lives)
    torch_window = {cell: rows[f"{cell}, torch: window"] for cell in ("lstm", "gru")}
    ratios = {name[:-5]: rows[name] / torch_window[name[: name.index(",")]] for name in rows if name.endswith(": row")}
    show(console, "One more row over a window of 50 in torch", ratios)
    found = {
        "onnx_latency_over_torch": single["OnnxPredictor"] / single["torch eager"],
        "torch_batches_over_loop": many["Predictor (torch), in batches"] / many["torch, window by window"],
        "onnx_batches_over_loop": many["OnnxPredictor, in batches"] / many["torch, window by window"],
        "row_over_window": max(ratio for name, ratio in ratios.items() if name.endswith("torch")),
        "onnx_row_over_window": max(ratio for name, ratio in ratios.items() if name.endswith("onnx")),
        "stream_memory_in_MB": units["memory taken (MB)"],
        "lives_memory_in_MB": lives["memory taken (MB)"],
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "machine": platform.processor() or platform.machine(),
        "data": name,
        "single_in_us": single,
        "windows_a_second": many,
        "rows_in_us": rows,
        "stream": units,
        "lives": lives,
        "summary": found,
    }
    OUTPUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    console.print(f"wrote {OUTPUT}")
    assert found["onnx_latency_over_torch"] <= 0.5, "ONNX Runtime should take half of torch's time"
    fastest = max(found["torch_batches_over_loop"], found["onnx_batches_over_loop"])
    assert fastest >= 5, "batches should be five times as fast as a loop over single windows in torch"
    assert found["row_over_window"] <= 0.1, "one more row of a life should take a tenth of a window's time"
    # A call of ONNX Runtime takes some 7 microseconds whatever it does.
    assert found["onnx_row_over_window"] <= 0.15, "in ONNX Runtime a row should take a seventh of torch's window"
    for kind in ("stream", "lives"):
        assert found[f"{kind}_memory_in_MB"] < 400, "ten thousand units should fit into 400 MB"


if __name__ == "__main__":
    main()
