"""Health networks as mappings of arrays: made, permuted, run, and matched layer by layer without retraining."""

from __future__ import annotations

import numpy as np
import torch

from fedprognos.federation.averages import average
from fedprognos.matching import match, match_recurrent
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.anatomy import move, move_inputs

SPECS = {
    "lstm": NetworkSpec(inputs=14, widths=(12,)),
    "gru": NetworkSpec(inputs=14, widths=(12,), cell="gru"),
    "stacked lstm": NetworkSpec(inputs=14, widths=(12, 9)),
    "stacked gru": NetworkSpec(inputs=14, widths=(7, 10), cell="gru"),
    "input layer": NetworkSpec(inputs=14, widths=(12, 8), input_width=10),
}


def anatomy_for(spec):
    return spec.anatomy


def trained_like(spec, seed, gain=3.0):
    """Weights whose output depends on the input as clearly as a trained network's does."""
    return {name: gain * array for name, array in Network.seeded(spec, seed).weights.items()}


def shuffled(weights, anatomy, seed):
    """The same function with its neurons in another order, and the order of each group."""
    rng = np.random.default_rng(seed)
    widths = anatomy.widths(weights)
    places = {group: rng.permutation(width) for group, width in widths.items()}
    return move(weights, anatomy, places, widths), places


def outputs(spec, anatomy, weights, seed=0):
    """What a network of these weights puts out for some windows."""
    network = Network(spec.with_widths(anatomy.widths(weights)), weights).check("test")
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(16, 20, spec.inputs)).astype("f4"))
    with torch.no_grad():
        return network.module()(x).numpy()


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
