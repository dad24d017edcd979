"""Central training: the pooled fleet as a single client. The bar to reach, not a federation."""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.errors import ConfigError
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.strategies.local import local
from fedprognos.federation.strategies.plan import Plan, Round


def central(cohort: Cohort, plan: Plan) -> Iterator[Round]:
    """Local training of the one client that holds all data."""
    if len(cohort.clients) != 1:
        raise ConfigError(
            "central training needs all data in one place", hint="it exists to compare with; it cannot be deployed"
        )
    return local(cohort, plan)
