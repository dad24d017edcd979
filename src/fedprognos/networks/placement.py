"""Moving and slicing tensors by neurons, written once over an anatomy (Eq. 6 and 7, line 10 of Algorithm 1).

A client's neurons have places in the federated model, one index array for each group. Where a client has no neuron its
row is not there, and its column is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprognos.errors import ConfigError, DataError
from fedprognos.networks.anatomy import Anatomy, Layer, Tensors

Array: TypeAlias = NDArray[Any]
Places: TypeAlias = Mapping[str, ArrayLike]
"""For each group of neurons: the place in the federated model of each of a client's neurons."""


def move(
    tensors: Tensors, anatomy: Anatomy, places: Places, widths: Mapping[str, int], *, client: str = ""
) -> dict[str, Array]:
    """Put a client's rows and columns in their places in the federated model, zeros elsewhere.

    Groups without ``places`` stay as they are, so this also moves the inputs of a single layer. Padding a network this
    way does not change its output.

    Parameters
    ----------
    tensors
        Any of the network's tensors.
    places, widths
        For each group to move, the places of the client's neurons and the number of neurons in the federated model.
    client
        Its name, for error messages.

    Examples
    --------
    >>> from fedprognos.networks.anatomy import anatomy_of
    >>> head = {"head.weight": np.array([[1.0, 2.0]]), "head.bias": np.array([3.0])}
    >>> move(head, anatomy_of("lstm", 1, False), {"recurrent.0": [3, 0]}, {"recurrent.0": 4})["head.weight"]
    array([[2., 0., 0., 1.]])
    """
    moved = {}
    for name, tensor in tensors.items():
        grid, shape = place_in(name, np.asarray(tensor), anatomy, places, widths, client=client)
        moved[name] = np.zeros(shape, np.asarray(tensor).dtype)
        moved[name][np.ix_(*grid)] = tensor
    return moved


def move_inputs(
    tensors: Tensors, anatomy: Anatomy, layer: Layer, places: ArrayLike, width: int, *, client: str = ""
) -> dict[str, Array]:
    """Line 10 of Algorithm 1: after ``layer`` was matched, move the inputs of the one that follows; the rest stays."""
    following = anatomy.after(layer)
    if layer.group is None or following is None:
        raise ConfigError(f"nothing reads the outputs of layer '{layer.name}'")
    own = {name: tensors[name] for name in following.tensors if name in tensors}
    moved = move(own, anatomy, {layer.group: places}, {layer.group: width}, client=client)
    return {name: moved.get(name, np.asarray(tensor)) for name, tensor in tensors.items()}


def slice_neurons(tensors: Tensors, anatomy: Anatomy, places: Places) -> dict[str, Array]:
    """Give a client back its own width: the rows and columns of its neurons, in its own order.

    Examples
    --------
    >>> from fedprognos.networks.anatomy import anatomy_of
    >>> head = {"head.weight": np.array([[2.0, 0.0, 0.0, 1.0]]), "head.bias": np.array([3.0])}
    >>> slice_neurons(head, anatomy_of("lstm", 1, False), {"recurrent.0": [3, 0]})["head.weight"]
    array([[1., 2.]])
    """
    cut = {}
    for name, tensor in tensors.items():
        index = []
        for axis, length in zip(anatomy.axes_of(name), np.shape(tensor), strict=True):
            if axis.group is None or axis.group not in places:
                index.append(np.arange(length))
            else:
                width = length // axis.gates
                index.append(_spread(_checked(places[axis.group], width, axis.group, ""), axis.gates, width))
        cut[name] = np.asarray(tensor)[np.ix_(*index)]
    return cut


def place_in(
    name: str, tensor: Array, anatomy: Anatomy, places: Places, widths: Mapping[str, int], *, client: str
) -> tuple[tuple[NDArray[np.intp], ...], tuple[int, ...]]:
    """The index of a client's tensor in the federated model's, axis by axis, and the latter's shape."""
    axes, where = anatomy.axes_of(name), f"client '{client}', tensor '{name}'" if client else f"tensor '{name}'"
    if tensor.ndim != len(axes):
        raise DataError(f"has {tensor.ndim} axes instead of {len(axes)}", where=where)
    grid, shape = [], []
    for axis, length in zip(axes, tensor.shape, strict=True):
        if axis.group is None or axis.group not in places:
            grid.append(np.arange(length))
            shape.append(length)
            continue
        if axis.group not in widths:
            raise ConfigError(f"no width is given for group '{axis.group}'", where=where)
        width = widths[axis.group]
        place = _checked(places[axis.group], width, axis.group, client)
        if length != axis.gates * len(place):
            raise DataError(
                f"has shape {tensor.shape}, but there are places for {len(place)} neurons of '{axis.group}'",
                where=where,
            )
        grid.append(_spread(place, axis.gates, width))
        shape.append(axis.gates * width)
    return tuple(grid), tuple(shape)


def _spread(place: NDArray[np.intp], gates: int, width: int) -> NDArray[np.intp]:
    """The places in each gate's block, gate after gate."""
    return np.asarray((np.arange(gates)[:, None] * width + place).ravel(), np.intp)


def _checked(place: ArrayLike, width: int, group: str, client: str) -> NDArray[np.intp]:
    """Places as an index, each within the width and used once."""
    index = np.asarray(place)
    fits = index.ndim == 1 and index.dtype.kind in "iu" and ((index >= 0) & (index < width)).all()
    if not fits or len(np.unique(index)) != len(index):
        raise DataError(
            f"the places in group '{group}' are not different numbers from 0 to {width - 1}",
            where=f"client '{client}'" if client else "",
        )
    return index.astype(np.intp)
