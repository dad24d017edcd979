"""FedMA, Algorithm 1 of the paper: match and average layer by layer, retraining what lies above.

The lines of the algorithm are named in the code. One round of a Q-layer model asks each client Q times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fedprognos.federation.aggregate import average, move_inputs, slice_client
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.options import FedMAOptions
from fedprognos.federation.strategies.plan import (
    Matched,
    Model,
    Plan,
    Round,
    Trained,
    as_float32,
    first_models,
    network_of,
    sound,
    train,
)
from fedprognos.matching import Matching, match, match_recurrent
from fedprognos.networks import NetworkSpec, Weights
from fedprognos.networks.anatomy import Layer

Places = dict[str, dict[str, NDArray[np.intp]]]


def fedma(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """Rounds of local training followed by matched averaging of every layer."""
    section = plan.federation.fedma
    spent = 0
    federated: Weights | None = None
    places: Places = {}
    for r in range(1, section.rounds + 1):
        asked = plan.participants(cohort, r)
        if federated is None:
            common = section.start == "common"
            clients = first_models(cohort, plan, asked, epochs=section.epochs, common=common)
        else:
            starts = {name: _start(plan, federated, places.get(name)) for name in asked}
            clients = sound(plan, *train(cohort, plan, starts, epochs=section.epochs, round_=r))
        history = {name: client.history for name, client in clients.items()}
        federated, places, matched, retrained = _matched_average(cohort, plan, clients, r)
        spent += retrained + (section.epochs or plan.train.epochs)
        network = network_of(federated, plan.network, plan.anatomy)
        yield Round(r, (Model(cohort.clients, network, federated, spent, history),), matched)


def _matched_average(
    cohort: Cohort, plan: Plan, clients: dict[str, Trained], r: int
) -> tuple[Weights, Places, tuple[Matched, ...], int]:
    """Algorithm 1: the federated weights, everybody's places in them, the matchings, and the epochs retrained."""
    section, anatomy = plan.federation.fedma, plan.anatomy
    federated: dict[str, NDArray[np.float32]] = {}
    places: Places = {name: {} for name in clients}
    matched: list[Matched] = []
    spent = 0
    for q, layer in enumerate(anatomy.layers[:-1], start=1):
        matching = _bbp_map(layer, clients, section, plan.seed)  # line 3
        matched.append(Matched(layer.name, matching, dict(clients)))
        group = str(layer.group)
        for name in clients:
            places[name][group] = matching.assignments[name]
        averaged = average(  # line 4
            {name: {t: c.weights[t] for t in layer.tensors} for name, c in clients.items()},
            anatomy,
            {name: {group: matching.assignments[name]} for name in clients},
            {group: matching.size},
            how=section.average,
            sizes={name: c.windows for name, c in clients.items()},
            ratio=_ratio(matching),
        )
        federated |= as_float32(averaged)
        for name, client in clients.items():  # lines 9 and 10
            moved = move_inputs(client.weights, anatomy, layer, matching.assignments[name], matching.size, client=name)
            weights = as_float32({**moved, **federated})
            clients[name] = Trained(network_of(weights, plan.network, anatomy), weights, client.windows)
        last = q == len(anatomy.layers) - 1
        if last and "mean" not in plan.federation.heads:
            break  # only the head is left above, and it will be solved exactly
        epochs = section.retrain_epochs or section.epochs or plan.train.epochs
        starts = {name: (client.network, client.weights) for name, client in clients.items()}
        phase = f"retrain-{q}"
        clients, _ = train(cohort, plan, starts, epochs=epochs, round_=r, phase=phase, frozen=q)  # line 11
        spent += epochs
    head = anatomy.layers[-1]
    federated |= as_float32(  # line 6
        average({name: {t: c.weights[t] for t in head.tensors} for name, c in clients.items()}, anatomy)
    )
    return federated, places, tuple(matched), spent


def _bbp_map(layer: Layer, clients: Mapping[str, Trained], section: FedMAOptions, seed: int) -> Matching:
    """Match one layer's neurons by what they extract."""
    signatures = {name: layer.signature(client.weights) for name, client in clients.items()}
    widest = max(len(s) for s in signatures.values())
    options = {
        "cost": section.cost,
        "gamma": section.gamma,
        "estimate": section.estimate,
        "sweeps": section.sweeps,
        "seed": seed % 2**32,
        "sizes": {name: client.windows for name, client in clients.items()},
        "cap": None if section.width_limit is None else int(section.width_limit * widest),
    }
    noise = None if section.noise is None else section.noise * _pooled_variance(list(signatures.values()))
    if layer.cell == "linear" or section.signature == "ih":
        return match(signatures, sigma=noise, **options)  # type: ignore[arg-type]
    recurrent = {name: layer.recurrent(client.weights) for name, client in clients.items()}
    return match_recurrent(recurrent, cell=layer.cell, sigma=noise, **options)  # type: ignore[arg-type]


def _pooled_variance(signatures: list[NDArray[np.float64]]) -> float:
    return float(np.concatenate(signatures).astype(np.float64).var(axis=0).mean())


def _ratio(matching: Matching) -> float:
    """Noise over prior variance: how far a MAP average is drawn towards zero."""
    return float(np.mean(matching.diagnostics.sigma) / np.mean(matching.diagnostics.sigma0))


def _start(
    plan: Plan, federated: Weights, places: Mapping[str, NDArray[np.intp]] | None
) -> tuple[NetworkSpec, Weights]:
    """Where a client begins the next round: the grown model, or its own neurons of it."""
    weights = federated
    if plan.federation.fedma.next_round == "sliced" and places is not None:
        weights = as_float32(slice_client(federated, plan.anatomy, places))
    return network_of(weights, plan.network, plan.anatomy), weights
