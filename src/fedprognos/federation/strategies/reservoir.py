"""Reservoir: a fixed random recurrent body, the same everywhere, with a head solved from everybody's sums.

Nothing is trained and no weight is sent. In one exchange it is what central training of the same head would give,
whatever the clients hold: the bar that every trained network must clear.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.networks import Network, NetworkSpec
from fedprognos.options import Options


class ReservoirOptions(Options):
    """A fixed random recurrent body with an exact head."""

    units: PositiveInt = 600
    """Neurons of the reservoir, where the network has none of its own."""
    ridge: PositiveFloat | None = None
    """Strength of its exact head, where it is to differ from `federation.ridge`."""


def reservoir(cohort: Cohort, plan: Plan, options: ReservoirOptions) -> Iterator[Round]:
    """One round: the body is the same everywhere, only the head is to be found."""
    units = plan.spec.reservoir or options.units
    spec = NetworkSpec(
        inputs=plan.spec.inputs, widths=(), cell=plan.spec.cell, reservoir=units, direct=plan.spec.direct or 1
    )
    weights = {name: np.zeros(shape, np.float32) for name, shape in spec.shapes.items()}
    yield Round(1, {cohort.clients: Network(spec, weights)}, 0, ridge=options.ridge)


def _epochs(_: ReservoirOptions, __: Budget) -> int:
    return 0


def _releases(_: ReservoirOptions, __: tuple[str, ...]) -> int:
    """Statistics of its head."""
    return 1


strategies.add(
    Strategy(
        "reservoir",
        "Reservoir",
        15,
        reservoir,
        ReservoirOptions,
        _epochs,
        by_default=True,
        trains=False,
        releases=_releases,
    )
)
