"""What models cost: parameters, bytes and FLOPs by counting, matching and inference by the clock.

Measured on the models of finished runs (seed 0), torch on one thread, so that a small device can be compared.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedprognos.errors import DataError
from fedprognos.evaluation import Results
from fedprognos.experiment.run_folder import folder_name
from fedprognos.federation.strategies.fedma import FedMAOptions, bbp_map
from fedprognos.files import write_json
from fedprognos.matching import Matching
from fedprognos.networks import Bundle, NetworkSpec
from fedprognos.networks.anatomy import Layer
from studies.places import COMPLEXITY, Places

FLOAT32 = 4
METHODS = ("fedavg", "concat", "fedma")
BATCH = 256
REPEATS = 7
GATES = {"lstm": 4, "gru": 3}


def flops(network: NetworkSpec, steps: int) -> int:
    """Floating-point operations of the matrix products of one window: two a weight and time step.

    Gates are added and squashed besides, which is a hundredth of it; a grown layer that falls apart into blocks
    needs less.

    >>> flops(NetworkSpec(inputs=2, widths=(128,)), 171)  # 2 * 171 * 4 * 128 * (2 + 128) + 2 * 128
    22763776
    """
    total, width = 0, network.inputs
    if network.input_width is not None:
        total += 2 * steps * width * network.input_width
        width = network.input_width
    for layer in network.widths:
        total += 2 * steps * GATES[network.cell] * layer * (width + layer)
        width = layer
    return total + 2 * width


def write_complexity(where: Places) -> Path:
    """Measure every preset whose run is there, and write complexity.json."""
    torch.set_num_threads(1)
    runs = [where.runs / preset for preset in where.presets if (where.runs / preset / "results.json").is_file()]
    if not runs:
        raise DataError("no finished run", where=str(where.runs), hint="python -m studies results")
    models = [model for run in runs for model in _models(run)]
    matchings = [found for run in runs for found in _matchings(run)]
    machine = {"machine": platform.machine(), "threads": 1, "torch": torch.__version__}
    path = where.folder / COMPLEXITY
    write_json(path, {"measured_on": machine, "models": models, "matchings": matchings})
    return path


def _models(run: Path) -> list[dict[str, Any]]:
    """A client's own model and the federated ones of the first scenario."""
    found = []
    scenario = next(iter(_config(run)["partition"]))
    bundles = run / "bundles" / folder_name(scenario)
    places = {m: bundles / m / "seed0" for m in METHODS}
    clients = sorted((bundles / "local" / "seed0").glob("*"))
    for method, place in {"local": clients[0], **places}.items() if clients else places.items():
        if not place.is_dir():
            continue
        bundle = Bundle.load(place)
        network, steps = bundle.network.spec, bundle.recipe.window
        parameters = network.parameters
        found.append(
            {
                "preset": run.name,
                "scenario": scenario,
                "method": method,
                "network": network.model_dump(mode="json"),
                "steps": steps,
                "parameters": parameters,
                "bytes": FLOAT32 * parameters,
                "flops": flops(network, steps),
                "one_window_in_ms": _inference(bundle, 1),
                "batch": BATCH,
                "batch_in_ms": _inference(bundle, BATCH),
            }
        )
    return found


def _inference(bundle: Bundle, windows: int) -> float:
    network = bundle.network.module().eval()
    x = torch.from_numpy(
        np.random.default_rng(0).normal(size=(windows, bundle.recipe.window, bundle.network.spec.inputs))
    )
    x = x.to(torch.float32)
    with torch.no_grad(), network.in_blocks():
        return _milliseconds(lambda: network(x))


def _matchings(run: Path) -> list[dict[str, Any]]:
    """Every layer of the clients' own models matched as the preset says."""
    settled = _config(run)
    scenario = next(iter(settled["partition"]))
    section = FedMAOptions.model_validate(settled["federation"]["fedma"])
    places = sorted((run / "bundles" / folder_name(scenario) / "local" / "seed0").glob("*"))
    bundles = {place.name: Bundle.load(place) for place in places}
    if len(bundles) < 2:
        return []
    network = next(iter(bundles.values())).network
    found = []
    for layer in network.anatomy.layers[:-1]:
        matching = _match(layer, bundles, section)
        signature = layer.signature(network.weights)
        found.append(
            {
                "preset": run.name,
                "scenario": scenario,
                "layer": layer.name,
                "clients": len(bundles),
                "neurons": len(signature),
                "dimensions": signature.shape[1],
                "width": matching.size,
                "matching_in_ms": _milliseconds(partial(_match, layer, bundles, section)),
            }
        )
    return found


def _match(layer: Layer, bundles: Mapping[str, Bundle], options: FedMAOptions) -> Matching:
    networks = {name: bundle.network for name, bundle in bundles.items()}
    return bbp_map(layer, networks, dict.fromkeys(networks, 1), options, seed=0)


def _config(run: Path) -> dict[str, Any]:
    return Results.load(run / "results.json").config


def _milliseconds(work: Callable[[], object]) -> float:
    """The least of several times, after one that warms up: others may be using the machine."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return float(f"{min(times):.3g}")
