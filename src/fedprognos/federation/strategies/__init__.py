"""Ways of training: each is a plain loop over `cohort.ask` in a file of its own."""

from collections.abc import Callable, Iterator

from fedprognos.errors import unknown_name
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.strategies.central import central
from fedprognos.federation.strategies.concat import concat
from fedprognos.federation.strategies.fedavg import fedavg
from fedprognos.federation.strategies.fedma import fedma
from fedprognos.federation.strategies.fedprox import fedprox
from fedprognos.federation.strategies.local import local
from fedprognos.federation.strategies.plan import Matched, Model, Plan, Round, summed
from fedprognos.federation.strategies.single import single

Strategy = Callable[[Cohort, Plan], Iterator[Round]]

STRATEGIES: dict[str, Strategy] = {
    "local": local,
    "central": central,
    "fedavg": fedavg,
    "fedprox": fedprox,
    "single": single,
    "concat": concat,
    "fedma": fedma,
}


def strategy(name: str) -> Strategy:
    """A strategy by name."""
    if name not in STRATEGIES:
        raise unknown_name("method", name, STRATEGIES)
    return STRATEGIES[name]


__all__ = ["STRATEGIES", "Matched", "Model", "Plan", "Round", "Strategy", "strategy", "summed"]
