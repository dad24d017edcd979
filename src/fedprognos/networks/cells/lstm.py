"""The LSTM, as torch has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedprognos.matching.signatures import gates_of, recurrent_signature
from fedprognos.networks.cells import TORCH_TENSORS, Cell, cells

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


cells.add(Cell("lstm", "LSTM", 10, module, gates_of("lstm"), TORCH_TENSORS, signature, recurrent=True))
