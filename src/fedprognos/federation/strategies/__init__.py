"""Ways of training: each is a plain loop over `cohort.ask` in a file of its own, which owns its name and options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedprognos.federation.cohort import Cohort
from fedprognos.federation.plan import Plan, Round
from fedprognos.options import Options
from fedprognos.shelf import Shelf


@dataclass(frozen=True)
class Budget:
    """What decides how many epochs a strategy takes: those of local training, the layers below the head, the heads."""

    epochs: int
    hidden_layers: int
    heads: tuple[str, ...]


@dataclass(frozen=True)
class Strategy:
    """A way of training.

    Parameters
    ----------
    name, label, order
        Its name in files, its name for people, and its place in tables.
    rounds
        The algorithm: from the cohort, the plan and its own options to a model after every round.
    options
        Its keys in `[federation.NAME]`.
    epochs
        Epochs a client trains at most, for the progress bar.
    shared
        Whether it ends with one model for everybody; with False every client has its own.
    pooled
        Whether it needs all data in one place, so that it can be compared with but not deployed.
    by_default
        Whether experiments that name no methods run it.
    trains
        Whether clients train networks for it; without, statistics of the head are all that they send.
    sums_only
        Whether a total of the trained networks is all it needs, so that masks hide each of them.
    releases
        From its options and the heads asked for to how many noised sums each client sends under differential privacy:
        statistics of exact heads and steps of training. None where privacy does not cover what clients send.
    """

    name: str
    label: str
    order: int
    rounds: Callable[[Cohort, Plan, Any], Iterator[Round]]
    options: type[Options] = Options
    epochs: Callable[[Any, Budget], int] = lambda options, budget: budget.epochs
    shared: bool = True
    pooled: bool = False
    by_default: bool = False
    trains: bool = True
    sums_only: bool = False
    releases: Callable[[Any, tuple[str, ...]], int] | None = None

    @property
    def federated(self) -> bool:
        """Whether it makes one model of several clients' data without bringing the data together."""
        return self.shared and not self.pooled

    def run(self, cohort: Cohort, plan: Plan) -> Iterator[Round]:
        """The rounds, with the options that the plan holds for it."""
        return self.rounds(cohort, plan, plan.federation.strategy_options(self.name, self.options))


strategies: Shelf[Strategy] = Shelf("method", __name__, "fedprognos.strategies")

__all__ = ["Budget", "Strategy", "strategies"]
