"""Absorb: match neurons by their outputs, and fold a neuron into the others where these predict what it puts out.

1. Clients train their own networks, of any width, and send them. No common start is needed.
2. The coordinator puts the networks side by side and sends that wide network out. With many clients, groups go first.
3. Every client runs it over its rows and returns sums of the neurons' outputs.
4. Neurons that the others predict are absorbed one by one, the cheapest first (`fedprognos.matching.absorb`).
5. The head is solved on the small network's own statistics, as for every method.

Further rounds train on from the absorbed network. Everybody then has the same neurons, so a plain average is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, PositiveInt

from fedprognos import matching
from fedprognos.federation.absorb_steps import (
    AbsorptionRecord,
    Bodies,
    ask_for_sums,
    concat_bodies,
    in_groups,
    layer_arrays,
    small_network,
    with_trained_head,
)
from fedprognos.federation.averages import average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.exchanges.fit import ClientModels, masked_mean, train
from fedprognos.federation.first_models import drop_collapsed, drop_harmful, first_models
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.networks import Epoch, HeadStatistics, Network, exact_head, mean_squared_error, solve_head
from fedprognos.options import Options

FURTHER_RATE = 0.5
"""Learning rate of a further round, as a share of the first one's: it starts near a good network."""

AS_GOOD = 1.01
"""A narrower network is taken if its error on kept-out rows is at most this many times that of all neurons."""

Number = TypeVar("Number")
OneOrSeveral = Annotated[
    tuple[Number, ...],
    Field(min_length=1),
    BeforeValidator(lambda given: [given] if isinstance(given, int | float) else given),
    PlainSerializer(lambda numbers: numbers[0] if len(numbers) == 1 else list(numbers)),
]


class AbsorbOptions(Options):
    """Neurons matched by their outputs; what others extract is folded into them."""

    rounds: PositiveInt = 1
    """Further rounds train on from the absorbed model and average it."""
    epochs: PositiveInt | None = None
    """Local epochs a round; train.epochs by default."""
    width: OneOrSeveral[Annotated[float, Field(ge=0.1)]] = (1.5, 2.5, 4.0)
    """Neurons of the federated layer, in multiples of the widest client's. If you give several, the narrowest is used
    whose error on rows kept out of training is at most 1 % above that of all neurons; if none is as good, all neurons
    stay. Without rows kept out, the narrowest is used."""
    alpha: OneOrSeveral[Annotated[float, Field(ge=0.0)]] = (matching.ALPHA, 3.0, 30.0)
    """How much the gates of the other neurons count against the head when a neuron is priced. If you give several,
    each is tried, and the one whose small network fits the training rows best is used; groups use the first."""


def absorb(cohort: Cohort, plan: Plan, options: AbsorbOptions) -> Iterator[Round]:
    """Round 1: steps 1 to 4. Further rounds: local training and averages."""
    clients = first_models(cohort, plan, plan.participants(cohort, 1), epochs=options.epochs)
    record = absorb_bodies(cohort, plan, options, clients.networks)
    network, spent = record.after, plan.epochs_of(options.epochs, clients.history)
    yield Round(1, {cohort.clients: network}, spent, clients.history, absorbed=record)

    slower = plan.train.model_copy(update={"learning_rate": FURTHER_RATE * plan.train.learning_rate})
    later = replace(plan, train=slower)
    history: Mapping[str, tuple[Epoch, ...]] = {}  # stays empty under masks, where nobody sees a client's errors
    for r in range(2, options.rounds + 1):
        fit, _ = evaluate(cohort, plan, cohort.clients, network).head_statistics
        start = with_trained_head(network, fit, plan.federation.ridge)
        starts = dict.fromkeys(plan.participants(cohort, r), start)
        if cohort.sums is not None:
            network = masked_mean(cohort, later, starts, epochs=options.epochs, round_=r)
            spent += later.epochs_of(options.epochs, {})
        else:
            trained = train(cohort, later, starts, epochs=options.epochs, round_=r)
            spent += later.epochs_of(options.epochs, trained.history)
            clients = drop_harmful(cohort, plan, drop_collapsed(plan, trained))
            network, history = averaged(plan, clients), clients.history
        yield Round(r, {cohort.clients: network}, spent, history)


def absorb_bodies(
    cohort: Cohort, plan: Plan, options: AbsorbOptions, networks: Mapping[str, Network]
) -> AbsorptionRecord:
    """Steps 2 to 4: the clients' networks as one, of the width asked for or chosen on rows kept out of training."""
    widest = max(network.spec.hidden for network in networks.values())
    alone: Bodies = {(name,): network for name, network in networks.items()}
    bodies = in_groups(cohort, plan, alone, widest, options.alpha[0])
    wide, neurons = concat_bodies(bodies)
    fit, held, sums = ask_for_sums(cohort, plan, wide, cohort.clients)
    ridge, most = plan.federation.ridge, wide.spec.hidden
    shrink = partial(matching.absorb, layer_arrays(wide), sums, ridge=ridge, head=fit.sums)
    measured = {most: errors_of(plan, fit, held)[1]}
    choosing = held is not None and len(options.width) > 1
    alphas, best = options.alpha, 0
    for width in sorted({max(int(multiple * widest), 1) for multiple in options.width}):
        if width >= most:
            continue
        results = [shrink(width=width, alpha=alpha) for alpha in alphas]
        if choosing or len(results) > 1:
            # Small networks are run, because the sums ignore how errors feed back through time.
            small = [small_network(wide, result) for result in results]
            errors = [errors_of(plan, *evaluate(cohort, plan, cohort.clients, n).head_statistics) for n in small]
            best = int(np.argmin([training for training, _ in errors]))
            measured[width] = errors[best][1]
        if not choosing or measured[width] <= AS_GOOD**2 * measured[most]:
            break
    else:
        results, best = [shrink(width=most, alpha=alphas[0])], 0  # where all stay, alpha decides nothing
    return AbsorptionRecord.from_result(plan, wide, neurons, fit, results[best], alphas[best], measured)


def errors_of(plan: Plan, fit: HeadStatistics, held: HeadStatistics | None) -> tuple[float, float]:
    """Mean squared errors of a network with its best head: on training rows, and on rows kept out (NaN without any)."""
    error = exact_head(fit, held, plan.federation.ridge).validation_mse
    return mean_squared_error(fit, solve_head(fit, plan.federation.ridge)), np.nan if error is None else error


def averaged(plan: Plan, clients: ClientModels) -> Network:
    """Networks that started with the same neurons: neuron by neuron, weighted by data size."""
    spec = next(iter(clients.networks.values())).spec
    tensors = {name: network.weights for name, network in clients.networks.items()}
    return Network(spec, average(tensors, spec.anatomy, how="weighted", sizes=plan.counted(clients.sizes)))


strategies.add(
    Strategy(
        "absorb",
        "Absorb",
        60,
        absorb,
        AbsorbOptions,
        epochs=lambda options, budget: options.rounds * (options.epochs or budget.epochs),
        by_default=True,
    )
)
