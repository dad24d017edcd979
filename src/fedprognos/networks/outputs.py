"""Sums over what every layer of a network puts out, at every time step: what absorption matches neurons by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedprognos.arrays import FloatArray
from fedprognos.features import WindowSet
from fedprognos.networks.cache import raw_inputs
from fedprognos.networks.module import HealthNetwork
from fedprognos.networks.network import Network
from fedprognos.networks.running import BATCH, unit_batches


@dataclass(eq=False)
class LayerSums:
    """Time steps, sequences, sum of h (N,) and of h h' (N, N)."""

    n: int
    starts: int
    s: FloatArray
    S: FloatArray

    def add(self, outputs: Tensor, lengths: list[int]) -> None:
        """Add sequences (B, T, N) of which the first `lengths` steps count."""
        rows = torch.cat([outputs[k, :length] for k, length in enumerate(lengths)]).cpu().numpy().astype(np.float64)
        self.n += len(rows)
        self.starts += len(lengths)
        self.s += rows.sum(axis=0)
        self.S += rows.T @ rows


def output_sums(network: Network, points: WindowSet) -> tuple[LayerSums, ...]:
    """Sums of every layer below the head, over all time steps of all histories."""
    module = network.module().eval()
    layers = [network.widths[str(layer.group)] for layer in network.anatomy.layers[:-1]]
    sums = tuple(LayerSums(0, 0, np.zeros(width), np.zeros((width, width))) for width in layers)
    with torch.no_grad(), module.in_blocks():
        if points.lives is None:
            raw = raw_inputs(points, torch.device("cpu"))
            for start in range(0, len(points), BATCH):
                index = np.arange(start, min(start + BATCH, len(points)))
                _add(module, raw(index), [points.length] * len(index), sums)
        else:
            for first, lengths in unit_batches(points):
                x = np.zeros((len(first), int(lengths.max()), points.channels), dtype=np.float32)
                for k, (begin, length) in enumerate(zip(first, lengths, strict=True)):
                    x[k, :length] = points.features[begin : begin + length]
                _add(module, torch.from_numpy(x), lengths.tolist(), sums)
    return sums


def _add(module: HealthNetwork, x: Tensor, lengths: list[int], sums: tuple[LayerSums, ...]) -> None:
    for stage, total in zip(module.stages()[:-1], sums, strict=True):
        x = torch.relu(stage(x)) if isinstance(stage, nn.Linear) else stage(x)[0]
        total.add(x, lengths)
