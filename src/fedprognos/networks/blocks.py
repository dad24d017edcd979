"""Running a grown layer as blocks: neurons that no recurrent weight joins need not share a matrix.

Where clients' extractors stand side by side the recurrent matrix is block-diagonal, and most of a dense product would
be with zeros. The blocks are found from the weights, so the output is the same to rounding whatever made them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Blocks:
    """A recurrent layer as several smaller ones that read the same inputs.

    Parameters
    ----------
    parts
        One layer a block.
    order : (H,)
        Where each neuron of the whole layer is among the blocks' outputs put one after another.
    """

    parts: tuple[nn.Module, ...]
    order: Tensor

    def __call__(self, x: Tensor, states: list[Any] | None = None) -> tuple[Tensor, list[Any]]:
        each = [part(x) if states is None else part(x, states[k]) for k, part in enumerate(self.parts)]
        return torch.cat([h for h, _ in each], dim=-1)[..., self.order], [state for _, state in each]


def blocks_of(layer: nn.LSTM | nn.GRU) -> Blocks | None:
    """The blocks of a layer, None where it is one piece.

    Examples
    --------
    >>> layer = nn.LSTM(2, 4, batch_first=True)
    >>> blocks_of(layer) is None
    True
    >>> with torch.no_grad():
    ...     layer.weight_hh_l0.view(4, 4, 4)[:, :2, 2:] = 0
    ...     layer.weight_hh_l0.view(4, 4, 4)[:, 2:, :2] = 0
    >>> [part.hidden_size for part in blocks_of(layer).parts]
    [2, 2]
    """
    width, recurrent = layer.hidden_size, layer.get_parameter("weight_hh_l0").detach()
    gates = len(recurrent) // width
    joined = (recurrent.cpu().numpy().reshape(gates, width, width) != 0).any(axis=0)
    count, member = connected_components(csr_array(joined), directed=False)
    if count == 1:
        return None
    parts, found = [], []
    for block in range(count):
        neurons = np.flatnonzero(member == block)
        found.append(neurons)
        parts.append(_part(layer, torch.from_numpy(neurons), gates))
    order = np.argsort(np.concatenate(found))
    return Blocks(tuple(parts), torch.from_numpy(order).to(recurrent.device))


def _part(layer: nn.LSTM | nn.GRU, neurons: Tensor, gates: int) -> nn.Module:
    rows = (torch.arange(gates)[:, None] * layer.hidden_size + neurons).reshape(-1)
    part = type(layer)(layer.input_size, len(neurons), batch_first=True)
    with torch.no_grad():
        for name, tensor in part.named_parameters():
            whole = layer.get_parameter(name)[rows]
            tensor.copy_(whole[:, neurons] if name == "weight_hh_l0" else whole)
    return part.to(layer.get_parameter("weight_hh_l0").device).eval()
