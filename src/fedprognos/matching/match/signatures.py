"""From the weights of a layer to one vector a neuron.

A hidden neuron of an LSTM has U = 4 gates (i, f, g, o), of a GRU U = 3 (r, z, n); torch keeps gate after gate along the
rows. Its signature gathers what the neuron reads: the input weights and biases of all its gates (``ih``), and for
``ih+hh`` also the recurrent weights it reads from, and sends to, every other neuron.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import DataError, unknown_name
from fedprognos.matching.arguments import AnyArray, Indices, RecurrentWeights
from fedprognos.matching.match.problem import checked


@dataclass(frozen=True)
class Gates:
    """The gates of a cell: U of them, and those whose input and recurrent bias do not simply add up."""

    count: int
    separate: tuple[int, ...] = ()


CELLS = {"lstm": Gates(4), "gru": Gates(3, separate=(2,))}
"""The recurrent bias of a GRU's n gate is multiplied by r, so it is not the same as an input bias."""


def linear_signature(weight: ArrayLike, bias: ArrayLike) -> AnyArray:
    """``[W | b]``: ``(neurons, inputs + 1)``.

    Examples
    --------
    >>> linear_signature([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]).tolist()
    [[1.0, 2.0, 5.0], [3.0, 4.0, 6.0]]
    """
    return np.column_stack([np.asarray(weight), np.asarray(bias)])


def recurrent_signature(weight_ih: ArrayLike, bias_ih: ArrayLike, bias_hh: ArrayLike, cell: str | Gates) -> AnyArray:
    """The ``ih`` signature: input weights of every gate, then the biases.

    The two biases of a gate are added, because only their sum matters: ``(b_ih + c, b_hh - c)`` is the same layer. The
    n gate of a GRU is the exception, there they stay apart.

    Returns
    -------
    ``(H, 4 inputs + 4)`` for an LSTM, ``(H, 3 inputs + 4)`` for a GRU.

    Examples
    --------
    An LSTM with one neuron and one input, then a GRU:

    >>> recurrent_signature([[1.0], [2.0], [3.0], [4.0]], [0.1] * 4, [0.2] * 4, "lstm").round(1).tolist()
    [[1.0, 2.0, 3.0, 4.0, 0.3, 0.3, 0.3, 0.3]]
    >>> recurrent_signature([[1.0], [2.0], [3.0]], [0.1] * 3, [0.2] * 3, "gru").round(1).tolist()
    [[1.0, 2.0, 3.0, 0.3, 0.3, 0.1, 0.2]]
    """
    gates = described(cell)
    weights, ih, hh = (by_gate(a, gates.count) for a in (weight_ih, bias_ih, bias_hh))
    biases = [b for g in range(gates.count) for b in ([ih[g], hh[g]] if g in gates.separate else [ih[g] + hh[g]])]
    neurons = weights.shape[1]
    return np.concatenate([weights.transpose(1, 0, 2).reshape(neurons, -1), np.stack(biases).T], axis=1)


def hidden_signature(weight_hh: ArrayLike, cell: str | Gates) -> AnyArray:
    """``(H, 2 U H)``: what each neuron reads from the others (its rows), then what it sends to them (its columns)."""
    weights = by_gate(weight_hh, gates_of(cell))
    neurons = weights.shape[1]
    return np.concatenate([weights.transpose(axes).reshape(neurons, -1) for axes in ((1, 0, 2), (2, 0, 1))], axis=1)


def hidden_dimensions(places: Indices, size: int, cell: str | Gates) -> Indices:
    """Where the columns of :func:`hidden_signature` belong among the ``2 U size`` of the global model.

    ``places`` is the global neuron of each of the client's. The dimensions of neurons it lacks are not in the list:
    the client says nothing about them, which is not the same as zero.
    """
    blocks = np.arange(2 * gates_of(cell)) * size
    return np.asarray((blocks[:, None] + places).ravel(), np.intp)


def gates_of(cell: str | Gates) -> int:
    """U, the number of gates."""
    return described(cell).count


def described(cell: str | Gates) -> Gates:
    """The gates of a cell by its name, or as they are given."""
    if isinstance(cell, Gates):
        return cell
    if cell not in CELLS:
        raise unknown_name("cell", cell, CELLS)
    return CELLS[cell]


def by_gate(array: ArrayLike, gates: int) -> AnyArray:
    """``(U H, ...)`` as ``(U, H, ...)``."""
    array = np.asarray(array)
    return array.reshape(gates, -1, *array.shape[1:])


def checked_weights(name: str, weights: RecurrentWeights, cell: str | Gates) -> RecurrentWeights:
    """The same as arrays, or an error naming the client and the tensor."""
    tensors = [field.name for field in fields(RecurrentWeights)]
    arrays = {t: checked(f"{name}, {t}", np.atleast_2d(getattr(weights, t))) for t in tensors}
    neurons = arrays["weight_hh"].shape[1]
    rows = gates_of(cell) * neurons
    shapes = [(rows, arrays["weight_ih"].shape[1]), (rows, neurons), (1, rows), (1, rows)]
    for (tensor, array), shape in zip(arrays.items(), shapes, strict=True):
        if array.shape != shape:
            raise DataError(
                f"shape {np.shape(getattr(weights, tensor))} does not fit a cell of {neurons} neurons and {rows} rows",
                where=f"{name}, {tensor}",
            )
    return RecurrentWeights(arrays["weight_ih"], arrays["weight_hh"], arrays["bias_ih"][0], arrays["bias_hh"][0])
