"""What a strategy is given and what it gives back, and the steps that several of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.errors import FederationError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import (
    EvaluateReply,
    EvaluateRequest,
    Failure,
    FitReply,
    FitRequest,
    OutputsReply,
    OutputsRequest,
)
from fedprognos.federation.options import FederationOptions
from fedprognos.federation.privacy import Privacy
from fedprognos.federation.screening import capped_statistics, harmless_statistics, shares
from fedprognos.federation.secure.messages import quorum
from fedprognos.federation.seeds import stream
from fedprognos.federation.totals import masked_total, total
from fedprognos.matching import Matching
from fedprognos.networks import Epoch, Network, NetworkSpec
from fedprognos.networks.head import HeadStatistics
from fedprognos.networks.options import TrainOptions

if TYPE_CHECKING:
    from fedprognos.federation.absorption import AbsorptionRecord
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
        Called with every client that a round goes on without.
    shares
        How much of its weight each client has in the statistics of the latest network: none where it did others harm.
    releases
        How many noised sums of the same data a run sends, all scenarios, methods and seeds together.
    """

    recipe: Recipe
    spec: NetworkSpec
    train: TrainOptions
    federation: FederationOptions
    seed: int
    without_reserve: bool = False
    left_out: Callable[[Failure], None] = field(default=lambda failure: None)
    shares: dict[str, float] = field(default_factory=dict)
    releases: int = 1

    def common_start(self) -> Network:
        """Initial weights that are the same for everybody; the head begins at the mean label (0 standardised)."""
        return Network.seeded(self.spec, stream(self.seed, "", 0, "weights"), forget_bias=self.train.forget_bias)

    def participants(self, cohort: Cohort, round_: int) -> tuple[str, ...]:
        """Who takes part in a round: a seeded share of those who are there."""
        there = cohort.clients
        count = max(1, math.ceil(self.federation.participation * len(there)))
        rng = np.random.default_rng(stream(self.seed, "", round_, "participants"))
        return tuple(sorted(rng.permutation(np.array(there, dtype=object))[:count].tolist()))

    def evaluate(self, cohort: Cohort, clients: Iterable[str], network: Network, *, statistics: bool) -> EvaluateReply:
        """The clients' errors on what training kept out and, where asked for, statistics of the head, added up."""
        fraction = self.train.validation_fraction
        asked, alike = tuple(clients), self.federation.alike
        privacy = self.privacy(cohort, network.spec, len(asked))
        request = EvaluateRequest(
            self.recipe, network, self.seed, fraction, statistics, self.without_reserve, alike, privacy
        )
        requests = dict.fromkeys(asked, request)
        self.shares.clear()
        screen = self._harmless if statistics else None
        return total(cohort, requests, EvaluateReply, self.federation.min_clients, self.left_out, screen)

    def privacy(self, cohort: Cohort, spec: NetworkSpec, clients: int) -> Privacy | None:
        """What so many clients do to the statistics of a network before they leave; None where it is not asked for."""
        options, least = self.federation.privacy, 0 if cohort.sums is None else quorum(clients)
        return None if options is None else Privacy.of(options, self.recipe, spec.features + 1, self.releases, least)

    def gradient_privacy(self, cohort: Cohort) -> Privacy | None:
        """What clients do to their gradients; None where it is not asked for."""
        options, masked = self.federation.privacy, cohort.sums is not None
        return None if options is None else Privacy.of_gradients(options, self.releases, masked)

    def outputs(self, cohort: Cohort, clients: Iterable[str], network: Network) -> OutputsReply:
        """Sums of the outputs of every layer over these clients, but those whose statistics did harm just now."""
        fraction = self.train.validation_fraction
        request = OutputsRequest(self.recipe, network, self.seed, fraction, self.without_reserve)
        trusted = [name for name in clients if self.shares.get(name, 1.0) > 0]
        asked = dict.fromkeys(trusted, request)
        return total(cohort, asked, OutputsReply, self.federation.min_clients, self.left_out)

    def epochs_of(self, epochs: int | None, history: Mapping[str, Sequence[Epoch]]) -> int:
        """Local epochs that a training took: those asked for or, where steps decide, those of whoever took most."""
        if epochs is None and self.train.steps is not None:
            return max(map(len, history.values()), default=0) or self.train.epochs
        return epochs or self.train.epochs

    def counted(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """How much each client counts: its number of windows, up to `weight_cap` times the median one."""
        cap = self.federation.weight_cap
        most = np.inf if cap is None else cap * float(np.median(list(sizes.values())))
        return {name: float(min(size, most)) for name, size in sizes.items()}

    def _harmless(self, replies: dict[str, EvaluateReply]) -> dict[str, EvaluateReply]:
        """Replies of those whose statistics do the others no harm, none counting too much."""
        tolerance, cap = self.federation.screen, self.federation.weight_cap
        if tolerance is None:
            kept = capped_statistics(replies, cap)
        else:
            kept, found = harmless_statistics(replies, self.federation.ridge, tolerance, cap)
            for harm in found:
                self.left_out(harm.failure("its statistics"))
        self.shares.update(shares(replies, kept))
        return kept


@dataclass(frozen=True, eq=False)
class ClientModels:
    """What some clients trained: by name, each one's network, number of windows and training history."""

    networks: Mapping[str, Network]
    sizes: Mapping[str, int]
    history: Mapping[str, tuple[Epoch, ...]]
    collapsed: frozenset[str] = frozenset()

    def only(self, names: Iterable[str]) -> ClientModels:
        """Those of some clients."""
        kept = set(names)
        return ClientModels(
            {n: v for n, v in self.networks.items() if n in kept},
            {n: v for n, v in self.sizes.items() if n in kept},
            {n: v for n, v in self.history.items() if n in kept},
            self.collapsed & kept,
        )


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
        Local epochs each client spent so far; None where `history` tells.
    matched, absorbed
        How neurons were matched by their weights, or absorbed by their outputs, for the report.
    ridge
        Strength of the exact head where it is not that of the other methods.
    judged
        The models with every head asked for, as :func:`~fedprognos.federation.rounds.judged_rounds` adds them.
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


def fit_request(
    plan: Plan,
    start: Network | None,
    epochs: int | None,
    round_: int,
    phase: str = "local",
    frozen: int = 0,
    proximal: float = 0.0,
    privacy: Privacy | None = None,
) -> FitRequest:
    """What a client is asked to train: on from a network, or one of its own."""
    return FitRequest(
        plan.recipe,
        plan.train.training(epochs),
        plan.train.validation_fraction,
        plan.seed,
        plan.spec if start is None else None,
        start,
        round_,
        phase,
        frozen,
        proximal,
        plan.without_reserve,
        privacy,
    )


def masked_mean(
    cohort: Cohort, plan: Plan, starts: Mapping[str, Network], *, epochs: int | None, round_: int, proximal: float = 0.0
) -> Network:
    """Clients train from one network; the mean of what they learnt, weighted by their windows, from masked sums."""
    start = next(iter(starts.values()))
    request = fit_request(plan, start, epochs, round_, proximal=proximal, privacy=plan.gradient_privacy(cohort))
    least = plan.federation.min_clients
    return Network(start.spec, masked_total(cohort, dict.fromkeys(starts, request), least, plan.left_out).mean())


def train(
    cohort: Cohort,
    plan: Plan,
    starts: Mapping[str, Network | None],
    *,
    epochs: int | None,
    round_: int,
    phase: str = "local",
    frozen: int = 0,
    proximal: float = 0.0,
) -> ClientModels:
    """Clients train from the networks given, or from weights of their own where None is given."""

    privacy = plan.gradient_privacy(cohort)

    def request(start: Network | None) -> FitRequest:
        return fit_request(plan, start, epochs, round_, phase, frozen, proximal, privacy)

    made = {id(start): request(start) for start in starts.values()}
    requests = {name: made[id(start)] for name, start in starts.items()}
    replies = gather(cohort, requests, FitReply, plan.federation.min_clients, plan.left_out)
    networks = {}
    for name, reply in replies.items():
        start = starts[name]
        known = {} if start is None else start.weights
        networks[name] = Network(requests[name].shape, {**known, **reply.weights})
    return ClientModels(
        networks,
        {name: reply.windows for name, reply in replies.items()},
        {name: reply.history for name, reply in replies.items()},
        frozenset(name for name, reply in replies.items() if reply.collapsed),
    )


def summed(found: EvaluateReply) -> tuple[HeadStatistics, HeadStatistics | None]:
    """Head statistics of what was trained on, and of what was kept out, where anything was."""
    if found.fit is None:
        raise FederationError("no client sent statistics of the head")
    return found.fit, found.held
