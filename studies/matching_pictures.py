"""The pictures of docs/matching.md, and every number that the page quotes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.federation.averages import average
from fedprognos.files import write_text
from fedprognos.matching import RecurrentWeights, match, match_recurrent
from fedprognos.networks import Network, NetworkSpec
from studies.plotting import BLUE, GREEN, INK, ORANGE, PALE, PURPLE, QUIET, legend, named, panels, svg

Numbers = dict[str, Any]


def write_matching_pictures(folder: Path = Path("docs/pictures")) -> dict[str, Numbers]:
    """Write all pictures; the numbers behind them, by picture."""
    torch.set_num_threads(1)
    numbers = {}
    for picture, draw in {"permutation": permutation, "fedavg": fedavg, "growth": growth, "recovery": recovery}.items():
        text, numbers[picture] = draw()
        write_text(folder / f"matching-{picture}.svg", text)
    return numbers


def permutation() -> tuple[str, Numbers]:
    """Two orders of the same three neurons; their outputs are computed, not claimed."""
    rng = np.random.default_rng(4)
    hidden, out, x = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2)
    values = []
    with panels(2, 2, height=3.0) as (figure, axes):
        for ax, title, rows in zip(
            axes, ("Network", "The same, neurons reordered"), ([0, 1, 2], [2, 0, 1]), strict=True
        ):
            values.append(float(out[rows] @ np.tanh(hidden[rows] @ x)))
            _network(ax, rows)
            ax.set_title(title)
            ax.text(1, -0.75, f"y = {values[-1]:.6f}", ha="center", weight="bold")
        caption = "Averaged place by place, neuron a would meet neuron c: two features become none."
        figure.supxlabel(caption, fontsize=9, color=QUIET)
        text = svg(figure, "The same network with its hidden neurons in two orders")
    return text, {"difference of the two outputs": abs(values[0] - values[1])}


def _network(ax: Axes, rows: list[int]) -> None:
    """Two inputs, three neurons in this order, one output."""
    inputs, end = [(0, 1.5), (0, 0.5)], (2, 1)
    for row, height in zip(rows, (2, 1, 0), strict=True):
        colour = (BLUE, ORANGE, GREEN)[row]
        for x, y in (*inputs, end):
            ax.plot([x, 1], [y, height], color=colour, zorder=1)
        ax.plot(1, height, "o", color=colour, markersize=22)
        ax.text(1, height, "abc"[row], color="white", ha="center", va="center", weight="bold")
    for (x, y), name in zip((*inputs, end), ("x1", "x2", "y"), strict=True):
        ax.plot(x, y, "o", markersize=19, markerfacecolor="white", markeredgecolor=QUIET)
        ax.text(x, y, name, ha="center", va="center")
    ax.set_axis_off()
    ax.set_xlim(-0.4, 2.4)
    ax.set_ylim(-0.9, 2.5)


def fedavg() -> tuple[str, Numbers]:
    """Four permuted copies of one network, averaged both ways."""
    seeded = Network.seeded(NetworkSpec(inputs=14, widths=(32,)), 0)
    network = Network(seeded.spec, {name: 3 * array for name, array in seeded.weights.items()})
    layer = network.anatomy.layers[0]
    rng = np.random.default_rng(0)
    orders = {f"client {j}": np.argsort(rng.permutation(32)) for j in range(4)}
    clients = {name: network.slice({"recurrent.0": order}).weights for name, order in orders.items()}
    matched = match({name: layer.signature(client_weights) for name, client_weights in clients.items()})
    places = {name: {"recurrent.0": where} for name, where in matched.assignments.items()}
    models = {
        "network": network.weights,
        "FedAvg": average(clients, network.anatomy),
        "matched": average(clients, network.anatomy, places, {"recurrent.0": matched.size}),
    }
    steps = np.arange(60)
    drift = np.sin(steps[:, None, None] / 9 + np.linspace(0, 3, 20)[:, None] + np.arange(14))
    windows = torch.from_numpy((drift + 0.2 * rng.normal(size=drift.shape)).astype("f4"))
    with torch.no_grad():
        outputs = {name: Network(network.spec, weights).module()(windows).numpy() for name, weights in models.items()}
    with panels(1, 1, height=3.2) as (figure, (ax,)):
        for which, colour, width in (("network", PALE, 7.0), ("matched", BLUE, 2.0), ("FedAvg", ORANGE, 2.0)):
            ax.plot(steps, outputs[which], color=colour, linewidth=width)
        named(ax, "Four copies of one network, neurons shuffled, then averaged", "window", "output")
        legend(figure, [("the network", PALE, "-"), ("matched", BLUE, "-"), ("FedAvg", ORANGE, "-")])
        text = svg(figure, "Outputs of FedAvg and of matched averaging of four permuted copies of one network")
    off = {name: float(np.abs(outputs[name] - outputs["network"]).max()) for name in ("FedAvg", "matched")}
    return text, {**off, "output's standard deviation": float(outputs["network"].std())}


def known_clients(seed: int, noise: float) -> tuple[dict[str, FloatArray], IntArray]:
    """Three clients with 48 shared and 32 private neurons each in 60 dimensions, and the true labels."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(48, 60))
    clients, labels = {}, []
    for j in range(3):
        neurons = np.vstack([shared, rng.normal(size=(32, 60))])
        truth = np.concatenate([np.arange(48), 48 + 32 * j + np.arange(32)])
        order = rng.permutation(80)
        clients[f"c{j}"] = 0.1 * (neurons + noise * rng.normal(size=neurons.shape))[order]
        labels.append(truth[order])
    return clients, np.concatenate(labels)


def pair_f1(matched: NDArray[np.intp], truth: IntArray) -> float:
    """F1 over pairs of neurons."""
    pairs = np.triu_indices(len(matched), 1)
    together, rightly = (matched[:, None] == matched)[pairs], (truth[:, None] == truth)[pairs]
    return float(2 * (together & rightly).sum() / max(together.sum() + rightly.sum(), 1))


def growth() -> tuple[str, Numbers]:
    """Global neurons and pair-F1 against noise, for three sets of options."""
    noises = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    ways: Mapping[str, tuple[str, Callable[[float], dict[str, Any]]]] = {
        "spahm, estimated": (BLUE, lambda noise: {}),
        "pfnm, true variances": (
            ORANGE,
            lambda noise: {"cost": "pfnm", "sigma": (0.1 * noise) ** 2, "sigma0": 0.01, "estimate": False},
        ),
        "pfnm, variances 1": (PURPLE, lambda noise: {"cost": "pfnm", "sigma": 1, "sigma0": 1, "estimate": False}),
    }
    numbers: Numbers = {}
    with panels(2, 2, height=2.9) as (figure, (size, score)):
        for way, (colour, options) in ways.items():
            matched = [np.mean([_found(seed, noise, options(noise)) for seed in range(3)], axis=0) for noise in noises]
            sizes, scores = (np.array(values) for values in zip(*matched, strict=True))
            size.plot(noises, sizes, "o-", color=colour, markersize=4)
            score.plot(noises, scores, "o-", color=colour, markersize=4)
            numbers[way] = {f"{n:g}": f"L'={s:.0f} F1={f:.3f}" for n, s, f in zip(noises, sizes, scores, strict=True)}
        size.axhline(144, color=INK, linestyle="--", linewidth=1)
        size.text(0.99, 146, "the truth: 144", ha="right", color=QUIET)
        size.set_ylim(60, 180)
        score.set_ylim(0.5, 1.02)
        for ax, title, y in ((size, "Global neurons", "L'"), (score, "Pairs found", "F1")):
            named(ax, title, "noise (share of a neuron's own spread)", y)
        legend(figure, [(name, colour, "-") for name, (colour, _) in ways.items()])
        return svg(figure, "Growth of the global model and quality of the matching against noise"), numbers


def _found(seed: int, noise: float, options: Mapping[str, Any]) -> tuple[float, float]:
    clients, truth = known_clients(seed, noise)
    matched = match(clients, **options)
    return matched.size, pair_f1(np.concatenate([matched.assignments[c] for c in clients]), truth)


def recovery() -> tuple[str, Numbers]:
    """Share of a known permutation recovered by ih and by ih+hh, two inputs, against noise."""
    noises = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]
    numbers: Numbers = {}
    with panels(2, 2, height=2.7, sharey=True) as (figure, axes):
        for ax, (cell, gates) in zip(axes, {"LSTM": 4, "GRU": 3}.items(), strict=True):
            for signature, colour in (("ih", ORANGE), ("ih+hh", BLUE)):
                shares = [
                    float(np.mean([_recovered(cell.lower(), gates, signature, noise, seed) for seed in range(3)]))
                    for noise in noises
                ]
                ax.plot(noises, shares, "o-", color=colour, markersize=4)
                numbers[f"{cell} {signature}"] = {f"{n:g}": round(s, 3) for n, s in zip(noises, shares, strict=True)}
            title, noise = f"{cell}, 64 neurons, two inputs", "noise (share of the weights' own spread)"
            named(ax, title, noise, "neurons recovered" if cell == "LSTM" else "")
            ax.set_ylim(0, 1.04)
        legend(figure, [("ih: input weights", ORANGE, "-"), ("ih+hh: and recurrent weights", BLUE, "-")])
        title = "Recovery of a known permutation by input weights alone and with recurrent weights"
        return svg(figure, title), numbers


def _recovered(cell: str, gates: int, signature: str, noise: float, seed: int, width: int = 64) -> float:
    """Share of neurons of two noisy, permuted copies matched with the right neuron of a third."""
    rng = np.random.default_rng(seed)
    bound = 1 / np.sqrt(width)
    layer = [rng.uniform(-bound, bound, (gates, width, *rest)) for rest in ((2,), (width,), (), ())]
    orders = {"a": np.arange(width), "b": rng.permutation(width), "c": rng.permutation(width)}
    clients = {}
    for name, order in orders.items():
        ih, hh, b_ih, b_hh = ((part + rng.normal(0, noise * part.std(), part.shape))[:, order] for part in layer)
        parts = (ih, hh[:, :, order], b_ih, b_hh)
        clients[name] = RecurrentWeights(*(part.reshape(gates * width, *part.shape[2:]) for part in parts))
    matched = match_recurrent(clients, cell=cell, signature=signature, cap=width)
    return float(np.mean([matched.assignments[n] == matched.assignments["a"][orders[n]] for n in ("b", "c")]))
