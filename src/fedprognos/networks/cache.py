"""Outputs of frozen layers, computed once: in memory where they fit, in a temporary file where not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedprognos.arrays import IntArray
from fedprognos.features import WindowSet
from fedprognos.networks.module import HealthNetwork

MEMORY_LIMIT_IN_BYTES = 1 << 30
BATCH = 512

Inputs = Callable[[IntArray], Tensor]


def cached_inputs(
    network: HealthNetwork,
    windows: WindowSet,
    frozen: int,
    device: torch.device,
    limit_in_bytes: int = MEMORY_LIMIT_IN_BYTES,
) -> Inputs:
    """A function from window numbers to what the first layer that still learns is fed.

    With nothing frozen that is the raw window, gathered batch by batch from the shared rows; otherwise
    the frozen layers' output, taken from a cache.
    """
    raw = raw_inputs(windows, device)
    if frozen == 0:
        return raw
    with torch.no_grad():
        shape = network.run(raw(np.zeros(1, dtype=np.int64)), 0, frozen).shape[1:]
        cache = _allocate((len(windows), *shape), limit_in_bytes)
        for start in range(0, len(windows), BATCH):
            index = np.arange(start, min(start + BATCH, len(windows)))
            cache[index] = network.run(raw(index), 0, frozen).cpu().numpy()

    def from_cache(index: IntArray) -> Tensor:
        return torch.from_numpy(np.asarray(cache[index])).to(device)

    return from_cache


def raw_inputs(windows: WindowSet, device: torch.device) -> Inputs:
    """A function from window numbers to windows, gathered from the shared rows."""
    features = torch.from_numpy(windows.features).to(device)
    starts = torch.from_numpy(windows.starts)
    steps = torch.arange(windows.length)

    def gather(index: IntArray) -> Tensor:
        rows = starts[torch.from_numpy(index)][:, None] + steps
        return features[rows.to(device)]

    return gather


def _allocate(shape: tuple[int, ...], limit_in_bytes: int) -> NDArray[np.float32]:
    if 4 * int(np.prod(shape)) <= limit_in_bytes:
        return np.empty(shape, dtype=np.float32)
    # Unlinked at once: the file lives as long as the mapping does and cannot be left behind.
    with tempfile.TemporaryFile(prefix="fedprognos-") as file:
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)
