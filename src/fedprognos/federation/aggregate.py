"""Moving, averaging and slicing weights over an anatomy (Eq. 6 and 7, and lines 4, 6 and 10 of Algorithm 1).

A client's neurons have places in the federated model, one index array for each group. Where a client has no neuron
its row is not there, and its column is zero. An average therefore divides by the holders of the OUTPUT neuron (the
row), with an absent input counting as zero; the head, whose outputs are no neurons, by all clients. With everything
matched this is Eq. 6 and 7; with nothing matched the federated model puts out the mean of the clients' outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedprognos.errors import ConfigError, DataError, unknown_name
from fedprognos.matching.averages import AVERAGES, Stack
from fedprognos.networks.anatomy import Anatomy, Layer, Tensors

Array: TypeAlias = NDArray[Any]
Places: TypeAlias = Mapping[str, ArrayLike]
"""For each group of neurons: the place in the federated model of each of a client's neurons."""

__all__ = ["AVERAGES", "Places", "average", "move", "move_inputs", "slice_client"]


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
        grid, shape = _grid(name, np.asarray(tensor), anatomy, places, widths, client=client)
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


def slice_client(tensors: Tensors, anatomy: Anatomy, places: Places, *, client: str = "") -> dict[str, Array]:
    """Give a client back its own width: the rows and columns of its neurons, in its own order.

    Examples
    --------
    >>> from fedprognos.networks.anatomy import anatomy_of
    >>> head = {"head.weight": np.array([[2.0, 0.0, 0.0, 1.0]]), "head.bias": np.array([3.0])}
    >>> slice_client(head, anatomy_of("lstm", 1, False), {"recurrent.0": [3, 0]})["head.weight"]
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
                index.append(_spread(_checked(places[axis.group], width, axis.group, client), axis.gates, width))
        cut[name] = np.asarray(tensor)[np.ix_(*index)]
    return cut


def average(
    clients: Mapping[str, Tensors],
    anatomy: Anatomy,
    places: Mapping[str, Places] | None = None,
    widths: Mapping[str, int] | None = None,
    *,
    how: str = "mean",
    sizes: Mapping[str, float] | None = None,
    ratio: float = 1.0,
    trim: float = 0.1,
) -> dict[str, Array]:
    """Average the clients' weights neuron by neuron.

    Sums are made in float64 and in the order of the clients' names; the result has the clients' dtype. A neuron that no
    client holds is zero.

    Parameters
    ----------
    clients
        For each client the same tensors of the network, all of them or a layer's.
    places, widths
        Where each client's neurons are in the federated model, and how many it has. Groups (or all of it) may be left
        out where every client has the same neurons in the same order: that is FedAvg.
    how
        One of :data:`AVERAGES`: ``"mean"`` (the paper's), ``"weighted"`` by data size, ``"map"``, ``"median"`` or
        ``"trimmed"``. The last two take no account of sizes.
    sizes
        Number of data of each client, for ``"weighted"``.
    ratio
        For ``"map"``: noise variance over prior variance (both are in the diagnostics of a matching). A neuron with n
        holders is their sum over n + ratio, the maximum a posteriori mean under a prior around zero. The head is not
        drawn towards zero.
    trim
        For ``"trimmed"``: the share of holders left out at either end, below one half.

    Examples
    --------
    Client ``a`` has one neuron of the federated model's two, ``b`` both; the head is divided by both clients:

    >>> from fedprognos.networks.anatomy import anatomy_of
    >>> a = {"head.weight": np.array([[4.0]]), "head.bias": np.array([1.0])}
    >>> b = {"head.weight": np.array([[2.0, 6.0]]), "head.bias": np.array([3.0])}
    >>> where = {"a": {"recurrent.0": [0]}, "b": {"recurrent.0": [1, 0]}}
    >>> average({"a": a, "b": b}, anatomy_of("lstm", 1, False), where, {"recurrent.0": 2})
    {'head.weight': array([[5., 1.]]), 'head.bias': array([2.])}
    """
    if how not in AVERAGES:
        raise unknown_name("average", how, AVERAGES)
    if not clients:
        raise DataError("no clients to average")
    if not (ratio >= 0 and 0 <= trim < 0.5):
        raise ConfigError(f"ratio must not be negative and trim be in [0, 0.5), got {ratio!r} and {trim!r}")
    names = sorted(clients)
    weights = _weights(names, sizes if how == "weighted" else dict.fromkeys(names, 1.0))
    found = {}
    for name in clients[names[0]]:
        arrays = {client: _tensor(clients[client], name, client) for client in names}
        grids, shape = _grids(name, arrays, anatomy, places, widths or {})
        neurons = anatomy.axes_of(name)[0].group is not None
        stack = Stack(shape, tuple(arrays.values()), grids, weights, ratio if neurons else 0.0, trim)
        found[name] = AVERAGES[how](stack).astype(np.result_type(*arrays.values()), copy=False)
    for client in names:
        for name in clients[client].keys() - found.keys():
            raise DataError(f"'{names[0]}' has no such tensor", where=f"client '{client}', tensor '{name}'")
    return found


def _grids(
    name: str,
    arrays: Mapping[str, Array],
    anatomy: Anatomy,
    places: Mapping[str, Places] | None,
    widths: Mapping[str, int],
) -> tuple[tuple[tuple[NDArray[np.intp], ...], ...], tuple[int, ...]]:
    """Each client's index in the federated model's tensor, and the shape they have to agree on."""
    grids: list[tuple[NDArray[np.intp], ...]] = []
    shapes: list[tuple[int, ...]] = []
    for client, array in arrays.items():
        if places is not None and client not in places:
            raise DataError("its neurons have no places", where=f"client '{client}'")
        grid, shape = _grid(name, array, anatomy, {} if places is None else places[client], widths, client=client)
        if shapes and shape != shapes[0]:
            raise DataError(
                f"its shape in the federated model is {shape}, that of '{next(iter(arrays))}' is {shapes[0]}",
                where=f"client '{client}', tensor '{name}'",
            )
        grids.append(grid)
        shapes.append(shape)
    return tuple(grids), shapes[0]


def _grid(
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


def _tensor(tensors: Tensors, name: str, client: str) -> Array:
    """A client's tensor, which must be there and finite."""
    where = f"client '{client}', tensor '{name}'"
    if name not in tensors:
        raise DataError("is missing", where=where)
    array = np.asarray(tensors[name])
    if not np.isfinite(array).all():
        raise DataError("holds NaN or infinity", where=where, hint="look at this client's training")
    return array


def _weights(names: list[str], sizes: Mapping[str, float] | None) -> tuple[float, ...]:
    """One positive weight for each client."""
    if sizes is None:
        raise ConfigError("how='weighted' needs the clients' data sizes", hint="pass sizes={client: number of data}")
    for name in names:
        if name not in sizes or not (np.isfinite(sizes[name]) and sizes[name] > 0):
            raise ConfigError(f"client '{name}' needs a positive data size, got {sizes.get(name)!r}")
    return tuple(float(sizes[name]) for name in names)
