"""Make the pictures of docs/matching.md, and print every number the page quotes.

python docs/make_matching_pictures.py
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fedprognos.federation.aggregate import average, move
from fedprognos.networks.weights import network_with, weights_of

from fedprognos.matching import RecurrentWeights, match, match_recurrent
from fedprognos.networks.anatomy import anatomy_of
from fedprognos.networks.network import HealthNetwork, NetworkSpec

FOLDER = Path(__file__).parent / "pictures"
INK, QUIET, PALE, GRID = "#1f2933", "#66727f", "#b9c2cc", "#e4e8ec"
BLUE, ORANGE, GREEN, PURPLE = "#2563a8", "#d9662b", "#2f8f5b", "#7b4fa3"
Point = tuple[float, float]
FONT = "font-family='Inter, Segoe UI, Helvetica, Arial, sans-serif'"


@dataclass
class Canvas:
    """SVG elements one after the other."""

    width: int
    height: int
    title: str
    elements: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 14,
        colour: str = INK,
        anchor: str = "start",
        weight: int = 400,
    ) -> None:
        self.elements.append(
            f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{colour}' text-anchor='{anchor}' "
            f"font-weight='{weight}'>{html.escape(words)}</text>"
        )

    def line(self, points: Sequence[Point], colour: str, *, width: float = 2.0, dash: str = "") -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.elements.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='{width}' "
            f"stroke-linejoin='round' stroke-dasharray='{dash}'/>"
        )

    def circle(self, x: float, y: float, r: float, fill: str, *, stroke: str = "#ffffff") -> None:
        self.elements.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{r}' fill='{fill}' stroke='{stroke}'/>")

    def save(self, name: str) -> None:
        FOLDER.mkdir(exist_ok=True)
        body = "\n".join(self.elements)
        (FOLDER / name).write_text(
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' width='{self.width}' "
            f"height='{self.height}' {FONT} role='img'><title>{html.escape(self.title)}</title>\n"
            f"<rect width='100%' height='100%' fill='#ffffff'/>\n{body}\n</svg>\n",
            encoding="utf-8",
        )


@dataclass
class Chart:
    """A plot area on a canvas, with labelled axes."""

    canvas: Canvas
    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def at(self, x: float, y: float) -> Point:
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        return self.left + self.width * (x - x0) / (x1 - x0), self.top + self.height * (y1 - y) / (y1 - y0)

    def axes(self, title: str, x_label: str, y_label: str, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> None:
        c = self.canvas
        c.text(self.left, self.top - 34, title, size=15, weight=600)
        c.text(self.left, self.top - 14, y_label, size=12, colour=QUIET)
        for y in y_ticks:
            c.line([self.at(self.x_range[0], y), self.at(self.x_range[1], y)], GRID, width=1)
            c.text(self.left - 8, self.at(0, y)[1] + 4, f"{y:g}", size=12, colour=QUIET, anchor="end")
        for x in x_ticks:
            c.text(self.at(x, 0)[0], self.top + self.height + 20, f"{x:g}", size=12, colour=QUIET, anchor="middle")
        c.text(self.left + self.width / 2, self.top + self.height + 42, x_label, size=12, colour=QUIET, anchor="middle")

    def curve(self, xs: Iterable[float], ys: Iterable[float], colour: str, *, width: float = 2.5) -> list[Point]:
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True)]
        self.canvas.line(points, colour, width=width)
        return points

    def dotted(self, xs: Iterable[float], ys: Iterable[float], colour: str) -> None:
        for x, y in self.curve(xs, ys, colour):
            self.canvas.circle(x, y, 4, colour)


def key(canvas: Canvas, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
    """Names of the curves, one below the other."""
    for row, (name, colour) in enumerate(entries):
        level = y + 22 * row
        canvas.line([(x, level), (x + 26, level)], colour, width=3)
        canvas.text(x + 34, level + 4.5, name, size=13)


def permutation_picture() -> dict[str, float]:
    """Two orders of the same three neurons; their outputs are computed, not claimed."""
    rng = np.random.default_rng(4)
    hidden, out, x = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2)
    order = [2, 0, 1]
    canvas = Canvas(760, 330, "The same network with its hidden neurons in two orders")
    values = []
    for side, rows in enumerate(([0, 1, 2], order)):
        left = 40 + 380 * side
        values.append(float(out[rows] @ np.tanh(hidden[rows] @ x)))
        canvas.text(left, 34, ("Network", "The same, neurons reordered")[side], size=15, weight=600)
        inputs = [(left + 30, 110 + 90 * i) for i in range(2)]
        places = [(left + 150, 75 + 80 * i) for i in range(3)]
        end = (left + 270, 155)
        for place, row in zip(places, rows, strict=True):
            colour = (BLUE, ORANGE, GREEN)[row]
            for start in inputs:
                canvas.line([start, place], colour, width=2)
            canvas.line([place, end], colour, width=2)
        for k, (cx, cy) in enumerate(inputs):
            canvas.circle(cx, cy, 15, "#ffffff", stroke=QUIET)
            canvas.text(cx, cy + 5, f"x{k + 1}", size=13, anchor="middle")
        for (cx, cy), row in zip(places, rows, strict=True):
            canvas.circle(cx, cy, 19, (BLUE, ORANGE, GREEN)[row])
            canvas.text(cx, cy + 5, "abc"[row], size=15, colour="#ffffff", anchor="middle", weight=600)
        canvas.circle(*end, 15, "#ffffff", stroke=QUIET)
        canvas.text(end[0], end[1] + 5, "y", size=13, anchor="middle")
        canvas.text(left + 150, 290, f"y = {values[-1]:.6f}", size=15, anchor="middle", weight=600)
    caption = "Averaged place by place, neuron a would meet neuron c: two features become none."
    canvas.text(380, 318, caption, size=13, colour=QUIET, anchor="middle")
    canvas.save("matching-permutation.svg")
    return {"difference of the two outputs": abs(values[0] - values[1])}


def fedavg_picture() -> dict[str, float]:
    """Four permuted copies of one network, averaged both ways."""
    spec = NetworkSpec(inputs=14, widths=(32,))
    anatomy = anatomy_of("lstm", 1, False)
    layer = anatomy.layers[0]
    weights = {name: 3 * array for name, array in weights_of(HealthNetwork.seeded(spec, 0)).items()}
    rng = np.random.default_rng(0)
    widths = anatomy.widths(weights)
    clients = {f"client {j}": move(weights, anatomy, {"recurrent.0": rng.permutation(32)}, widths) for j in range(4)}
    found = match({name: layer.signature(own) for name, own in clients.items()})
    places = {name: {"recurrent.0": where} for name, where in found.assignments.items()}
    models = {
        "network": weights,
        "FedAvg": average(clients, anatomy),
        "matched": average(clients, anatomy, places, {"recurrent.0": found.size}),
    }
    steps = np.arange(60)
    drift = np.sin(steps[:, None, None] / 9 + np.linspace(0, 3, 20)[:, None] + np.arange(14))
    windows = torch.from_numpy((drift + 0.2 * rng.normal(size=drift.shape)).astype("f4"))
    with torch.no_grad():
        outputs = {name: network_with(spec, model)(windows).numpy() for name, model in models.items()}
    low, high = min(o.min() for o in outputs.values()), max(o.max() for o in outputs.values())
    bottom, top = np.floor(low), np.ceil(high)
    canvas = Canvas(760, 400, "Outputs of FedAvg and of matched averaging of four permuted copies of one network")
    chart = Chart(canvas, 60, 70, 520, 260, (0, 59), (bottom, top))
    title = "Four copies of one network, neurons shuffled, then averaged"
    chart.axes(title, "window", "output", range(0, 60, 10), np.linspace(bottom, top, 5).tolist())
    chart.curve(steps, outputs["network"], PALE, width=8)
    chart.curve(steps, outputs["matched"], BLUE)
    chart.curve(steps, outputs["FedAvg"], ORANGE)
    key(canvas, 600, 150, [("the network", PALE), ("matched", BLUE), ("FedAvg", ORANGE)])
    canvas.save("matching-fedavg.svg")
    off = {name: float(np.abs(outputs[name] - outputs["network"]).max()) for name in ("FedAvg", "matched")}
    return {**off, "output's standard deviation": float(outputs["network"].std())}


def known_clients(seed: int, noise: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
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


def pair_f1(found: np.ndarray, truth: np.ndarray) -> float:
    """F1 over pairs of neurons."""
    pairs = np.triu_indices(len(found), 1)
    together, rightly = (found[:, None] == found)[pairs], (truth[:, None] == truth)[pairs]
    return float(2 * (together & rightly).sum() / max(together.sum() + rightly.sum(), 1))


def growth_picture() -> dict[str, dict[str, str]]:
    """Global neurons and pair-F1 against noise, for three settings."""
    noises = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    settings: dict[str, tuple[str, Callable[[float], dict[str, Any]]]] = {
        "spahm, estimated": (BLUE, lambda noise: {}),
        "pfnm, true variances": (
            ORANGE,
            lambda noise: {"cost": "pfnm", "sigma": (0.1 * noise) ** 2, "sigma0": 0.01, "estimate": False},
        ),
        "pfnm, variances 1": (PURPLE, lambda noise: {"cost": "pfnm", "sigma": 1, "sigma0": 1, "estimate": False}),
    }
    canvas = Canvas(900, 430, "Growth of the global model and quality of the matching against noise")
    noise_label, quarters = "noise (share of a neuron's own spread)", [0, 0.25, 0.5, 0.75, 1]
    size = Chart(canvas, 60, 80, 340, 250, (0, 1), (60, 180))
    size.axes("Global neurons", noise_label, "L'", quarters, range(60, 181, 20))
    score = Chart(canvas, 500, 80, 340, 250, (0, 1), (0.5, 1))
    score.axes("Pairs found", noise_label, "F1", quarters, [0.5, 0.6, 0.7, 0.8, 0.9, 1])
    canvas.line([size.at(0, 144), size.at(1, 144)], QUIET, dash="5 5", width=1.5)
    canvas.text(*size.at(0.79, 147), "the truth: 144", size=12, colour=QUIET)
    numbers = {}
    for name, (colour, options) in settings.items():
        sizes, scores = [], []
        for noise in noises:
            runs = []
            for seed in range(3):
                clients, truth = known_clients(seed, noise)
                found = match(clients, **options(noise))
                runs.append((found.size, pair_f1(np.concatenate([found.assignments[c] for c in clients]), truth)))
            sizes.append(float(np.mean([run[0] for run in runs])))
            scores.append(float(np.mean([run[1] for run in runs])))
        size.dotted(noises, sizes, colour)
        score.dotted(noises, scores, colour)
        numbers[name] = {
            f"{noise:g}": f"L'={s:.0f} F1={f:.3f}" for noise, s, f in zip(noises, sizes, scores, strict=True)
        }
    for k, (name, (colour, _)) in enumerate(settings.items()):
        key(canvas, 110 + 250 * k, 410, [(name, colour)])
    canvas.save("matching-growth.svg")
    return numbers


def recovery_picture() -> dict[str, dict[str, float]]:
    """Share of a known permutation recovered by ih and by ih+hh, two inputs, against noise."""
    noises = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]
    canvas = Canvas(900, 400, "Recovery of a known permutation by input weights alone and with recurrent weights")
    numbers = {}
    for panel, (cell, gates) in enumerate({"LSTM": 4, "GRU": 3}.items()):
        chart = Chart(canvas, 60 + 440 * panel, 80, 340, 220, (0, 1.4), (0, 1))
        title, label = f"{cell}, 64 neurons, two inputs", "noise (share of the weights' own spread)"
        chart.axes(title, label, "neurons recovered", [0, *noises], [0, 0.25, 0.5, 0.75, 1])
        for signature, colour in (("ih", ORANGE), ("ih+hh", BLUE)):
            shares = [
                float(np.mean([recovered(cell.lower(), gates, signature, noise, seed) for seed in range(3)]))
                for noise in noises
            ]
            chart.dotted(noises, shares, colour)
            numbers[f"{cell} {signature}"] = {f"{n:g}": round(float(s), 3) for n, s in zip(noises, shares, strict=True)}
    key(canvas, 300, 380, [("ih: input weights", ORANGE)])
    key(canvas, 500, 380, [("ih+hh: and recurrent ones", BLUE)])
    canvas.save("matching-recovery.svg")
    return numbers


def recovered(cell: str, gates: int, signature: str, noise: float, seed: int, width: int = 64) -> float:
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
    found = match_recurrent(clients, cell=cell, signature=signature, cap=width)
    return float(np.mean([found.assignments[n] == found.assignments["a"][orders[n]] for n in ("b", "c")]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = {
        "permutation": permutation_picture(),
        "fedavg": fedavg_picture(),
        "growth": growth_picture(),
        "recovery": recovery_picture(),
    }
    print(json.dumps(made, indent=1))
