"""Reservoir: a fixed random recurrent body, the same everywhere, with a head solved from the sums of all clients.

Nothing is trained and no weight is sent. One exchange gives the head that central training of it would give, however
the data is spread over the clients. A network that is not better than this is not worth training.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.networks import Network, NetworkSpec
from fedprognos.options import Options


class ReservoirOptions(Options):
    """A fixed random recurrent body with an exact head."""

    units: PositiveInt = 600
    """Neurons of the reservoir, where the network has none of its own."""
    ridge: PositiveFloat | None = None
    """Strength of its exact head, where it is to differ from `federation.ridge`."""


def reservoir(cohort: Cohort, plan: Plan, options: ReservoirOptions) -> Iterator[Round]:
    """One round: the body is the same everywhere, and only the head is solved, as for every method."""
    units = plan.spec.reservoir or options.units
    spec = NetworkSpec(
        inputs=plan.spec.inputs, widths=(), cell=plan.spec.cell, reservoir=units, direct=plan.spec.direct or 1
    )
    weights = {name: np.zeros(shape, np.float32) for name, shape in spec.shapes.items()}
    yield Round(1, {cohort.clients: Network(spec, weights)}, 0, ridge=options.ridge)


strategies.add(
    Strategy(
        "reservoir",
        "Reservoir",
        15,
        reservoir,
        ReservoirOptions,
        epochs=lambda options, budget: 0,
        by_default=True,
        trains=False,
        releases=lambda options, heads: 1,  # statistics of its head
    )
)
