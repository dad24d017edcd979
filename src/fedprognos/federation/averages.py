"""Averages of the clients' weights, neuron by neuron (lines 4 and 6 of Algorithm 1), by name.

A client that lacks a neuron has no row for it, and zeros in its column. An average therefore divides by the holders
of the OUTPUT neuron (the row), and an absent input counts as zero. The head's outputs are no neurons, so it is divided
by all clients. With everything matched this is Eq. 6 and 7; with nothing matched the output is the mean of theirs.

An average of your own is an :class:`Aggregator`, put on the shelf with ``aggregators.add``, passed to ``run``, or named
by an entry point of the group ``fedprognos.aggregators``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from fedprognos.errors import ConfigError, DataError
from fedprognos.networks import Anatomy, Array, Places, Tensors, place_in
from fedprognos.shelf import Shelf

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

SORTED_AT_ONCE = 4_000_000
"""Numbers that the order statistics sort at once: 32 MB."""
TRIM = 0.1
"""Share of the holders that the trimmed mean leaves out at either end; at least one of three or more."""
WEISZFELD_STEPS, CLOSEST = 30, 1e-3
"""Steps of the geometric median, and its least distance as a share of the median one, so that no weight is infinite."""
CLIPPING_STEPS = 5


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


@dataclass(frozen=True, eq=False)
class Stack:
    """What an aggregator is given.

    Parameters
    ----------
    shape
        Of the federated tensor.
    arrays, grids, weights
        Each client's tensor, its index in the federated one along every axis, and how much the client counts.
    ratio
        Noise variance over prior variance of a matching; 0 for the head.
    start
        The federated tensor that clients began with, where they did.
    """

    shape: tuple[int, ...]
    arrays: tuple[NDArray[Any], ...]
    grids: tuple[tuple[Indices, ...], ...]
    weights: tuple[float, ...]
    ratio: float
    start: NDArray[Any] | None = None

    def sums(self) -> tuple[Floats, Floats]:
        """The weighted sum, and the weight of the holders of each row, to be divided by."""
        total, held = np.zeros(self.shape), np.zeros(self.shape[0])
        for array, grid, weight in zip(self.arrays, self.grids, self.weights, strict=True):
            total[np.ix_(*grid)] += weight * array.astype(np.float64)
            held[grid[0]] += weight
        return total, held.reshape(-1, *[1] * (total.ndim - 1))

    def ordered(self, statistic: Callable[[Floats, Indices], Floats]) -> Floats:
        """Apply a statistic to the sorted values of the holders, some rows at a time.

        ``statistic`` gets ``(J, rows, columns)``, sorted, the holders first, and ``(rows,)`` how many they are.
        """
        rows, columns = self.shape[0], int(np.prod(self.shape[1:], dtype=np.intp))
        step = max(1, SORTED_AT_ONCE // (len(self.arrays) * columns))
        result = np.zeros((rows, columns))
        for start in range(0, rows, step):
            values = np.full((len(self.arrays), min(step, rows - start), columns), np.inf)
            held = np.zeros(values.shape[1], np.intp)
            for values_of_client, array, grid in zip(values, self.arrays, self.grids, strict=True):
                here = (grid[0] >= start) & (grid[0] < start + step)
                at = grid[0][here] - start
                # A holder's absent inputs are zero; rows of others stay at infinity, behind all holders.
                values_of_client[at] = 0.0
                inputs = np.zeros(1, np.intp) if len(grid) == 1 else grid[1]
                values_of_client[np.ix_(at, inputs)] = array[here].reshape(len(at), len(inputs))
                held[at] += 1
            values.sort(axis=0)
            result[start : start + step] = np.where(held[:, None] > 0, statistic(values, held), 0.0)
        return result.reshape(self.shape)


Stacks: TypeAlias = Mapping[str, Stack]
"""All tensors of all clients, by the tensor's name."""


@dataclass(frozen=True)
class Aggregator:
    """A way to average the tensors of several clients.

    Parameters
    ----------
    combine
        From one tensor of all clients, each with its place, to the federated one.
    by_size
        Whether clients count by their data size; equally otherwise.
    prepare
        Looks at all tensors together first, and gives them with other weights or values.
    robust
        Whether it bounds what one client in five can do, so that it is used for heads, too.
    """

    name: str
    label: str
    order: int
    combine: Callable[[Stack], Floats]
    by_size: bool = False
    prepare: Callable[[Stacks], Stacks] = lambda stacks: stacks
    robust: bool = False


aggregators: Shelf[Aggregator] = Shelf("average", __name__, "fedprognos.aggregators")
AggregatorName = Annotated[str, AfterValidator(aggregators.valid_name)]
"""The name of an aggregator on the shelf, in options."""


def mean(stack: Stack) -> Floats:
    """Weighted mean over the holders of each row; zero where there are none."""
    total, held = stack.sums()
    return total / np.where(held > 0, held, 1.0)


def map_mean(stack: Stack) -> Floats:
    """Drawn towards zero, more strongly the fewer clients hold a row; the head is not drawn."""
    total, held = stack.sums()
    return total / np.where(held > 0, held + stack.ratio, 1.0)


def median(stack: Stack) -> Floats:
    """Coordinate-wise median over the holders of each row."""

    def middle(ordered: Floats, held: Indices) -> Floats:
        last = np.maximum(held - 1, 0)
        low, high = (np.take_along_axis(ordered, k[None, :, None], axis=0)[0] for k in (last // 2, last - last // 2))
        return np.asarray((low + high) / 2)

    return stack.ordered(middle)


def trimmed_mean(stack: Stack) -> Floats:
    """Coordinate-wise mean over the holders of each row, the lowest and highest share left out."""

    def inner(ordered: Floats, held: Indices) -> Floats:
        out = np.where(held >= 3, np.maximum(np.floor(TRIM * held), 1), 0)
        rank = np.arange(len(ordered))[:, None]
        kept = (rank >= out) & (rank < held - out)
        total = np.where(kept[:, :, None], ordered, 0.0).sum(axis=0)
        return np.asarray(total / np.maximum(kept.sum(axis=0), 1)[:, None])

    return stack.ordered(inner)


@dataclass(frozen=True, eq=False)
class WholeModels:
    """Models of J clients, one row each: what rules that compare whole models work on.

    Parameters
    ----------
    values, held : (J, P)
        Every client's weights at their places in the federated model, and whether the client has that neuron.
    weights : (J,)
        How much each client counts.
    median, start : (P,)
        The coordinate-wise median of the holders; where the round began, the median where that is not known.
    """

    stacks: Stacks
    values: Floats
    held: Floats
    weights: Floats
    median: Floats
    start: Floats

    @staticmethod
    def from_stacks(stacks: Stacks) -> WholeModels:
        """Lay every tensor out flat."""
        values, held, starts = [], [], []
        for stack in stacks.values():
            dense = np.zeros((len(stack.arrays), *stack.shape))
            mask = np.zeros_like(dense)
            for dense_of_client, held_by_client, array, grid in zip(
                dense, mask, stack.arrays, stack.grids, strict=True
            ):
                dense_of_client[np.ix_(*grid)] = array
                held_by_client[grid[0]] = 1.0
            values.append(dense.reshape(len(dense), -1))
            held.append(mask.reshape(len(dense), -1))
            starts.append(None if stack.start is None else np.asarray(stack.start, np.float64).reshape(-1))
        flat, masks = np.concatenate(values, axis=1), np.concatenate(held, axis=1)
        anyone_holds, median = masks.any(axis=0), np.zeros(flat.shape[1])
        median[anyone_holds] = np.nanmedian(np.where(masks > 0, flat, np.nan)[:, anyone_holds], axis=0)
        given = [tensor for tensor in starts if tensor is not None]
        start = np.concatenate(given) if len(given) == len(starts) else median
        return WholeModels(stacks, flat, masks, np.array(next(iter(stacks.values())).weights), median, start)

    def mean(self, values: Floats | None = None, weights: Floats | None = None) -> Floats:
        """Mean (P,) over the holders."""
        w = (self.weights if weights is None else weights)[:, None] * self.held
        total = (w * (self.values if values is None else values)).sum(axis=0)
        return np.asarray(total / np.where(w.sum(axis=0) > 0, w.sum(axis=0), 1.0))

    def distances_to(self, centre: Floats) -> Floats:
        """Distance (J,) of each client to a model (P,), over the neurons it has, as if it had all of them."""
        squared = (np.square(self.values - centre) * self.held).sum(axis=1)
        return np.asarray(np.sqrt(squared * self.held.shape[1] / np.maximum(self.held.sum(axis=1), 1.0)))

    def distances(self) -> Floats:
        """Distances (J, J) between clients, over the neurons that both have, as if these were all."""
        squares = np.square(self.values) @ self.held.T
        common = self.held @ self.held.T
        squared = squares + squares.T - 2 * self.values @ self.values.T
        scaled = np.maximum(squared, 0.0) * self.held.shape[1] / np.maximum(common, 1.0)
        return np.asarray(np.sqrt(np.where(common > 0, scaled, np.median(scaled))))

    def with_weights(self, weights: Floats) -> Stacks:
        """The tensors, every client counting as much as this."""
        given = tuple(float(w) for w in weights)
        return {name: replace(stack, weights=given) for name, stack in self.stacks.items()}

    def drawn_to(self, centre: Floats, factors: Floats) -> Stacks:
        """The tensors, each client's difference to the centre (P,) shortened by its factor."""
        shorter = centre + factors[:, None] * (self.values - centre)
        stacks, at = {}, 0
        for name, stack in self.stacks.items():
            size = int(np.prod(stack.shape, dtype=np.intp))
            dense = shorter[:, at : at + size].reshape(len(shorter), *stack.shape)
            arrays = tuple(
                dense_of_client[np.ix_(*grid)] for dense_of_client, grid in zip(dense, stack.grids, strict=True)
            )
            stacks[name] = replace(stack, arrays=arrays)
            at += size
        return stacks


def on_whole_models(rule: Callable[[WholeModels], Stacks]) -> Callable[[Stacks], Stacks]:
    """A rule on whole models as an aggregator's `prepare`; two clients or fewer are left as they are."""

    def prepare(stacks: Stacks) -> Stacks:
        models = WholeModels.from_stacks(stacks)
        return rule(models) if len(models.values) > 2 else stacks

    return prepare


def geometric_median(models: WholeModels) -> Stacks:
    """The geometric median of the clients' models (Pillutla et al., 2022), by Weiszfeld's steps.

    It is the point with the least weighted sum of distances to all models: half of the weight may be anywhere.
    """
    weights, centre = models.weights, models.median
    for _ in range(WEISZFELD_STEPS):
        distances = models.distances_to(centre)
        least = CLOSEST * max(float(np.median(distances)), 1e-12)
        weights = models.weights / np.maximum(distances, least)
        centre = models.mean(weights=weights)
    return models.with_weights(weights / weights.sum() * models.weights.sum())


def multi_krum(models: WholeModels) -> Stacks:
    """Multi-Krum (Blanchard et al., 2017): the mean of the clients that lie closest to others.

    With J clients, f = (J - 3) / 2 of them, at least one, may send anything. A client's score is the sum of its
    squared distances to its J - f - 2 nearest; the J - f clients with the lowest scores are averaged.
    """
    count = len(models.values)
    out = max((count - 3) // 2, 1)
    squared = np.sort(np.square(models.distances()), axis=1)[:, 1:]  # without itself
    scores = squared[:, : max(count - out - 2, 1)].sum(axis=1)
    kept = np.argsort(scores, kind="stable")[: count - out]
    return models.with_weights(np.where(np.isin(np.arange(count), kept), models.weights, 0.0))


def centred_clipping(models: WholeModels) -> Stacks:
    """Centred clipping (Karimireddy, He & Jaggi, 2021): steps towards the clients, none longer than a radius.

    The radius is the median of the clients' distances, so that nobody has to choose it.
    """
    centre, factors = models.start, np.ones(len(models.values))
    for _ in range(CLIPPING_STEPS):
        distances = models.distances_to(centre)
        factors = np.minimum(1.0, np.median(distances) / np.maximum(distances, 1e-300))
        last, centre = centre, models.mean(centre + factors[:, None] * (models.values - centre))
    return models.drawn_to(last, factors)


def norm_bounding(models: WholeModels) -> Stacks:
    """Norm bounding (Sun et al., 2019): no client's change is longer than the median one."""
    lengths = models.distances_to(models.start)
    return models.drawn_to(models.start, np.minimum(1.0, np.median(lengths) / np.maximum(lengths, 1e-300)))


def _robust(name: str, label: str, order: int, rule: Callable[[WholeModels], Stacks]) -> Aggregator:
    return Aggregator(name, label, order, mean, by_size=True, prepare=on_whole_models(rule), robust=True)


for _aggregator in (
    Aggregator("mean", "mean", 10, mean),
    Aggregator("weighted", "mean weighted by data size", 20, mean, by_size=True),
    Aggregator("map", "maximum a posteriori mean", 30, map_mean),
    Aggregator("median", "median", 40, median, robust=True),
    Aggregator("trimmed", "trimmed mean", 50, trimmed_mean, robust=True),
    _robust("geometric", "geometric median", 60, geometric_median),
    _robust("krum", "multi-Krum", 70, multi_krum),
    _robust("clipped", "centred clipping", 80, centred_clipping),
    _robust("bounded", "norm bounding", 90, norm_bounding),
):
    aggregators.add(_aggregator)


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
