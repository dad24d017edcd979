"""Concat: every client's extractors side by side, nothing merged; its output is the mean of the clients' outputs.

With an exact head it is a stacking ensemble trained in one exchange, the other end of the scale from one averaged
width. It grows with the number of clients.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedprognos.federation.aggregate import average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.strategies.plan import Model, Plan, Round, as_float32, first_models, network_of


def concat(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """One round: train (or bring) models of any width, put their neurons one after another."""
    epochs = plan.federation.concat.epochs
    clients = first_models(cohort, plan, plan.participants(cohort, 1), epochs=epochs, common=False)
    widths = dict.fromkeys(plan.anatomy.groups, 0)
    places: dict[str, dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
    for name, client in sorted(clients.items()):
        own = plan.anatomy.widths(client.weights)
        places[name] = {group: widths[group] + np.arange(own[group]) for group in widths}
        widths = {group: widths[group] + own[group] for group in widths}
    weights = as_float32(average({n: c.weights for n, c in clients.items()}, plan.anatomy, places, widths))
    network = network_of(weights, plan.network, plan.anatomy)
    history = {name: client.history for name, client in clients.items()}
    yield Round(1, (Model(cohort.clients, network, weights, epochs or plan.train.epochs, history),))
