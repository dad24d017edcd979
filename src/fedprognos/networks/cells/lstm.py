"""The LSTM, as torch has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedprognos.matching import gates_of, recurrent_signature
from fedprognos.networks.cells import TORCH_TENSORS, Cell, OnnxNode, Step, cells

if TYPE_CHECKING:
    from torch import nn


def module(inputs: int, neurons: int) -> nn.Module:
    """A one-layer LSTM."""
    from torch import nn

    return nn.LSTM(inputs, neurons, batch_first=True)


def signature(
    weight_ih: NDArray[Any], weight_hh: NDArray[Any], bias_ih: NDArray[Any], bias_hh: NDArray[Any]
) -> NDArray[Any]:
    """Input weights and biases of every gate."""
    return recurrent_signature(weight_ih, bias_ih, bias_hh, "lstm")


def step(weight_ih: NDArray[Any], weight_hh: NDArray[Any], bias_ih: NDArray[Any], bias_hh: NDArray[Any]) -> Step:
    """One step on states [h | c]."""
    weights, bias, n = np.concatenate([weight_ih, weight_hh], axis=1).T.copy(), bias_ih + bias_hh, weight_hh.shape[1]

    def take(x: NDArray[np.float32], states: NDArray[np.float32]) -> NDArray[np.float32]:
        gates = np.concatenate([x, states[:, :n]], axis=1) @ weights + bias
        opened = np.tanh(0.5 * gates) * 0.5 + 0.5  # sigmoid: input, forget, (cell), output
        after = np.empty_like(states)
        c = after[:, n:] = opened[:, n : 2 * n] * states[:, n:] + opened[:, :n] * np.tanh(gates[:, 2 * n : 3 * n])
        after[:, :n] = opened[:, 3 * n :] * np.tanh(c)
        return after

    return take


def factor(*_: Any) -> float:
    """Input and recurrent products are added."""
    return 1.0


ONNX = OnnxNode("LSTM", (0, 3, 1, 2), ("h", "c"))  # input, output, forget, cell
cells.add(
    Cell("lstm", "LSTM", 10, module, gates_of("lstm"), TORCH_TENSORS, signature, True, step, ONNX, True, 1, factor)
)
