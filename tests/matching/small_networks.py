"""Recurrent networks in a few lines of NumPy: made, permuted, put side by side and run."""

from __future__ import annotations

import numpy as np
from scipy.linalg import block_diag

from fedprognos.matching import LinearWeights, OutputSums, RecurrentWeights

GATES = {"lstm": 4, "gru": 3}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def random_layers(rng, cell, inputs, widths, input_width=None, gain=1.0):
    """Layers from the input on, without a head."""
    layers = []
    if input_width is not None:
        layers.append({"weight": gain * rng.normal(size=(input_width, inputs)) / np.sqrt(inputs)})
        layers[0]["bias"] = 0.5 * rng.normal(size=input_width)
        inputs = input_width
    for width in widths:
        rows = GATES[cell] * width
        layers.append(
            {
                "weight_ih": gain * rng.normal(size=(rows, inputs)) / np.sqrt(inputs),
                "weight_hh": gain * rng.normal(size=(rows, width)) / np.sqrt(width),
                "bias_ih": 0.3 * rng.normal(size=rows),
                "bias_hh": 0.3 * rng.normal(size=rows),
            }
        )
        inputs = width
    return layers


def width_of(layer):
    return layer["weight_hh"].shape[1] if "weight_hh" in layer else len(layer["weight"])


def permuted(layers, orders):
    """The same function with each layer's neurons in another order."""
    found, before = [], None
    for layer, order in zip(layers, orders, strict=True):
        new = {}
        for name, array in layer.items():
            parts = array.reshape(-1, width_of(layer), *array.shape[1:])[:, order]
            if name == "weight_hh":
                parts = parts[:, :, order]
            if name in ("weight_ih", "weight") and before is not None:
                parts = parts[:, :, before]
            new[name] = parts.reshape(-1, *parts.shape[2:])
        found.append(new)
        before = order
    return found


def side_by_side(networks):
    """All networks in one, block by block; they read the same inputs."""
    found = []
    for k, layers in enumerate(zip(*networks, strict=True)):
        new = {}
        for name in layers[0]:
            gates = [layer[name].reshape(-1, width_of(layer), *layer[name].shape[1:]) for layer in layers]
            blocks = name == "weight_hh" or (name == "weight_ih" and k > 0)
            join = (lambda parts: block_diag(*parts)) if blocks else np.concatenate
            new[name] = np.concatenate([join([g[u] for g in gates]) for u in range(len(gates[0]))])
        found.append(new)
    return found


def run(layers, x):
    """Outputs of every layer for sequences ``x`` ``(B, T, inputs)``."""
    outputs = []
    for layer in layers:
        x = np.maximum(x @ layer["weight"].T + layer["bias"], 0) if "weight" in layer else run_recurrent(layer, x)
        outputs.append(x)
    return outputs


def run_recurrent(layer, x):
    """Outputs ``(B, T, H)`` of an LSTM or GRU, recognised by their number of rows."""
    H = width_of(layer)
    h = c = np.zeros((len(x), H))
    found = np.empty((*x.shape[:2], H))
    for t in range(x.shape[1]):
        a = np.split(x[:, t] @ layer["weight_ih"].T + layer["bias_ih"], len(layer["bias_ih"]) // H, axis=1)
        r = np.split(h @ layer["weight_hh"].T + layer["bias_hh"], len(a), axis=1)
        if len(a) == GATES["lstm"]:
            i, f, g, o = (p + q for p, q in zip(a, r, strict=True))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            z = sigmoid(a[1] + r[1])
            h = (1 - z) * np.tanh(a[2] + sigmoid(a[0] + r[0]) * r[2]) + z * h
        found[:, t] = h
    return found


def sums_of(layers, x, y, mask=None):
    """Sums of every layer's outputs, with those of the labels for the last."""
    outputs = run(layers, x)
    return [OutputSums.from_outputs(h, mask=mask) for h in outputs[:-1]] + [
        OutputSums.from_outputs(outputs[-1], y, mask=mask)
    ]


def typed(layers):
    """As :func:`fedprognos.matching.absorb` takes them."""
    return [(RecurrentWeights if "weight_hh" in layer else LinearWeights)(**layer) for layer in layers]


def plain(layers):
    """Back to dictionaries."""
    return [dict(vars(layer)) for layer in layers]


def solved_head(h, y, penalty=1e-9):
    """Slopes and intercept of a ridge regression of labels on features ``(rows, H)``."""
    centre = h.mean(axis=0)
    x = h - centre
    v = np.linalg.solve(x.T @ x + penalty * len(h) * np.eye(h.shape[1]), x.T @ (y - y.mean()))
    return v, y.mean() - centre @ v
