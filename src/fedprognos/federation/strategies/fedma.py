"""FedMA, the paper's method: rounds of local training, each followed by Algorithm 1.

The lines of the algorithm are named in the code. One round of a Q-layer model asks each client Q times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from fedprognos.federation.aggregation import AggregatorName, aggregators
from fedprognos.federation.average import average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.first_models import drop_collapsed, first_models
from fedprognos.federation.plan import ClientModels, MatchedLayer, Plan, Round, train
from fedprognos.federation.screening import drop_harmful
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.matching import Matching, match, match_recurrent
from fedprognos.networks import Network
from fedprognos.networks.anatomy import Layer
from fedprognos.options import Options, Tunable


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


def fedma(cohort: Cohort, plan: Plan, options: FedMAOptions) -> Iterator[Round]:
    """Rounds of local training followed by matched averaging of every layer."""
    federated, matched, spent = plan.common_start(), dict[str, MatchedLayer](), 0
    for r in range(1, options.rounds + 1):
        asked = plan.participants(cohort, r)
        if r == 1:
            clients = first_models(cohort, plan, asked, epochs=options.epochs, common=options.start == "common")
        else:
            starts = {name: _start(federated, matched, name, options) for name in asked}
            trained = train(cohort, plan, starts, epochs=options.epochs, round_=r)
            clients = drop_harmful(cohort, plan, drop_collapsed(plan, trained))
        federated, matched, retrained = algorithm_1(cohort, plan, options, clients, r)
        spent += plan.epochs_of(options.epochs, clients.history) + retrained
        yield Round(r, {cohort.clients: federated}, spent, clients.history, tuple(matched.values()))


def algorithm_1(
    cohort: Cohort, plan: Plan, options: FedMAOptions, clients: ClientModels, r: int
) -> tuple[Network, dict[str, MatchedLayer], int]:
    """From the clients' networks W to the federated one, how each layer was matched, and the epochs retrained."""
    W, sizes, matched, spent = dict(clients.networks), plan.counted(clients.sizes), dict[str, MatchedLayer](), 0
    layers = plan.spec.anatomy.layers
    for q, layer in enumerate(layers, start=1):  # line 1
        if layer.group is not None:  # line 2
            Pi = bbp_map(layer, W, sizes, options, plan.seed)  # line 3
            matched[layer.group] = MatchedLayer(layer.name, Pi, dict(W))
            W_q = matched_average(layer, W, sizes, Pi, options)  # line 4
        else:
            how = options.average if aggregators[options.average].robust else "mean"
            heads = {j: W_j.layer(layer) for j, W_j in W.items()}
            W_q = average(heads, plan.spec.anatomy, how=how, sizes=sizes)  # line 6
        for j, W_j in W.items():  # line 8
            W[j] = W_j.with_layer(layer, W_q)  # line 9
            if layer.group is not None:
                W[j] = W[j].permute_next(layer, Pi.assignments[j], Pi.size, client=j)  # line 10
        # Departure: where only the head is left to retrain and it will be solved exactly, line 11 has nothing to do.
        if q < len(layers) - 1 or (q < len(layers) and "mean" in plan.federation.heads):
            epochs = options.retrain_epochs or options.epochs
            retrained = train(cohort, plan, W, epochs=epochs, round_=r, phase=f"retrain-{q}", frozen=q)  # line 11
            W = dict(drop_harmful(cohort, plan, retrained).networks)
            spent += plan.epochs_of(epochs, retrained.history)
    return W[min(W)], matched, spent


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
    given = {
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
        return match(signatures, **given)  # type: ignore[arg-type]
    recurrent = {name: layer.recurrent(network.weights) for name, network in networks.items()}
    return match_recurrent(recurrent, cell=layer.cell, **given)  # type: ignore[arg-type]


def matched_average(
    layer: Layer, networks: Mapping[str, Network], sizes: Mapping[str, float], Pi: Matching, options: FedMAOptions
) -> Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """The mean of matched neurons, over those who hold them (the paper: over all, because all do)."""
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


def _start(federated: Network, matched: Mapping[str, MatchedLayer], name: str, options: FedMAOptions) -> Network:
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
