"""The GRU; its torch module is :mod:`fedprognos.networks.unrolled_gru`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.matching import gates_of, recurrent_signature
from fedprognos.networks.cells import TORCH_TENSORS, Cell, OnnxNode, Step, cells

if TYPE_CHECKING:
    from torch import Tensor, nn


def module(inputs: int, neurons: int) -> nn.Module:
    """A one-layer GRU."""
    from fedprognos.networks.unrolled_gru import UnrolledGRU

    return UnrolledGRU(inputs, neurons, batch_first=True)


def signature(
    weight_ih: NDArray[Any], weight_hh: NDArray[Any], bias_ih: NDArray[Any], bias_hh: NDArray[Any]
) -> NDArray[Any]:
    """Input weights and biases of every gate."""
    return recurrent_signature(weight_ih, bias_ih, bias_hh, "gru")


def step(weight_ih: NDArray[Any], weight_hh: NDArray[Any], bias_ih: NDArray[Any], bias_hh: NDArray[Any]) -> Step:
    """One step on states h."""
    inputs, states_in, n = weight_ih.T.copy(), weight_hh.T.copy(), weight_hh.shape[1]

    def take(x: NDArray[np.float32], states: NDArray[np.float32]) -> NDArray[np.float32]:
        of_x, of_h = x @ inputs + bias_ih, states @ states_in + bias_hh
        opened = np.tanh(0.5 * (of_x[:, : 2 * n] + of_h[:, : 2 * n])) * 0.5 + 0.5  # sigmoid: reset, update
        new = np.tanh(of_x[:, 2 * n :] + opened[:, :n] * of_h[:, 2 * n :])
        after: NDArray[np.float32] = new + opened[:, n:] * (states - new)
        return after

    return take


def factor(x: Tensor, before: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """The reset gate stands between the recurrent product of the new state and the rest."""
    import torch

    n = w_hh.shape[1]
    reset = torch.sigmoid(x @ w_ih[:n].T + b_ih[:n] + before @ w_hh[:n].T + b_hh[:n])
    return torch.cat([torch.ones_like(reset), torch.ones_like(reset), reset], dim=-1)


ONNX = OnnxNode("GRU", (1, 0, 2), ("h",), {"linear_before_reset": 1})  # update, reset, new
cells.add(Cell("gru", "GRU", 20, module, gates_of("gru"), TORCH_TENSORS, signature, True, step, ONNX, True, 1, factor))
