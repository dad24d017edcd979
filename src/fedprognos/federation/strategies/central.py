"""Central training: the pooled fleet as a single client. The bar to reach, not a federation."""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.errors import ConfigError
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.federation.strategies.local import local
from fedprognos.options import Options


def central(cohort: Cohort, plan: Plan, options: Options) -> Iterator[Round]:
    """Local training of the one client that holds all data."""
    if len(cohort.clients) != 1:
        raise ConfigError(
            "central training needs all data in one place", hint="it exists to compare with; it cannot be deployed"
        )
    return local(cohort, plan, options)


strategies.add(Strategy("central", "Central", 90, central, pooled=True, by_default=True))
