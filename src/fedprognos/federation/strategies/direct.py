"""Linear head: the history itself, no network and no reservoir, with a head solved from everybody's sums.

One exchange, nothing trained. A network that does not beat it has not earned its place. Beside it stands the same head
solved by each client from its own sums alone: what the exchange has to be worth.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import PositiveInt

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.networks import Network, NetworkSpec
from fedprognos.options import Options


class DirectOptions(Options):
    """A linear head on the history itself."""

    steps: PositiveInt | None = None
    """Steps of the history that the head sees, spread evenly over it; all of them, but at most 60, by default."""


def direct(cohort: Cohort, plan: Plan, options: DirectOptions) -> Iterator[Round]:
    """One round: only the head is to be found."""
    yield Round(1, {cohort.clients: _no_network(plan, options)}, 0)


def alone(cohort: Cohort, plan: Plan, _: Options) -> Iterator[Round]:
    """One round: each client finds the same head by itself, with the options of `direct`."""
    network = _no_network(plan, plan.federation.strategy_options("direct", DirectOptions))
    yield Round(1, {(name,): network for name in cohort.clients}, 0)


def _no_network(plan: Plan, options: DirectOptions) -> Network:
    """A network without neurons, whose head sees the history itself."""
    steps = min(options.steps or 60, plan.recipe.window)
    spec = NetworkSpec(inputs=plan.spec.inputs, widths=(), cell=plan.spec.cell, direct=steps)
    return Network(spec, {name: np.zeros(shape, np.float32) for name, shape in spec.shapes.items()})


def _releases(_: DirectOptions, __: tuple[str, ...]) -> int:
    """Statistics of its head."""
    return 1


def _epochs(_: Options, __: Budget) -> int:
    return 0


strategies.add(Strategy("alone", "Linear head alone", 13, alone, epochs=_epochs, shared=False, trains=False))
strategies.add(Strategy("direct", "Linear head", 14, direct, DirectOptions, _epochs, trains=False, releases=_releases))
