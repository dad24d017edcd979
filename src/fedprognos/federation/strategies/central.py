"""Central training: the pooled fleet as a single client. The bar to reach, not a federation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import PositiveInt

from fedprognos.errors import ConfigError
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.federation.strategies.local import local
from fedprognos.options import Options


class CentralOptions(Options):
    """All data in one place."""

    steps: PositiveInt | None = None
    """Gradient steps, where all data in one place takes more of them than a client's; train.steps by default."""


def central(cohort: Cohort, plan: Plan, options: CentralOptions) -> Iterator[Round]:
    """Local training of the one client that holds all data."""
    if len(cohort.clients) != 1:
        raise ConfigError(
            "central training needs all data in one place", hint="it exists to compare with; it cannot be deployed"
        )
    if options.steps is not None:
        plan = replace(plan, train=plan.train.model_copy(update={"steps": options.steps}))
    return local(cohort, plan, options)


strategies.add(Strategy("central", "Central", 90, central, CentralOptions, pooled=True, by_default=True))
