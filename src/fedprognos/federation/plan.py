"""What a strategy is given, and what it gives back after every round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, OnLeftOut
from fedprognos.federation.federation_section import FederationOptions
from fedprognos.matching import Matching
from fedprognos.networks import Epoch, Network, NetworkSpec, TrainOptions
from fedprognos.privacy import Privacy, quorum, stream

if TYPE_CHECKING:
    from fedprognos.federation.absorb_steps import AbsorptionRecord
    from fedprognos.federation.heads import Judged


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything the clients of one run agree on.

    Parameters
    ----------
    spec
        The shape of each client's network.
    without_reserve
        The units of every client's reserve are left out of this training.
    left_out
        Called with every client that a round continues without.
    clients
        How many clients there are, which central training cannot see: it asks the one that holds all data.
    releases
        How many noised sums of the same data a run sends, all scenarios, methods and seeds together.
    """

    recipe: Recipe
    spec: NetworkSpec
    train: TrainOptions
    federation: FederationOptions
    seed: int
    without_reserve: bool = False
    left_out: OnLeftOut = field(default=lambda failure: None)
    releases: int = 1
    clients: int = 1

    def common_start(self) -> Network:
        """Initial weights that are the same for everybody; the head begins at the mean label (0 standardised)."""
        return Network.seeded(self.spec, stream(self.seed, "", 0, "weights"), forget_bias=self.train.forget_bias)

    def participants(self, cohort: Cohort, round_: int) -> tuple[str, ...]:
        """Who takes part in a round: a seeded share of those who are there."""
        present = cohort.clients
        count = max(1, math.ceil(self.federation.participation * len(present)))
        rng = np.random.default_rng(stream(self.seed, "", round_, "participants"))
        return tuple(sorted(rng.permutation(np.array(present, dtype=object))[:count].tolist()))

    def privacy(self, cohort: Cohort, spec: NetworkSpec, clients: int) -> Privacy | None:
        """What so many clients do to the statistics of a network before they leave; None where it is not asked for."""
        options, least = self.federation.privacy, 0 if cohort.sums is None else quorum(clients)
        if options is None:
            return None
        return Privacy.for_statistics(options, self.recipe, spec.features + 1, self.releases, least)

    def gradient_privacy(self, cohort: Cohort) -> Privacy | None:
        """What clients do to their gradients; None where it is not asked for."""
        options, masked = self.federation.privacy, cohort.sums is not None
        return None if options is None else Privacy.for_gradients(options, self.releases, masked)

    def epochs_of(self, epochs: int | None, history: Mapping[str, Sequence[Epoch]]) -> int:
        """The epochs asked for; with `steps`, the largest number that any client trained."""
        if epochs is None and self.train.steps is not None:
            return max(map(len, history.values()), default=0) or self.train.epochs
        return epochs or self.train.epochs

    def counted(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """How much each client counts: its number of windows, up to `weight_cap` times the median one."""
        cap = self.federation.weight_cap
        most = np.inf if cap is None else cap * float(np.median(list(sizes.values())))
        return {name: float(min(size, most)) for name, size in sizes.items()}


@dataclass(frozen=True, eq=False)
class MatchedLayer:
    """How a layer's neurons were matched, and the clients' networks before that."""

    layer: str
    matching: Matching
    before: Mapping[str, Network]


@dataclass(frozen=True, eq=False)
class Round:
    """What a strategy has after a round.

    Parameters
    ----------
    models
        Networks by the clients they belong to: one for all of them, or one each.
    epochs
        Local epochs each client spent so far; None where `history` counts them.
    matched, absorbed
        How neurons were matched by their weights, or absorbed by their outputs, for the report.
    ridge
        Strength of the exact head where it is not that of the other methods.
    judged
        The models with every head asked for, as :func:`~fedprognos.federation.heads.judged_rounds` adds them.
    """

    number: int
    models: Mapping[tuple[str, ...], Network]
    epochs: int | None
    history: Mapping[str, tuple[Epoch, ...]] = field(default_factory=dict)
    matched: tuple[MatchedLayer, ...] = ()
    collapsed: frozenset[str] = frozenset()
    absorbed: AbsorptionRecord | None = None
    ridge: float | None = None
    judged: Mapping[tuple[str, ...], Mapping[str, Judged]] = field(default_factory=dict)

    @property
    def validation_rmse(self) -> float | None:
        """Mean error of the models with their first head on what training kept out; None where nothing was."""
        errors = [next(iter(heads.values())).validation_rmse for heads in self.judged.values()]
        return None if None in errors else float(np.mean(np.array(errors, dtype=float)))

    def epochs_of(self, clients: tuple[str, ...]) -> int:
        """Local epochs behind the model of these clients."""
        return len(self.history[clients[0]]) if self.epochs is None else self.epochs
