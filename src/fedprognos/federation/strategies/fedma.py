"""FedMA, the paper's method: rounds of local training, each followed by Algorithm 1.

Comments give the line of the algorithm. A comment that begins with "Departure" says what is done in another way than in
the paper. A round of a model with Q layers asks each client Q times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from fedprognos.federation.averages import AggregatorName, aggregators, average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.fit import train
from fedprognos.federation.first_models import drop_collapsed, drop_harmful, first_models
from fedprognos.federation.plan import MatchedLayer, Plan, Round
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.matching import Matching, match, match_recurrent
from fedprognos.networks import Layer, Network, Tensors
from fedprognos.options import Options, Tunable

Retrain: TypeAlias = Callable[[Mapping[str, Network], int], Mapping[str, Network]]
"""From the clients' networks and q to these networks with the layers above q retrained."""
Matcher: TypeAlias = Callable[[Layer, Mapping[str, Network], Mapping[str, float], "FedMAOptions", int], Matching]
"""What :func:`bbp_map` takes and gives."""


class FedMAOptions(Options):
    """Matched averaging, layer by layer (Algorithm 1)."""

    rounds: PositiveInt = 1
    """Rounds of training and matching."""
    epochs: Annotated[PositiveInt | None, Tunable((50, 100, 200), soh=(30, 60, 120), default="train.epochs")] = (
        None  # the paper's 200 and 120, a half and a quarter of them
    )
    """Local epochs a round; train.epochs by default."""
    retrain_epochs: PositiveInt | None = None
    """Epochs of the layers above a matched one; as `epochs` by default."""
    start: Literal["independent", "common"] = "independent"
    """Whether clients draw their first weights each for themselves or start from the same."""
    cost: Literal["spahm", "pfnm"] = "spahm"
    """The full marginal likelihood (spahm), or as PFNM and FedMA have it (pfnm)."""
    signature: Literal["ih", "ih+hh"] = "ih+hh"
    """Compare input weights only (ih), or recurrent weights as well (ih+hh)."""
    average: AggregatorName = "mean"
    """Name of an aggregator; robust ones average the head as well."""
    noise: PositiveFloat | None = None
    """Variance of a client's neuron around its global one, as a share of the pooled variance; 0.5 by default."""
    estimate: bool | None = None
    """Re-estimate the variances from the partition; by default with cost = "spahm" only."""
    gamma: PositiveFloat = 1.0
    """How readily new global neurons are opened."""
    sweeps: Annotated[int, Field(ge=0)] = 10
    """How many times each client is solved again, at most."""
    solver: Literal["scipy", "lapx"] = "scipy"
    """Who solves the assignment problems; lapx is faster for wide layers."""
    width_limit: Annotated[float, Field(ge=1.0)] | None = None
    """Most neurons of a federated layer, in multiples of the widest client's; 1 = fixed width, None = free growth."""
    next_round: Literal["grown", "sliced"] = "grown"
    """Whether clients go on with the grown model or with their own neurons of it."""


def fedma(cohort: Cohort, plan: Plan, options: FedMAOptions, matcher: Matcher | None = None) -> Iterator[Round]:
    """Rounds of local training, each followed by matched averaging of every layer.

    Parameters
    ----------
    matcher
        Line 3 of the algorithm, :func:`bbp_map` by default. Studies compare it with other permutations.
    """
    federated, matched, spent = plan.common_start(), dict[str, MatchedLayer](), 0
    for r in range(1, options.rounds + 1):
        asked = plan.participants(cohort, r)
        if r == 1:
            clients = first_models(cohort, plan, asked, epochs=options.epochs, common=options.start == "common")
        else:
            starts = {name: _next_start(federated, matched, name, options) for name in asked}
            trained = train(cohort, plan, starts, epochs=options.epochs, round_=r)
            clients = drop_harmful(cohort, plan, drop_collapsed(plan, trained))
        spent += plan.epochs_of(options.epochs, clients.history)

        def retrain(W: Mapping[str, Network], q: int, r: int = r) -> Mapping[str, Network]:
            nonlocal spent
            # Departure: a head that will be solved exactly is not retrained.
            only_head_left = q == len(plan.spec.anatomy.layers) - 1
            if only_head_left and "mean" not in plan.federation.heads:
                return W
            epochs = options.retrain_epochs or options.epochs
            retrained = train(cohort, plan, W, epochs=epochs, round_=r, phase=f"retrain-{q}", frozen=q)
            spent += plan.epochs_of(epochs, retrained.history)
            # Departure: a client whose retrained network harms the others is left out of the layers above.
            return drop_harmful(cohort, plan, retrained).networks

        sizes = plan.counted(clients.sizes)
        federated, matched = algorithm_1(
            clients.networks, sizes, options, seed=plan.seed, retrain=retrain, matcher=matcher
        )
        yield Round(r, {cohort.clients: federated}, spent, clients.history, tuple(matched.values()))


def algorithm_1(
    networks: Mapping[str, Network],
    sizes: Mapping[str, float],
    options: FedMAOptions,
    *,
    seed: int = 0,
    retrain: Retrain | None = None,
    matcher: Matcher | None = None,
) -> tuple[Network, dict[str, MatchedLayer]]:
    """Algorithm 1: from the clients' networks to the federated one, and how each layer was matched.

    Parameters
    ----------
    sizes
        How much each client counts, for averages by data size.
    retrain
        Line 11: given the networks and q, trains the layers above q. Nothing is retrained without it.
    """
    W, matched = dict(networks), dict[str, MatchedLayer]()
    layers = next(iter(W.values())).anatomy.layers
    Q = len(layers)
    for q, layer in enumerate(layers, start=1):  # line 1
        if q < Q:  # line 2
            Pi = (matcher or bbp_map)(layer, W, sizes, options, seed)  # line 3
            matched[str(layer.group)] = MatchedLayer(layer.name, Pi, dict(W))
            W_q = matched_average(layer, W, sizes, Pi, options)  # line 4
        else:
            W_q = head_average(layer, W, sizes, options)  # line 6
        for j, W_j in W.items():  # line 8
            W[j] = W_j.with_layer(layer, W_q)  # line 9
            if q < Q:
                W[j] = W[j].permute_next(layer, Pi.assignments[j], Pi.size, client=j)  # line 10
        # Departure: line 11 stands after the loop over clients, so that all of them train at the same time. Each
        # trains its own network, so the result is the same.
        if q < Q and retrain is not None:
            W = dict(retrain(W, q))  # line 11
    # Every client now holds the same layers, because line 9 gave each of them every W_q. The paper returns
    # {W_1, ..., W_Q}; here one client's copy of them is returned, the first by name.
    return W[min(W)], matched


def bbp_map(
    layer: Layer, networks: Mapping[str, Network], sizes: Mapping[str, float], options: FedMAOptions, seed: int
) -> Matching:
    """Match one layer's neurons by their weights.

    Departures from the paper, each an option: the full marginal likelihood as cost, recurrent weights in the signature,
    variances estimated from the partition.
    """
    signatures = {name: layer.signature(network.weights) for name, network in networks.items()}
    pooled = np.concatenate(list(signatures.values())).astype(np.float64).var(axis=0).mean()
    widest = max(len(s) for s in signatures.values())
    match_options = {
        "cost": options.cost,
        "sigma": None if options.noise is None else options.noise * float(pooled),
        "gamma": options.gamma,
        "estimate": options.estimate,
        "sweeps": options.sweeps,
        "seed": seed % 2**32,
        "sizes": {name: sizes[name] for name in networks},
        "cap": None if options.width_limit is None else int(options.width_limit * widest),
        "solver": options.solver,
    }
    if options.signature == "ih" or not layer.is_recurrent:
        return match(signatures, **match_options)  # type: ignore[arg-type]
    recurrent = {name: layer.recurrent(network.weights) for name, network in networks.items()}
    return match_recurrent(recurrent, cell=layer.cell, **match_options)  # type: ignore[arg-type]


def matched_average(
    layer: Layer, networks: Mapping[str, Network], sizes: Mapping[str, float], Pi: Matching, options: FedMAOptions
) -> Tensors:
    """The mean of matched neurons.

    Departure: over the clients that hold the neuron. In the paper all clients do.
    """
    ratio = float(np.mean(Pi.diagnostics.sigma) / np.mean(Pi.diagnostics.sigma0))
    return average(
        {name: network.layer(layer) for name, network in networks.items()},
        next(iter(networks.values())).anatomy,
        {name: {str(layer.group): Pi.assignments[name]} for name in networks},
        {str(layer.group): Pi.size},
        how=options.average,
        sizes=sizes,
        ratio=ratio,
    )


def head_average(
    layer: Layer, networks: Mapping[str, Network], sizes: Mapping[str, float], options: FedMAOptions
) -> Tensors:
    """The mean of the heads, over all clients.

    Departure: where `average` is robust, heads are averaged by it as well, or one client's head could do any harm.
    """
    how = options.average if aggregators[options.average].robust else "mean"
    heads = {name: network.layer(layer) for name, network in networks.items()}
    return average(heads, next(iter(networks.values())).anatomy, how=how, sizes=sizes)


def _next_start(federated: Network, matched: Mapping[str, MatchedLayer], name: str, options: FedMAOptions) -> Network:
    """Where a client begins the next round: the grown model, or its own neurons of it."""
    places = {group: m.matching.assignments.get(name) for group, m in matched.items()}
    if options.next_round == "grown" or any(place is None for place in places.values()):
        return federated
    return federated.slice({group: place for group, place in places.items() if place is not None})


def _epochs(options: FedMAOptions, budget: Budget) -> int:
    epochs = options.epochs or budget.epochs
    retrained = budget.hidden_layers if "mean" in budget.heads else budget.hidden_layers - 1
    return options.rounds * (epochs + retrained * (options.retrain_epochs or epochs))


strategies.add(Strategy("fedma", "FedMA", 40, fedma, FedMAOptions, _epochs, by_default=True))
