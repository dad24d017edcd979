"""``absorb``: keep the neurons that earn their place, and let them stand in for all the others.

What two neurons extract is a question about their outputs, and sums over these answer it. A neuron that others predict
is dropped; whatever read it reads those others instead, with the weights of the prediction. ``absorb_reference.py`` is
the mathematics line by line; this is the whole of it for stacked layers, with checks, and fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np

from fedprognos.errors import ConfigError, DataError
from fedprognos.matching.absorb.elimination import Absorbed, Elimination, head_regression, shares, solve_covariance
from fedprognos.matching.absorb.output_sums import LabelledSums, OutputSums
from fedprognos.matching.arguments import Floats, Indices, LinearWeights, RecurrentWeights, check_whole

Layer: TypeAlias = RecurrentWeights | LinearWeights
Tensors: TypeAlias = dict[str, Floats]
LayerLeft: TypeAlias = tuple[Indices, tuple[Absorbed, ...], Mapping[int, float], Floats]
"""What is left of one layer: neurons kept, those absorbed, losses by width, mixture; see :class:`Absorption`."""
ALPHA = 0.3
"""Weight of the gates against the head by default; 0.1 to 1 did equally well, 10 did worse."""
RIDGE = 10.0**-3.5
"""Strength of the head's penalty by default, here and in `federation.ridge`."""


@dataclass(frozen=True, eq=False)
class Absorption:
    """A smaller network, and how it came about. All tuples have one entry for each layer.

    Parameters
    ----------
    layers
        The small arrays, of the same types as the large ones.
    kept
        ``(K,)`` indices of the neurons that stayed, ascending: neuron i of the small layer was ``kept[i]``.
    absorbed
        The neurons that went, in order, with their partners.
    losses
        Predicted loss at every width from N to 1, also below K. For the last layer the penalised loss of the head,
        MSE + lambda |v|^2, of standardised labels. For a layer below, 1 plus the missed share of what the next layer
        reads.
    mixtures
        ``(N, K)``: every neuron as a combination of those kept; a kept one is itself.
    """

    layers: tuple[Layer, ...]
    kept: tuple[Indices, ...]
    absorbed: tuple[tuple[Absorbed, ...], ...]
    losses: tuple[Mapping[int, float], ...]
    mixtures: tuple[Floats, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """K of every layer."""
        return tuple(len(kept) for kept in self.kept)


def absorb(
    layers: Sequence[Layer],
    sums: Sequence[OutputSums],
    *,
    width: int | Sequence[int],
    alpha: float = ALPHA,
    ridge: float = RIDGE,
    head: OutputSums | None = None,
) -> Absorption:
    """Shrink a network to the neurons whose outputs the others do not predict.

    Neurons go one at a time, the cheapest first, and exact combinations of others before all the rest. What goes is
    replaced by its least-squares prediction: in the layer's own recurrent weights and biases, and in the input
    weights and biases of the next layer. An LSTM's cell state is private to its neuron, so outputs are all there is
    to replace.

    Parameters
    ----------
    layers
        From the input on, without the head: :class:`LinearWeights` and :class:`RecurrentWeights` of any gated cell
        whose recurrent weights and ``bias_hh`` act on h together. Networks of several clients come side by side, as
        one block-diagonal network.
    sums
        Of every layer's outputs; those of the last with labels.
    width
        Neurons to keep: one number for all layers, or one for each. A layer that is narrower stays as it is.
    alpha
        Weight of what a layer's own gates would miss, against what the head or the next layer would.
    ridge
        Strength of the head's penalty, relative to the mean square of its features.
    head
        Sums of what the head reads, where that is not the last layer's outputs at every step. It may read further
        features after the layer's neurons; these stay.

    Returns
    -------
    Absorption

    Notes
    -----
    The order of the neurons changes nothing but rounding: they are sorted by their sums first. A step costs O(N^2).

    Examples
    --------
    Two clients hold the same GRU, one with its neurons in reverse order. Side by side they make six neurons, of which
    three do for all:

    >>> from fedprognos.matching import RecurrentWeights
    >>> rng = np.random.default_rng(0)
    >>> h = np.tanh(rng.normal(size=(20, 30, 3)))  # outputs of the three neurons on 20 sequences of 30 steps
    >>> both = np.concatenate([h, h[:, :, ::-1]], axis=2)
    >>> def side_by_side(w):  # one block for each client, in each of the three gates
    ...     zero = np.zeros_like(w)
    ...     return np.block([[w, zero], [zero, w[::-1, ::-1]]])
    >>> hh = np.concatenate([side_by_side(w) for w in rng.normal(size=(3, 3, 3))])
    >>> layer = RecurrentWeights(rng.normal(size=(18, 2)), hh, rng.normal(size=18), rng.normal(size=18))
    >>> small = absorb([layer], [OutputSums.from_outputs(both, labels=h.sum(axis=2))], width=3)
    >>> sorted({0: 0, 1: 1, 2: 2, 3: 2, 4: 1, 5: 0}[k] for k in small.kept[0].tolist())
    [0, 1, 2]
    >>> [(a.redundant, round(a.r2, 6)) for a in small.absorbed[0]]
    [(True, 1.0), (True, 1.0), (True, 1.0)]
    """
    for name, value in (("alpha", alpha), ("ridge", ridge)):
        if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be a number of at least 0, got {value!r}")
    tensors, read_by_head = checked_network(layers, sums, head)
    sizes = [layer_sums.width for layer_sums in sums]
    widths = checked_widths(width, sizes)

    # Sort the neurons by their sums first, so that the order of clients and of neurons changes nothing.
    orders = [np.lexsort((layer_sums.s, layer_sums.S.diagonal())) for layer_sums in sums]
    orders[-1] = np.lexsort((read_by_head.q[: sizes[-1]], sums[-1].s, sums[-1].S.diagonal()))
    tensors = reordered(tensors, orders)
    sums = [layer_sums.take(order) for layer_sums, order in zip(sums, orders, strict=True)]
    staying_features = np.arange(sizes[-1], read_by_head.width)
    read_by_head = read_by_head.take(np.concatenate([orders[-1], staying_features]))
    C_head, c_head, sd_head, *_ = regression = head_regression(read_by_head, sizes[-1], ridge)

    # The last layer first: which neurons a layer needs depends on what is left of the layer that reads it.
    last = len(layers) - 1
    left: list[LayerLeft] = []
    importance = np.empty(0)  # of the neurons left in the layer above
    for k in range(last, -1, -1):
        recurrent_weights = tensors[k].get("weight_hh", np.zeros((0, sizes[k]))).reshape(-1, sizes[k], sizes[k])
        if k == last:
            elimination = Elimination(sums[k], recurrent_weights, alpha, head=regression)
        else:
            above = tensors[k + 1]["weight_ih"]
            row_weights = np.tile(importance, len(above) // len(importance))
            elimination = Elimination(sums[k], recurrent_weights, alpha, above=above, row_weights=row_weights)
        left.insert(0, eliminated(elimination, sizes[k], widths[k]))
        stay, *_, mixture = left[0]
        let_stand_in(tensors, k, stay, mixture, elimination.mean, elimination.level)
        if k == last:
            v = solve_covariance(C_head[np.ix_(stay, stay)], c_head[stay])
            used = np.abs(v) * sd_head[stay]
        else:
            used = np.sqrt(row_weights @ tensors[k + 1]["weight_ih"] ** 2) * elimination.sd[stay]
        importance = shares(used, np.ones(len(stay), bool))

    # Back to the order, and the types, that were given.
    places = [np.argsort(order[stay]) for order, (stay, *_) in zip(orders, left, strict=True)]
    small = [as_given(layer, arrays) for layer, arrays in zip(layers, reordered(tensors, places), strict=True)]
    kept, absorbed, losses, mixtures = zip(*map(in_given_order, orders, left), strict=True)
    return Absorption(tuple(small), kept, absorbed, losses, mixtures)


def eliminated(elimination: Elimination, size: int, width: int) -> LayerLeft:
    """Let all neurons but one go in turn; those beyond the width only give losses."""
    first_loss, order_of_going = elimination.loss, elimination.run()
    gone = tuple(order_of_going[: size - width])
    kept = np.setdiff1d(np.arange(size), [a.neuron for a in gone])
    losses = dict(zip(range(size, 0, -1), [first_loss, *(a.loss for a in order_of_going)], strict=True))
    return kept, gone, losses, elimination.mixture(kept)


def in_given_order(order: Indices, left: LayerLeft) -> LayerLeft:
    """The same with the neurons numbered as they were given: neuron i of a sorted layer was ``order[i]``."""
    kept, gone, losses, sorted_mixture = left
    places = np.argsort(order[kept])
    mixture = np.empty_like(sorted_mixture)
    mixture[order] = sorted_mixture[:, places]
    absorbed = [replace(a, neuron=int(order[a.neuron]), partners=tuple(order[list(a.partners)].tolist())) for a in gone]
    return order[kept][places], tuple(absorbed), losses, mixture


def let_stand_in(tensors: list[Tensors], k: int, kept: Indices, mixture: Floats, mean: Floats, level: Floats) -> None:
    """Let the neurons kept in layer k stand in for the others, in ``tensors`` of this layer and the next.

    All at once, because successive least-squares predictions compose to one.

    Parameters
    ----------
    mean, level
        ``(N,)`` mean outputs with and without the zeros that sequences start with.
    """
    gone = np.setdiff1d(np.arange(len(mean)), kept)
    beta = mixture[gone]
    cut = {name: by_gate(array, len(mean))[:, kept] for name, array in tensors[k].items()}
    if "weight_hh" in cut:
        lost = cut["weight_hh"][:, :, gone]
        cut["weight_hh"] = cut["weight_hh"][:, :, kept] + lost @ beta
        cut["bias_hh"] = cut["bias_hh"] + lost @ (mean[gone] - beta @ mean[kept])
    tensors[k] = {name: array.reshape(-1, *array.shape[2:]) for name, array in cut.items()}
    if k + 1 < len(tensors):
        # The next layer reads outputs of the same step, never the zeros that sequences start with.
        above = dict(tensors[k + 1])
        lost = above["weight_ih"][:, gone]
        above["weight_ih"] = above["weight_ih"][:, kept] + lost @ beta
        above["bias_ih"] = above["bias_ih"] + lost @ (level[gone] - beta @ level[kept])
        tensors[k + 1] = above


def checked_network(
    layers: Sequence[Layer], sums: Sequence[OutputSums], head: OutputSums | None
) -> tuple[list[Tensors], LabelledSums]:
    """The tensors of every layer in float64, and the sums that the head reads; refuses what does not fit."""
    if not layers or len(layers) != len(sums):
        raise DataError(f"{len(layers)} layers and sums of {len(sums)}", hint="pass the sums of every layer's outputs")
    tensors, inputs = [], None
    for k, layer in enumerate(layers):
        if k and isinstance(layer, LinearWeights):
            raise DataError("only the first layer can be linear", where=f"layer {k}")
        sums[k].check(bounded=False, where=f"layer {k}")
        tensors.append(checked_layer(f"layer {k}", layer, sums[k], inputs))
        inputs = sums[k].width
    read_by_head = sums[-1] if head is None else head
    if not isinstance(read_by_head, LabelledSums) or read_by_head.width < sums[-1].width:
        hint = "pass labels to OutputSums.from_outputs for the last layer"
        raise DataError("the head's sums lack labels or neurons", hint=hint)
    return tensors, read_by_head if head is None else checked_head(read_by_head)


def checked_layer(where: str, layer: Layer, sums: OutputSums, inputs: int | None) -> Tensors:
    """A layer's tensors in float64, of shapes that fit its sums and the layer below."""
    tensors = {f.name: np.asarray(getattr(layer, f.name), np.float64) for f in fields(layer)}
    first = "weight_ih" if isinstance(layer, RecurrentWeights) else "weight"
    rows, width = tensors[first].shape[0] if tensors[first].ndim else 0, sums.width
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(tensors, (rows,))
    shapes[first] = (rows, tensors[first].shape[-1] if inputs is None else inputs)
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
        raise DataError("sums without labels", where="head", hint="pass labels to OutputSums.from_outputs")
    sums.check(bounded=False, where="head")
    if sums.n < 1:
        raise DataError("the sums are of no rows", where="head")
    return sums


def checked_widths(width: int | Sequence[int], sizes: Sequence[int]) -> list[int]:
    """One width for each layer, none beyond what the layer has."""
    widths = list(width) if isinstance(width, Sequence) else [width] * len(sizes)
    if len(widths) != len(sizes):
        raise ConfigError(f"{len(widths)} widths for {len(sizes)} layers")
    for wanted in widths:
        check_whole("width", wanted, 1)
    return [min(int(wanted), size) for wanted, size in zip(widths, sizes, strict=True)]


def reordered(layers: Sequence[Tensors], orders: Sequence[Indices]) -> list[Tensors]:
    """Layers with their neurons in another order: rows gate by gate, and the columns that read them."""
    result, order_below = [], None
    for tensors, order in zip(layers, orders, strict=True):
        new = {name: by_gate(array, len(order))[:, order] for name, array in tensors.items()}
        if "weight_hh" in new:
            new["weight_hh"] = new["weight_hh"][:, :, order]
        if order_below is not None:
            new["weight_ih"] = new["weight_ih"][:, :, order_below]
        result.append({name: array.reshape(-1, *array.shape[2:]) for name, array in new.items()})
        order_below = order
    return result


def by_gate(array: Floats, width: int) -> Floats:
    """``(U H, ...)`` as ``(U, H, ...)``."""
    return array.reshape(-1, width, *array.shape[1:])


def as_given(layer: Layer, tensors: Tensors) -> Layer:
    """Small tensors in the type of the layer that was given, and in its dtypes."""
    dtypes = {name: np.asarray(getattr(layer, name)).dtype for name in tensors}
    return type(layer)(
        **{name: a.astype(dtypes[name] if dtypes[name].kind == "f" else np.float64) for name, a in tensors.items()}
    )
