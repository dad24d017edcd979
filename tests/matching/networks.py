"""Health networks as mappings of arrays: made, permuted, run, and matched layer by layer without retraining."""

from __future__ import annotations

import numpy as np
import torch

from fedprognos.federation.aggregate import average, move, move_inputs
from fedprognos.matching import match, match_recurrent
from fedprognos.networks.anatomy import anatomy_of
from fedprognos.networks.network import HealthNetwork, NetworkSpec
from fedprognos.networks.weights import network_with, weights_of

SPECS = {
    "lstm": NetworkSpec(inputs=14, widths=(12,)),
    "gru": NetworkSpec(inputs=14, widths=(12,), cell="gru"),
    "stacked lstm": NetworkSpec(inputs=14, widths=(12, 9)),
    "stacked gru": NetworkSpec(inputs=14, widths=(7, 10), cell="gru"),
    "input layer": NetworkSpec(inputs=14, widths=(12, 8), input_width=10),
}


def anatomy_for(spec):
    return anatomy_of(spec.cell, len(spec.widths), spec.input_width is not None)


def trained_like(spec, seed, gain=3.0):
    """Weights whose output depends on the input as clearly as a trained network's does."""
    return {name: gain * array for name, array in weights_of(HealthNetwork.seeded(spec, seed)).items()}


def shuffled(weights, anatomy, seed):
    """The same function with its neurons in another order, and the order of each group."""
    rng = np.random.default_rng(seed)
    widths = anatomy.widths(weights)
    places = {group: rng.permutation(width) for group, width in widths.items()}
    return move(weights, anatomy, places, widths), places


def outputs(spec, anatomy, weights, seed=0):
    """What a network of these weights puts out for some windows."""
    widths = anatomy.widths(weights)
    shape = spec.model_copy(
        update={
            "widths": tuple(widths[f"recurrent.{k}"] for k in range(len(spec.widths))),
            "input_width": widths.get("input"),
        }
    )
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(16, 20, spec.inputs)).astype("f4"))
    with torch.no_grad():
        return network_with(shape, weights)(x).numpy()


def federate(clients, anatomy, *, by_all=False, how="mean", sizes=None, **options):
    """Match layer after layer and average; returns weights, places and widths."""
    places, widths, current = {name: {} for name in clients}, {}, dict(clients)
    for layer in anatomy.layers:
        if layer.group is None:
            continue
        if by_all and layer.cell != "linear":
            found = match_recurrent(
                {name: layer.recurrent(w) for name, w in current.items()}, cell=layer.cell, **options
            )
        else:
            found = match({name: layer.signature(w) for name, w in current.items()}, **options)
        widths[layer.group] = found.size
        for name, assigned in found.assignments.items():
            places[name][layer.group] = assigned
            current[name] = move_inputs(current[name], anatomy, layer, assigned, found.size, client=name)
    return average(clients, anatomy, places, widths, how=how, sizes=sizes), places, widths
