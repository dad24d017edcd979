"""Linear head: a head on the history itself, without a network, solved from the sums of all clients.

Nothing is trained, and one exchange is enough. A network that is not better than this head is not worth training. The
strategy `alone` solves the same head for each client from its own sums only: the exchange must be better than that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import PositiveInt

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.networks import Network, NetworkSpec
from fedprognos.options import Options


class DirectOptions(Options):
    """A linear head on the history itself."""

    steps: PositiveInt | None = None
    """Steps of the history that the head sees, spread evenly over it; all of them, but at most 60, by default."""


def direct(cohort: Cohort, plan: Plan, options: DirectOptions) -> Iterator[Round]:
    """One round: only the head is solved, as for every method."""
    yield Round(1, {cohort.clients: _empty_network(plan, options)}, 0)


def alone(cohort: Cohort, plan: Plan, _: Options) -> Iterator[Round]:
    """One round: each client solves the same head by itself, with the options of `direct`."""
    network = _empty_network(plan, plan.federation.strategy_options("direct", DirectOptions))
    yield Round(1, {(name,): network for name in cohort.clients}, 0)


def _empty_network(plan: Plan, options: DirectOptions) -> Network:
    """A network without neurons, whose head sees the history itself."""
    steps = min(options.steps or 60, plan.recipe.window)
    spec = NetworkSpec(inputs=plan.spec.inputs, widths=(), cell=plan.spec.cell, direct=steps)
    return Network(spec, {name: np.zeros(shape, np.float32) for name, shape in spec.shapes.items()})


strategies.add(
    Strategy("alone", "Linear head alone", 13, alone, epochs=lambda options, budget: 0, shared=False, trains=False)
)
strategies.add(
    Strategy(
        "direct",
        "Linear head",
        14,
        direct,
        DirectOptions,
        epochs=lambda options, budget: 0,
        trains=False,
        releases=lambda options, heads: 1,  # statistics of its head
    )
)
