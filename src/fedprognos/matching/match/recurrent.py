"""``match_recurrent``: matching the neurons of an LSTM or GRU layer by their input and recurrent weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import DataError, unknown_name
from fedprognos.matching.arguments import AnyArray, Indices, RecurrentWeights, check_whole
from fedprognos.matching.match.matcher import match_clients
from fedprognos.matching.match.problem import ClientNeurons, MatchOptions, canonical, checked_counts, same_dimensions
from fedprognos.matching.match.result import Matching
from fedprognos.matching.match.signatures import (
    Gates,
    checked_weights,
    gates_of,
    hidden_dimensions,
    hidden_signature,
    recurrent_signature,
)

SIGNATURES = ("ih", "ih+hh")


def match_recurrent(
    clients: Mapping[str, RecurrentWeights],
    *,
    cell: str | Gates = "lstm",
    signature: str = "ih+hh",
    rounds: int = 5,
    cost: str = "spahm",
    sigma: float | None = None,
    sigma0: float | None = None,
    gamma: float = 1.0,
    estimate: bool | None = None,
    sweeps: int = 10,
    seed: int = 0,
    sizes: Mapping[str, float] | None = None,
    anchor: RecurrentWeights | None = None,
    anchor_counts: ArrayLike | None = None,
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
        ``"lstm"`` or ``"gru"``, or the gates of another cell.
    signature
        ``"ih+hh"``, or ``"ih"`` for the first step alone.
    rounds
        Matchings on ``ih+hh``, at most.
    anchor, anchor_counts
        A previous global layer, and how many client neurons each of its neurons stands for (one by default; see
        :class:`~fedprognos.matching.Anchor`).
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
    check_whole("rounds", rounds, 1)
    if not clients:
        raise DataError("no clients to match", hint="pass a mapping from client id to RecurrentWeights")
    options = MatchOptions(cost, sigma, sigma0, gamma, estimate, sweeps, seed, cap, quota, solver)
    layers = {name: signatures(f"client '{name}'", weights, cell) for name, weights in clients.items()}
    order = canonical([ClientNeurons(name, ih) for name, (ih, _) in layers.items()], sizes)
    inputs = order[0].vectors.shape[1]
    fixed, counts = None, None
    if anchor is not None:
        previous = signatures("anchor", anchor, cell)
        same_dimensions(previous[0], inputs, "anchor, weight_ih")
        counts = checked_counts(anchor_counts, len(previous[0]))
        fixed = ClientNeurons("anchor", previous[0], counts=counts)

    matching = match_clients(order, fixed, inputs, options)
    if signature == "ih":
        return matching
    for round_number in range(2, rounds + 2):
        before, size = matching.assignments, matching.size
        placed = [in_order(client.name, layers[client.name], before[client.name], size, cell) for client in order]
        if fixed is not None:
            fixed = replace(in_order("anchor", previous, np.arange(fixed.width), size, cell), counts=counts)
        matching = match_clients(placed, fixed, inputs + 2 * gates_of(cell) * size, options)
        matching = replace(matching, diagnostics=replace(matching.diagnostics, rounds=round_number))
        if all(np.array_equal(before[client.name], matching.assignments[client.name]) for client in order):
            break
    return matching


def signatures(where: str, weights: RecurrentWeights, cell: str | Gates) -> tuple[AnyArray, AnyArray]:
    """``ih`` and ``hh`` of one layer that is checked first."""
    given = checked_weights(where, weights, cell)
    ih = recurrent_signature(given.weight_ih, given.bias_ih, given.bias_hh, cell)
    return ih, hidden_signature(given.weight_hh, cell)


def in_order(
    name: str, layer: tuple[AnyArray, AnyArray], places: Indices, size: int, cell: str | Gates
) -> ClientNeurons:
    """``ih+hh`` in the present global order."""
    inputs = layer[0].shape[1]
    dims = np.concatenate([np.arange(inputs), inputs + hidden_dimensions(places, size, cell)])
    return ClientNeurons(name, np.concatenate(layer, axis=1), dims)
