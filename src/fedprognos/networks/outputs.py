"""Sums over what every layer of a network puts out, at every time step: what absorption matches neurons by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from fedprognos.arrays import FloatArray
from fedprognos.features import WindowSet
from fedprognos.matching import OutputSums
from fedprognos.networks.cache import raw_inputs
from fedprognos.networks.module import HealthNetwork
from fedprognos.networks.network import Network
from fedprognos.networks.running import BATCH, unit_batches

Look = Callable[[int, FloatArray], None]


def output_sums(network: Network, points: WindowSet, look: Look | None = None) -> tuple[OutputSums, ...]:
    """Sums of every layer below the head, over all time steps of all histories.

    Parameters
    ----------
    look
        Called with the number of a layer and its outputs, some time steps (n, N) after another.
    """
    module = network.module().eval()
    layers = [network.widths[str(layer.group)] for layer in network.anatomy.layers[:-1]]
    sums = [OutputSums(0, 0, np.zeros(width), np.zeros((width, width))) for width in layers]
    with torch.no_grad(), module.in_blocks():
        if points.lives is None:
            raw = raw_inputs(points, torch.device("cpu"))
            for start in range(0, len(points), BATCH):
                index = np.arange(start, min(start + BATCH, len(points)))
                _add(module, raw(index), [points.length] * len(index), sums, look)
        else:
            for first, lengths in unit_batches(points):
                x = np.zeros((len(first), int(lengths.max()), points.channels), dtype=np.float32)
                for k, (begin, length) in enumerate(zip(first, lengths, strict=True)):
                    x[k, :length] = points.features[begin : begin + length]
                _add(module, torch.from_numpy(x), lengths.tolist(), sums, look)
    return tuple(sums)


def _add(module: HealthNetwork, x: Tensor, lengths: list[int], sums: list[OutputSums], look: Look | None) -> None:
    """Add sequences (B, T, inputs) of which the first `lengths` steps count."""
    for layer, stage in enumerate(module.stages()[:-1]):
        x = torch.relu(stage(x)) if isinstance(stage, nn.Linear) else stage(x)[0]
        rows = torch.cat([x[k, :length] for k, length in enumerate(lengths)]).cpu().numpy().astype(np.float64)
        if look is not None:
            look(layer, rows)
        sums[layer] = sums[layer].add(OutputSums(len(rows), len(lengths), rows.sum(axis=0), rows.T @ rows))
