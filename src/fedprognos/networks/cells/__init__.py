"""Recurrent cells, one file each: the torch module, what the axes of its tensors count, how neurons are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from fedprognos.shelf import Shelf

if TYPE_CHECKING:
    from torch import nn

Step: TypeAlias = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]
NEURONS, INPUTS = "neurons", "inputs"
"""What an axis of a cell's tensor counts: its own neurons, or those of the layer below."""


@dataclass(frozen=True)
class OnnxNode:
    """What a cell is in ONNX.

    Parameters
    ----------
    kind
        The operator.
    gates
        ONNX's order of the gates among torch's.
    states
        Names for what it remembers, outputs first.
    options
        Attributes of the operator.
    """

    kind: str
    gates: tuple[int, ...]
    states: tuple[str, ...]
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """A kind of recurrent layer.

    Parameters
    ----------
    module
        From the number of inputs and of neurons to a torch module: (B, T, inputs) to ((B, T, neurons), state). A second
        argument of the module is the state to go on from.
    gates
        Blocks of neurons along the first axis of every tensor.
    tensors
        Names of the module's tensors, each with what its axes count: `NEURONS` or `INPUTS`. The first axis is always
        the neurons.
    signature
        From the layer's tensors, in the order of `tensors`, to what matching compares: (neurons, D).
    step
        From the layer's tensors, in the order of `tensors`, to one step in NumPy: from inputs (B, inputs) and states
        (B, S) to the states after it, outputs first. S and the order are those of the module's states put one after
        another. None where single rows are to be run in torch.
    onnx
        How the cell is exported; None where it cannot be.
    recurrent
        Whether the tensors are those of :class:`fedprognos.matching.RecurrentWeights`, so that recurrent weights can be
        compared as well (`signature = "ih+hh"`).
    bounded
        Whether outputs lie in [-1, 1]; sums that contradict it are refused.
    forget_gate
        Which block of neurons in `bias_ih_l0` decides how much of the state is kept; None where there is none.
    recurrent_factor
        From inputs (B, T, inputs), outputs before each step (B, T, neurons) and the layer's tensors, all torch's, to
        the factor between the gradients of recurrent products and of input products. Privacy of trained weights needs
        it; None where it is not known.
    """

    name: str
    label: str
    order: int
    module: Callable[[int, int], nn.Module]
    gates: int
    tensors: Mapping[str, tuple[str, ...]]
    signature: Callable[..., NDArray[Any]]
    recurrent: bool = False
    step: Callable[..., Step] | None = None
    onnx: OnnxNode | None = None
    bounded: bool = False
    forget_gate: int | None = None
    recurrent_factor: Callable[..., Any] | None = None

    @staticmethod
    def from_torch(name: str, module: Callable[..., nn.Module], gates: int = 1) -> Cell:
        """A cell of a module that is made and named like torch's own, such as `nn.RNN`; what it has are `gates` blocks.

        Neurons are compared by their input weights and biases.
        """

        def signature(weight_ih: NDArray[Any], _: NDArray[Any], *biases: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate(np.split(np.column_stack([weight_ih, sum(biases)]), gates), axis=1)

        def make(inputs: int, neurons: int) -> nn.Module:
            return module(inputs, neurons, batch_first=True)

        return Cell(name, name, 100, make, gates, TORCH_TENSORS, signature)


cells: Shelf[Cell] = Shelf("cell", __name__, "fedprognos.cells")
CellName = Annotated[str, AfterValidator(cells.valid_name)]
"""The name of a cell on the shelf, in options."""

TORCH_TENSORS = {
    "weight_ih_l0": (NEURONS, INPUTS),
    "weight_hh_l0": (NEURONS, NEURONS),
    "bias_ih_l0": (NEURONS,),
    "bias_hh_l0": (NEURONS,),
}
"""Tensors of torch's own one-layer modules."""
