"""Averaging weights neuron by neuron (lines 4 and 6 of Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import ConfigError, DataError
from fedprognos.federation.aggregation import Stack, aggregators
from fedprognos.networks.anatomy import Anatomy, Tensors
from fedprognos.networks.placement import Array, Places, place_in


def average(
    clients: Mapping[str, Tensors],
    anatomy: Anatomy,
    places: Mapping[str, Places] | None = None,
    widths: Mapping[str, int] | None = None,
    *,
    how: str = "mean",
    sizes: Mapping[str, float] | None = None,
    ratio: float = 1.0,
    start: Tensors | None = None,
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
        Name of an aggregator: ``"mean"`` is the paper's.
    sizes
        Number of data of each client, for aggregators that count clients by it.
    ratio
        For ``"map"``: noise variance over prior variance (both are in the diagnostics of a matching). A neuron with n
        holders is their sum over n + ratio, the maximum a posteriori mean under a prior around zero. The head is not
        drawn towards zero.
    start
        The federated weights that all clients began with, for aggregators that bound how far one goes from there.

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
    aggregator = aggregators[how]
    if not clients:
        raise DataError("no clients to average")
    if not ratio >= 0:
        raise ConfigError(f"ratio must not be negative, got {ratio!r}")
    names = sorted(clients)
    weights = _weights(names, sizes if aggregator.by_size else dict.fromkeys(names, 1.0))
    stacks = {}
    for name in clients[names[0]]:
        arrays = {client: _tensor(clients[client], name, client) for client in names}
        grids, shape = _grids(name, arrays, anatomy, places, widths or {})
        neurons = anatomy.axes_of(name)[0].group is not None
        begun = None if start is None or start[name].shape != shape else start[name]
        stacks[name] = Stack(shape, tuple(arrays.values()), grids, weights, ratio if neurons else 0.0, begun)
    for client in names:
        for name in clients[client].keys() - stacks.keys():
            raise DataError(f"'{names[0]}' has no such tensor", where=f"client '{client}', tensor '{name}'")
    return {
        name: aggregator.combine(stack).astype(np.result_type(*(clients[c][name] for c in names)), copy=False)
        for name, stack in aggregator.prepare(stacks).items()
    }


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
        grid, shape = place_in(name, array, anatomy, {} if places is None else places[client], widths, client=client)
        if shapes and shape != shapes[0]:
            raise DataError(
                f"its shape in the federated model is {shape}, that of '{next(iter(arrays))}' is {shapes[0]}",
                where=f"client '{client}', tensor '{name}'",
            )
        grids.append(grid)
        shapes.append(shape)
    return tuple(grids), shapes[0]


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
