"""Local training: every client trains by itself; clients share only the moments that scale their columns."""

from __future__ import annotations

from collections.abc import Iterator

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.fit import train
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.networks import Network
from fedprognos.options import Options


def local(cohort: Cohort, plan: Plan, _: Options) -> Iterator[Round]:
    """One model a client, in one round."""
    trained = train(cohort, plan, dict.fromkeys(cohort.clients), epochs=None, round_=1)
    models: dict[tuple[str, ...], Network] = {(name,): network for name, network in trained.networks.items()}
    yield Round(1, models, None, trained.history, collapsed=trained.collapsed)


strategies.add(Strategy("local", "Local", 10, local, shared=False, by_default=True))
