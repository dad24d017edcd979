"""A network and its sums in canonical order, and what is left of its layers when neurons go, the last layer first.

Who goes depends on who reads: the head reads the last layer, and what is left of each layer reads the one below. What
a layer looks like afterwards depends only on who is left, because successive least-squares predictions compose to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from fedprognos.errors import DataError
from fedprognos.matching.arrays import Floats, Indices
from fedprognos.matching.elimination import Absorbed, Elimination
from fedprognos.matching.outputs import DEAD, Outputs, outputs_of, ridge_of, solved
from fedprognos.matching.readers import ROUNDING, HeadReader, LayerReader, OutputReader, share_of
from fedprognos.matching.signatures import LinearWeights, RecurrentWeights
from fedprognos.matching.sums import LabelledSums, OutputSums

Layer: TypeAlias = RecurrentWeights | LinearWeights
Tensors: TypeAlias = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class Regression:
    """The head's ridge regression, for the neurons alone: features that stay are solved for already.

    ``C`` is ``(N, N)`` with the penalty on its diagonal, ``c`` ``(N,)``. ``loss`` is the penalised loss with all
    neurons, ``variance`` the labels', ``sd`` the outputs'.
    """

    C: Floats
    c: Floats
    loss: float
    variance: float
    sd: Floats

    def reader(self) -> HeadReader:
        """The head as what prices the neurons."""
        return HeadReader(self.C, self.c, self.loss, self.variance, self.sd)

    def importance(self, kept: Indices) -> Floats:
        """``(K,)`` how much the head uses each of the neurons that are kept."""
        return np.asarray(np.abs(solved(self.C[np.ix_(kept, kept)], self.c[kept])) * self.sd[kept])


@dataclass(frozen=True, eq=False)
class CanonicalNetwork:
    """All that is known before the first neuron goes, in canonical order: ``orders`` lead back to the order given."""

    layers: tuple[Tensors, ...]
    sums: tuple[OutputSums, ...]
    head: Regression
    orders: tuple[Indices, ...]
    given: tuple[Layer, ...]
    outputs: tuple[Outputs, ...]
    alpha: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """N of every layer."""
        return tuple(sums.width for sums in self.sums)

    def restored(self, layers: Sequence[Tensors], places: Sequence[Indices]) -> tuple[Layer, ...]:
        """Small layers with their neurons at their places, in the types that were given."""
        found: list[Layer] = []
        for given, tensors in zip(self.given, arranged(layers, places), strict=True):
            types = {name: np.asarray(getattr(given, name)).dtype for name in tensors}
            cast = {
                name: a.astype(types[name] if types[name].kind == "f" else np.float64) for name, a in tensors.items()
            }
            found.append(type(given)(**cast))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Small layers in canonical order; as in :class:`~fedprognos.matching.Absorption`."""

    layers: tuple[Tensors, ...]
    kept: tuple[Indices, ...]
    absorbed: tuple[Sequence[Absorbed], ...]
    mixtures: tuple[Floats, ...]
    first_losses: tuple[float, ...]


def in_canonical_order(
    layers: Sequence[Layer], sums: Sequence[OutputSums], head: OutputSums | None, alpha: float, ridge: float
) -> CanonicalNetwork:
    """Check what was given and put it in canonical order: by content, so that the order of arrival changes nothing."""
    if not layers or len(layers) != len(sums):
        raise DataError(f"{len(layers)} layers and sums of {len(sums)}", hint="pass the sums of every layer's outputs")
    tensors, inputs = [], None
    for k, layer in enumerate(layers):
        if k and isinstance(layer, LinearWeights):
            raise DataError("only the first layer can be linear", where=f"layer {k}")
        sums[k].check(bounded=False, where=f"layer {k}")
        tensors.append(checked_layer(f"layer {k}", layer, sums[k], inputs))
        inputs = sums[k].width
    read = sums[-1] if head is None else head
    if not isinstance(read, LabelledSums) or read.width < sums[-1].width:
        raise DataError(
            "the head's sums lack labels or neurons", hint="pass labels to OutputSums.of for the last layer"
        )
    if head is not None:
        checked_head(read)
    orders = [np.lexsort((one.s, one.S.diagonal())) for one in sums]
    orders[-1] = np.lexsort((read.q[: sums[-1].width], sums[-1].s, sums[-1].S.diagonal()))
    extra = np.arange(sums[-1].width, read.width)
    sorted_sums = [one.take(order) for one, order in zip(sums, orders, strict=True)]
    return CanonicalNetwork(
        arranged(tensors, orders),
        tuple(sorted_sums),
        regression(read.take(np.concatenate([orders[-1], extra])), sums[-1].width, ridge),
        tuple(orders),
        tuple(layers),
        tuple(outputs_of(one, recurrent="weight_hh" in t) for one, t in zip(sorted_sums, tensors, strict=True)),
        alpha,
    )


def checked_layer(where: str, layer: Layer, sums: OutputSums, inputs: int | None) -> Tensors:
    """A layer's tensors in float64, of shapes that fit its sums and the layer below."""
    tensors = {f.name: np.asarray(getattr(layer, f.name), np.float64) for f in fields(layer)}
    first = tensors["weight_ih" if isinstance(layer, RecurrentWeights) else "weight"]
    rows, width = first.shape[0] if first.ndim else 0, sums.width
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(tensors, (rows,))
    shapes["weight_ih" if "weight_ih" in tensors else "weight"] = (rows, first.shape[-1] if inputs is None else inputs)
    if "weight_hh" in tensors:
        shapes["weight_hh"] = (rows, width)
    for name, array in tensors.items():
        if array.shape != shapes[name]:
            raise DataError(f"{name} has shape {array.shape} instead of {shapes[name]}", where=where)
        if not np.isfinite(array).all():
            raise DataError(f"{name} holds NaN or infinity", where=where)
    if rows % width or (rows != width and "weight" in tensors):
        raise DataError(f"{rows} rows of weights for sums of {width} neurons", where=where)
    if sums.n < 1:
        raise DataError("the sums are of no rows", where=where)
    return tensors


def checked_head(sums: OutputSums) -> LabelledSums:
    """The sums that a head is solved from."""
    if not isinstance(sums, LabelledSums):
        raise DataError("sums without labels", where="head", hint="pass labels to OutputSums.of")
    sums.check(bounded=False, where="head")
    if sums.n < 1:
        raise DataError("the sums are of no rows", where="head")
    return sums


def arranged(layers: Sequence[Tensors], orders: Sequence[Indices]) -> tuple[Tensors, ...]:
    """Layers with their neurons in another order: rows gate by gate, and the columns that read them."""
    found, below = [], None
    for tensors, order in zip(layers, orders, strict=True):
        new = {name: by_gate(array, len(order))[:, order] for name, array in tensors.items()}
        if "weight_hh" in new:
            new["weight_hh"] = new["weight_hh"][:, :, order]
        if below is not None:
            new["weight_ih"] = new["weight_ih"][:, :, below]
        found.append({name: array.reshape(-1, *array.shape[2:]) for name, array in new.items()})
        below = order
    return tuple(found)


def by_gate(array: Floats, width: int) -> Floats:
    """``(U H, ...)`` as ``(U, H, ...)``."""
    return array.reshape(-1, width, *array.shape[1:])


def regression(sums: LabelledSums, neurons: int, ridge: float) -> Regression:
    """The regression of the labels on the outputs of so many neurons, and on features after them that stay."""
    mean, C = sums.moments(starts=False)
    c, label = sums.q / sums.n - mean * (sums.y / sums.n), sums.y / sums.n
    variance = sums.yy / sums.n - label**2
    variance = variance if variance > ROUNDING * sums.yy / sums.n else 0.0  # labels that are all the same
    sd = np.sqrt(np.maximum(C.diagonal(), 0.0))
    # The penalty is frozen while neurons go. Without any, the covariance of copies could not be inverted.
    penalty = max(ridge * float(np.mean(sums.S.diagonal())) / sums.n, ridge_of(C, sums))
    C = C + penalty * np.eye(sums.width)
    loss, own, rest = variance, slice(neurons), slice(neurons, None)
    if neurons < sums.width:
        slopes = solved(C[rest, rest], np.column_stack([C[rest, own], c[rest]]))
        loss, slopes = loss - float(c[rest] @ slopes[:, -1]), slopes[:, :-1]
        C, c = C[own, own] - C[own, rest] @ slopes, c[own] - c[rest] @ slopes
    C, c = C[own, own], c[own]
    loss = max(loss - float(c @ solved(C, c)), 0.0)
    return Regression(C, c, loss, variance or 1.0, sd[own])


def eliminated(
    network: CanonicalNetwork, k: int, reader: OutputReader, width: int, tolerance: float | None
) -> list[Absorbed]:
    """Who goes from layer k, in order."""
    size = network.sizes[k]
    own = network.layers[k].get("weight_hh", np.zeros((0, size))).reshape(-1, size, size)
    return Elimination(network.outputs[k], own, reader, network.alpha).run(width, tolerance)


def shrink(
    network: CanonicalNetwork, widths: Sequence[int], last: Sequence[Absorbed], tolerance: float | None = None
) -> Shrunk:
    """Take neurons out of every layer; ``last`` are those of the last one, in order."""
    layers = list(network.layers)
    found: list[tuple[Indices, Sequence[Absorbed], Floats, float]] = []
    importance = np.empty(0)
    for k in range(len(layers) - 1, -1, -1):
        if k == len(layers) - 1:
            gone, before = list(last[: network.sizes[k] - widths[k]]), network.head.loss
        else:
            C, sd = network.sums[k].moments(starts=False)[1], network.outputs[k].sd
            read = layers[k + 1]["weight_ih"].reshape(-1, len(importance), network.sizes[k])
            gone, before = eliminated(network, k, LayerReader(read, importance, C, sd), widths[k], tolerance), 1.0
        left = np.setdiff1d(np.arange(network.sizes[k]), [a.neuron for a in gone])
        mixture = without(network, layers, k, left)
        if k == len(layers) - 1:
            importance = network.head.importance(left)
        else:
            weights = np.tile(importance, len(layers[k + 1]["bias_ih"]) // len(importance))
            importance = np.sqrt(weights @ layers[k + 1]["weight_ih"] ** 2) * sd[left]
        importance = share_of(importance, np.ones(len(left), bool))
        found.append((left, gone, mixture, before))
    kept, absorbed, mixtures, first = zip(*reversed(found), strict=True)
    return Shrunk(tuple(layers), kept, absorbed, mixtures, first)


def without(network: CanonicalNetwork, layers: list[Tensors], k: int, kept: Indices) -> Floats:
    """Let the neurons kept in layer k stand in for the others, in place; returns the mixture ``(N, K)``."""
    outputs = network.outputs[k]
    mean, level = outputs.mean, outputs.level
    mixture = predicted(outputs, kept)
    gone = np.setdiff1d(np.arange(len(mean)), kept)
    beta = mixture[gone]
    own = {name: by_gate(array, len(mean))[:, kept] for name, array in layers[k].items()}
    if "weight_hh" in own:
        lost = own["weight_hh"][:, :, gone]
        own["weight_hh"] = own["weight_hh"][:, :, kept] + lost @ beta
        own["bias_hh"] = own["bias_hh"] + lost @ (mean[gone] - beta @ mean[kept])
    layers[k] = {name: array.reshape(-1, *array.shape[2:]) for name, array in own.items()}
    if k + 1 < len(layers):
        # The next layer reads outputs of the same step, never the zeros that sequences begin with.
        above = dict(layers[k + 1])
        lost = above["weight_ih"][:, gone]
        above["weight_ih"] = above["weight_ih"][:, kept] + lost @ beta
        above["bias_ih"] = above["bias_ih"] + lost @ (level[gone] - beta @ level[kept])
        layers[k + 1] = above
    return mixture


def predicted(outputs: Outputs, kept: Indices) -> Floats:
    """``(N, K)`` the combination of those kept that predicts each neuron; a copy is predicted by its one like alone."""
    C, size = outputs.C, len(kept)
    mixture = np.zeros((len(C), size))
    mixture[kept, np.arange(size)] = 1.0
    gone = np.setdiff1d(np.arange(len(C)), kept)
    mixture[gone] = solved(C[np.ix_(kept, kept)], C[np.ix_(kept, gone)]).T
    place = dict(zip(outputs.label[kept].tolist(), range(size), strict=True))
    for m in gone:
        label = int(outputs.label[m])
        if label == DEAD or label in place:
            mixture[m] = 0.0
        if label != DEAD and label in place:
            j = kept[place[label]]
            mixture[m, place[label]] = C[m, j] / (C[j, j] - outputs.delta)
    return mixture
