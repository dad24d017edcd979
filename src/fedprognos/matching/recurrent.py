"""``match_recurrent``: matching the neurons of a LSTM or GRU layer by their input and recurrent weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import DataError, unknown_name
from fedprognos.matching.arrays import AnyArray, Indices
from fedprognos.matching.matcher import Options, match_sides, whole
from fedprognos.matching.problem import Side, canonical, checked_counts
from fedprognos.matching.result import Matching
from fedprognos.matching.signatures import (
    RecurrentWeights,
    checked_weights,
    hidden_dimensions,
    hidden_signature,
    recurrent_signature,
)

SIGNATURES = ("ih", "ih+hh")


@dataclass(frozen=True, eq=False)
class RecurrentAnchor:
    """A previous global layer to match against; ``counts`` as for :class:`~fedprognos.matching.Anchor`."""

    weights: RecurrentWeights
    counts: ArrayLike | None = None


def match_recurrent(
    clients: Mapping[str, RecurrentWeights],
    *,
    cell: str = "lstm",
    signature: str = "ih+hh",
    rounds: int = 5,
    cost: str = "spahm",
    sigma: float | None = None,
    sigma0: float | None = None,
    gamma: float = 1.0,
    estimate: bool = True,
    sweeps: int = 10,
    seed: int = 0,
    sizes: Mapping[str, float] | None = None,
    anchor: RecurrentAnchor | None = None,
    cap: int | None = None,
    quota: int | None = None,
    solver: str = "scipy",
) -> Matching:
    """Match the neurons of one recurrent layer.

    Input weights and biases alone (``signature="ih"``) leave few dimensions to tell neurons apart when a network has
    few inputs. The recurrent weights have many more, but which column of ``weight_hh`` is which neuron is what the
    matching is to find out. So it is iterated: match on ``ih``, put rows and columns of ``weight_hh`` in the global
    order found, match on ``ih+hh``, and again until the order stays. Columns of global neurons that a client does
    not have are left out of its comparison.

    Parameters
    ----------
    clients
        The layer's weights for each client. Widths may differ, the number of inputs may not.
    cell
        ``"lstm"`` or ``"gru"``.
    signature
        ``"ih+hh"``, or ``"ih"`` for the first step alone.
    rounds
        Matchings on ``ih+hh``, at most.
    anchor
        A previous global layer.
    cost, sigma, sigma0, gamma, estimate, sweeps, seed, sizes, cap, quota, solver
        As in :func:`~fedprognos.matching.match`. Variances are single numbers here.

    Returns
    -------
    Matching
        Of the last round. ``diagnostics.rounds`` counts the one on ``ih`` too.

    Examples
    --------
    A layer with two inputs, and the same layer with its neurons in reverse order:

    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(4, 6, 2)), rng.normal(size=(4, 6, 6)), rng.normal(size=(2, 4, 6))
    >>> def layer(ih, hh, b):
    ...     return RecurrentWeights(ih.reshape(24, 2), hh.reshape(24, 6), b[0].ravel(), b[1].ravel())
    >>> turned = layer(w[0][:, ::-1], w[1][:, ::-1, ::-1], w[2][:, :, ::-1])
    >>> match_recurrent({"a": layer(*w), "b": turned}).assignments["b"].tolist()
    [5, 4, 3, 2, 1, 0]
    """
    if signature not in SIGNATURES:
        raise unknown_name("signature", signature, SIGNATURES)
    whole("rounds", rounds, 1)
    if not clients:
        raise DataError("no clients to match", hint="pass a mapping from client id to RecurrentWeights")
    options = Options(cost, sigma, sigma0, gamma, estimate, sweeps, seed, cap, quota, solver)
    layers = {name: _Layer.of(f"client '{name}'", weights, cell) for name, weights in clients.items()}
    order = canonical([Side(name, layer.ih) for name, layer in layers.items()], sizes)
    previous = None if anchor is None else _Layer.of("anchor", anchor.weights, cell)
    counts = np.empty(0, np.intp)
    if anchor is not None and previous is not None:
        counts = checked_counts(anchor.counts, len(previous.ih))
    inputs = order[0].vectors.shape[1]
    for side in [*order, *([] if previous is None else [Side("anchor", previous.ih)])]:
        if side.vectors.shape[1] != inputs:
            raise DataError(f"has another number of inputs than '{order[0].name}'", where=f"{side.name}, weight_ih")

    found = match_sides(order, inputs, None if previous is None else Side("anchor", previous.ih), counts, options)
    if signature == "ih":
        return found
    for made in range(2, rounds + 2):
        before, dimensions = found.assignments, hidden_dimensions(np.arange(found.size), found.size, cell).size
        sides = [layers[side.name].side(side.name, before[side.name], found.size) for side in order]
        fixed = None if previous is None else previous.side("anchor", np.arange(len(counts)), found.size)
        found = match_sides(sides, inputs + dimensions, fixed, counts, options)
        found = replace(found, diagnostics=replace(found.diagnostics, rounds=made))
        if all(np.array_equal(before[side.name], found.assignments[side.name]) for side in order):
            break
    return found


@dataclass(frozen=True, eq=False)
class _Layer:
    """The signatures of one client's layer, whose second half waits for a global order."""

    cell: str
    ih: AnyArray
    hh: AnyArray

    @classmethod
    def of(cls, name: str, weights: RecurrentWeights, cell: str) -> _Layer:
        given = checked_weights(name, weights, cell)
        ih = recurrent_signature(given.weight_ih, given.bias_ih, given.bias_hh, cell)
        return cls(cell, ih, hidden_signature(given.weight_hh, cell))

    def side(self, name: str, places: Indices, size: int) -> Side:
        """``ih+hh`` in the present global order."""
        inputs = self.ih.shape[1]
        dims = np.concatenate([np.arange(inputs), inputs + hidden_dimensions(places, size, self.cell)])
        return Side(name, np.concatenate([self.ih, self.hh], axis=1), dims)
