"""From the weights of a recurrent layer to one vector a neuron.

A hidden neuron of an LSTM has U = 4 gates (i, f, g, o), of a GRU U = 3 (r, z, n); torch keeps gate after gate along the
rows. Its signature gathers what the neuron reads: the input weights and biases of all its gates (``ih``), and for
``ih+hh`` also the recurrent weights it reads from, and sends to, every other neuron.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import DataError, unknown_name
from fedprognos.matching.arrays import AnyArray, Indices
from fedprognos.matching.problem import checked

GATES = {"lstm": 4, "gru": 3}
"""U, the gates of each kind of cell."""


@dataclass(frozen=True, eq=False)
class RecurrentWeights:
    """One recurrent layer as torch keeps it.

    ``weight_ih`` is ``(U H, inputs)``, ``weight_hh`` ``(U H, H)``, both biases ``(U H,)``.
    """

    weight_ih: ArrayLike
    weight_hh: ArrayLike
    bias_ih: ArrayLike
    bias_hh: ArrayLike


def linear_signature(weight: ArrayLike, bias: ArrayLike) -> AnyArray:
    """``[W | b]``: ``(neurons, inputs + 1)``.

    Examples
    --------
    >>> linear_signature([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]).tolist()
    [[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]]
    """
    return np.column_stack([np.asarray(weight), np.asarray(bias)])


def recurrent_signature(weight_ih: ArrayLike, bias_ih: ArrayLike, bias_hh: ArrayLike, cell: str) -> AnyArray:
    """The ``ih`` signature: input weights of every gate, then the biases.

    The two biases of a gate are added, because only their sum matters: ``(b_ih + c, b_hh - c)`` is the same layer. The
    n gate of a GRU is the exception (its recurrent bias is multiplied by r), there they stay apart.

    Returns
    -------
    ``(H, 4 inputs + 4)`` for a LSTM, ``(H, 3 inputs + 4)`` for a GRU.

    Examples
    --------
    A LSTM with one neuron and one input, then a GRU:

    >>> recurrent_signature([[1.0], [2.0], [3.0], [4.0]], [0.1] * 4, [0.2] * 4, "lstm").round(1).tolist()
    [[1.0, 2.0, 3.0, 4.0, 0.3, 0.3, 0.3, 0.3]]
    >>> recurrent_signature([[1.0], [2.0], [3.0]], [0.1] * 3, [0.2] * 3, "gru").round(1).tolist()
    [[1.0, 2.0, 3.0, 0.3, 0.3, 0.1, 0.2]]
    """
    gates = gates_of(cell)
    weights = by_gate(weight_ih, gates)
    ih, hh = by_gate(bias_ih, gates), by_gate(bias_hh, gates)
    biases = ih + hh if cell == "lstm" else np.stack([ih[0] + hh[0], ih[1] + hh[1], ih[2], hh[2]])
    neurons = weights.shape[1]
    return np.concatenate([weights.transpose(1, 0, 2).reshape(neurons, -1), biases.T], axis=1)


def hidden_signature(weight_hh: ArrayLike, cell: str) -> AnyArray:
    """``(H, 2 U H)``: what each neuron reads from the others (its rows), then what it sends to them (its columns)."""
    weights = by_gate(weight_hh, gates_of(cell))
    gates, neurons, _ = weights.shape
    rows = weights.transpose(1, 0, 2).reshape(neurons, gates * neurons)
    columns = weights.transpose(2, 0, 1).reshape(neurons, gates * neurons)
    return np.concatenate([rows, columns], axis=1)


def hidden_dimensions(places: Indices, size: int, cell: str) -> Indices:
    """Where the columns of :func:`hidden_signature` belong among the ``2 U size`` of the global model.

    ``places`` is the global neuron of each of the client's. The dimensions of neurons it lacks are not in the list:
    the client says nothing about them, which is not the same as zero.
    """
    blocks = np.arange(2 * gates_of(cell)) * size
    return np.asarray((blocks[:, None] + places).ravel(), np.intp)


def gates_of(cell: str) -> int:
    """U for a cell's name."""
    if cell not in GATES:
        raise unknown_name("cell", cell, GATES)
    return GATES[cell]


def by_gate(array: ArrayLike, gates: int) -> AnyArray:
    """``(U H, ...)`` as ``(U, H, ...)``."""
    array = np.asarray(array)
    return array.reshape(gates, -1, *array.shape[1:])


def checked_weights(name: str, weights: RecurrentWeights, cell: str) -> RecurrentWeights:
    """The same as arrays, or an error naming the client and the tensor."""
    gates = gates_of(cell)
    found = RecurrentWeights(
        checked(f"{name}, weight_ih", weights.weight_ih),
        checked(f"{name}, weight_hh", weights.weight_hh),
        checked(f"{name}, bias_ih", np.atleast_2d(np.asarray(weights.bias_ih)))[0],
        checked(f"{name}, bias_hh", np.atleast_2d(np.asarray(weights.bias_hh)))[0],
    )
    neurons = np.shape(found.weight_hh)[1]
    shapes = {
        "weight_ih": (gates * neurons, np.shape(found.weight_ih)[1]),
        "weight_hh": (gates * neurons, neurons),
        "bias_ih": (gates * neurons,),
        "bias_hh": (gates * neurons,),
    }
    for tensor, shape in shapes.items():
        if np.shape(getattr(found, tensor)) != shape:
            raise DataError(
                f"shape {np.shape(getattr(weights, tensor))} is not that of a {cell} with {neurons} neurons",
                where=f"{name}, {tensor}",
                hint=f"expected {shape}",
            )
    return found
