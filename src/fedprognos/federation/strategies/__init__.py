"""Ways of training: each is a plain loop over `cohort.ask` in a file of its own."""

from collections.abc import Callable

from fedprognos.errors import unknown_name
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.strategies.central import central
from fedprognos.federation.strategies.local import local
from fedprognos.federation.strategies.plan import Model, Outcome, Plan

Strategy = Callable[[Cohort, Plan], Outcome]

STRATEGIES: dict[str, Strategy] = {"local": local, "central": central}


def strategy(name: str) -> Strategy:
    """A strategy by name."""
    if name not in STRATEGIES:
        raise unknown_name("method", name, STRATEGIES)
    return STRATEGIES[name]


__all__ = ["STRATEGIES", "Model", "Outcome", "Plan", "Strategy", "strategy"]
