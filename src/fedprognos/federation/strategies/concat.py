"""Concat: every client's extractors side by side, nothing merged; its output is the mean of the clients' outputs.

With an exact head it is a stacking ensemble that one exchange trains. It is as wide as all clients' networks together,
so it grows with their number.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import PositiveInt

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.first_models import first_models
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.networks import Network
from fedprognos.options import Options


class ConcatOptions(Options):
    """Every client's extractors side by side, nothing merged."""

    epochs: PositiveInt | None = None
    """Local epochs; train.epochs by default."""


def concat(cohort: Cohort, plan: Plan, options: ConcatOptions) -> Iterator[Round]:
    """One round: train (or import) models of any width, put their neurons one after another."""
    clients = first_models(cohort, plan, plan.participants(cohort, 1), epochs=options.epochs)
    network = Network.concat([clients.networks[name] for name in sorted(clients.networks)])
    yield Round(1, {cohort.clients: network}, plan.epochs_of(options.epochs, clients.history), clients.history)


strategies.add(
    Strategy(
        "concat",
        "Concat",
        50,
        concat,
        ConcatOptions,
        epochs=lambda options, budget: options.epochs or budget.epochs,
        by_default=True,
    )
)
