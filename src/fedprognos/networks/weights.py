"""Weights as a plain mapping name -> NumPy array: how they are kept, sent, matched and averaged."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from fedprognos.errors import BundleError
from fedprognos.networks.network import HealthNetwork, NetworkSpec

Weights = Mapping[str, NDArray[np.float32]]


def weights_of(network: HealthNetwork) -> dict[str, NDArray[np.float32]]:
    """A copy of the network's weights."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}


def network_with(spec: NetworkSpec, weights: Weights, where: str = "weights") -> HealthNetwork:
    """A network with given weights; refuse missing, extra, misshapen or non-finite tensors by name."""
    with torch.random.fork_rng(devices=[]):
        network = HealthNetwork(spec)
    check_weights(spec, weights, where)
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return network


def check_weights(spec: NetworkSpec, weights: Weights, where: str) -> None:
    """Raise :class:`BundleError` naming the tensor that does not fit the network."""
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in HealthNetwork(spec).state_dict().items()}
    for name in sorted(expected.keys() ^ weights.keys()):
        kind = "is missing" if name in expected else "does not belong to this network"
        raise BundleError(f"tensor '{name}' {kind}", where=where)
    for name, shape in expected.items():
        array = weights[name]
        if array.dtype != np.float32:
            raise BundleError(f"tensor '{name}' is {array.dtype}, expected float32", where=where)
        if array.shape != shape:
            raise BundleError(f"tensor '{name}' has shape {array.shape}, expected {shape}", where=where)
        if not np.isfinite(array).all():
            raise BundleError(f"tensor '{name}' holds NaN or infinity", where=where)
