"""``absorb``: keep the extractors that earn their place, and let them stand in for all the others.

What two neurons extract is a question about their outputs, and sums over these answer it. A neuron that others predict
is dropped; whoever read it reads those others instead, with the weights of the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprognos.errors import ConfigError
from fedprognos.matching.arrays import Floats, Indices
from fedprognos.matching.elimination import Absorbed
from fedprognos.matching.options import check_whole
from fedprognos.matching.shrinking import CanonicalNetwork, Layer, Shrunk, eliminated, in_canonical_order, shrink
from fedprognos.matching.sums import OutputSums


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
        Who went, in order, with its partners.
    losses
        Predicted loss at every width passed, from N down to K. For the last layer the penalised loss of the head,
        MSE + lambda |v|^2, of standardised labels. For a layer below, 1 plus the share of what the next layer reads
        that is missed.
    mixtures
        ``(N, K)``: every neuron as a combination of those kept; a kept one is itself.
    """

    layers: tuple[Layer, ...]
    kept: tuple[Indices, ...]
    absorbed: tuple[tuple[Absorbed, ...], ...]
    losses: tuple[Mapping[int, float], ...]
    mixtures: tuple[Floats, ...]
    _network: CanonicalNetwork = field(repr=False)
    _last: Sequence[Absorbed] = field(repr=False)

    @property
    def widths(self) -> tuple[int, ...]:
        """K of every layer."""
        return tuple(len(kept) for kept in self.kept)

    def at(self, width: int | Sequence[int]) -> Absorption:
        """The same elimination stopped earlier, at a larger width (one number, or one for each layer).

        The last layer is not eliminated again, so further widths cost little. Layers below are, because what they
        have to tell depends on who reads them.
        """
        widths = widths_for(self._network, width)
        least = self._network.sizes[-1] - len(self._last)
        if widths[-1] < least:
            raise ConfigError(f"width {widths[-1]} is below {least}", hint="absorb to the smallest width first")
        return described(self._network, shrink(self._network, widths, self._last), self._last)


def absorb(
    layers: Sequence[Layer],
    sums: Sequence[OutputSums],
    *,
    width: int | Sequence[int] | None = None,
    tolerance: float | None = None,
    alpha: float = 0.3,
    ridge: float = 10.0**-3.5,
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
    tolerance
        Stop before the predicted loss exceeds that of keeping everything by more than this share. With ``width``,
        whatever comes first.
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
    >>> h = np.tanh(rng.normal(size=(20, 30, 3)))  # what the three neurons put out on 20 sequences of 30 steps
    >>> both = np.concatenate([h, h[:, :, ::-1]], axis=2)
    >>> def side_by_side(w):  # one block for each client, in each of the three gates
    ...     zero = np.zeros_like(w)
    ...     return np.block([[w, zero], [zero, w[::-1, ::-1]]])
    >>> hh = np.concatenate([side_by_side(w) for w in rng.normal(size=(3, 3, 3))])
    >>> layer = RecurrentWeights(rng.normal(size=(18, 2)), hh, rng.normal(size=18), rng.normal(size=18))
    >>> small = absorb([layer], [OutputSums.of(both, labels=h.sum(axis=2))], width=3)
    >>> sorted({0: 0, 1: 1, 2: 2, 3: 2, 4: 1, 5: 0}[k] for k in small.kept[0].tolist())
    [0, 1, 2]
    >>> [(a.redundant, round(a.r2, 6)) for a in small.absorbed[0]]
    [(True, 1.0), (True, 1.0), (True, 1.0)]
    """
    if width is None and tolerance is None:
        raise ConfigError("nothing says how far to absorb", hint="pass width, tolerance or both")
    for name, value in (("tolerance", tolerance), ("alpha", alpha), ("ridge", ridge)):
        missing = value is None and name == "tolerance"
        if not missing and not (isinstance(value, int | float | np.number) and np.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be a number of at least 0, got {value!r}")
    network = in_canonical_order(layers, sums, head, alpha, ridge)
    widths = widths_for(network, 1 if width is None else width)
    last = eliminated(network, len(layers) - 1, network.head.reader(), widths[-1], tolerance)
    return described(network, shrink(network, widths, last, tolerance), last)


def widths_for(network: CanonicalNetwork, width: int | Sequence[int]) -> tuple[int, ...]:
    """One width for each layer, none beyond what the layer has."""
    widths = list(width) if isinstance(width, Sequence) else [width] * len(network.sizes)
    if len(widths) != len(network.sizes):
        raise ConfigError(f"{len(widths)} widths for {len(network.sizes)} layers")
    for one in widths:
        check_whole("width", one, 1)
    return tuple(min(int(one), size) for one, size in zip(widths, network.sizes, strict=True))


def described(network: CanonicalNetwork, shrunk: Shrunk, last: Sequence[Absorbed]) -> Absorption:
    """The result in the order and the types of the network that was given."""
    kept, mixtures, absorbed, losses, places = [], [], [], [], []
    for k, order in enumerate(network.orders):
        before = order[shrunk.kept[k]]
        places.append(np.argsort(before))
        kept.append(before[places[k]])
        mixture = np.empty_like(shrunk.mixtures[k])
        mixture[order] = shrunk.mixtures[k][:, places[k]]
        mixtures.append(mixture)
        absorbed.append(tuple(a.renamed(order) for a in shrunk.absorbed[k]))
        widths = range(len(order), len(order) - len(absorbed[k]) - 1, -1)
        losses.append(dict(zip(widths, [shrunk.first_losses[k], *(a.loss for a in absorbed[k])], strict=True)))
    layers = network.restored(shrunk.layers, places)
    return Absorption(layers, tuple(kept), tuple(absorbed), tuple(losses), tuple(mixtures), network, last)
