"""What a strategy is given and what it gives back, and the steps that several of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import FederationError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.messages import (
    BringReply,
    BringRequest,
    ExamineReply,
    ExamineRequest,
    Failure,
    FitReply,
    FitRequest,
)
from fedprognos.federation.options import FederationOptions
from fedprognos.federation.seeds import stream
from fedprognos.matching import Matching
from fedprognos.networks import Epoch, HealthNetwork, NetworkSpec, Weights, weights_of
from fedprognos.networks.anatomy import Anatomy, anatomy_of
from fedprognos.networks.head import HeadStatistics, add_all
from fedprognos.networks.options import TrainOptions


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything the clients of one run agree on.

    Parameters
    ----------
    fold, folds
        Units of one of so many folds are left out of this training; no folds by default.
    left_out
        Told of every client that a round goes on without.
    """

    recipe: Recipe
    network: NetworkSpec
    train: TrainOptions
    federation: FederationOptions
    seed: int
    fold: int = 0
    folds: int = 0
    left_out: Callable[[Failure], None] = field(default=lambda failure: None)

    @property
    def anatomy(self) -> Anatomy:
        return anatomy_of(self.network.cell, len(self.network.widths), self.network.input_width is not None)

    def common_start(self) -> Weights:
        """Initial weights that are the same for everybody; the head begins at the mean label (0 standardised)."""
        return weights_of(HealthNetwork.seeded(self.network, stream(self.seed, "", 0, "weights")))

    def examined(
        self, cohort: Cohort, clients: Iterable[str], network: NetworkSpec, weights: Weights, *, statistics: bool
    ) -> dict[str, ExamineReply]:
        """How a model does on what training kept out, as clients say, with the statistics of its head or without."""
        fraction = self.train.validation_fraction
        request = ExamineRequest(self.recipe, network, weights, self.seed, fraction, statistics, self.fold, self.folds)
        requests = dict.fromkeys(clients, request)
        return gather(cohort, requests, ExamineReply, self.federation.min_clients, self.left_out)

    def participants(self, cohort: Cohort, round_: int) -> tuple[str, ...]:
        """Who takes part in a round: a seeded share of those who are there."""
        there = cohort.clients
        count = max(1, math.ceil(self.federation.participation * len(there)))
        rng = np.random.default_rng(stream(self.seed, "", round_, "participants"))
        return tuple(sorted(rng.permutation(np.array(there, dtype=object))[:count].tolist()))


@dataclass(frozen=True, eq=False)
class Trained:
    """One client's model on its way into the federated one."""

    network: NetworkSpec
    weights: Weights
    windows: int
    history: tuple[Epoch, ...] = ()


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model.

    Parameters
    ----------
    clients
        Who trained it, and who is asked about it.
    epochs
        Local epochs each of them spent on it so far.
    """

    clients: tuple[str, ...]
    network: NetworkSpec
    weights: Weights
    epochs: int
    history: Mapping[str, tuple[Epoch, ...]] = field(default_factory=dict)
    collapsed: bool = False


@dataclass(frozen=True, eq=False)
class Matched:
    """How a layer's neurons were matched, and the clients' weights before that."""

    layer: str
    matching: Matching
    before: Mapping[str, Trained]


@dataclass(frozen=True, eq=False)
class Round:
    """What a strategy has after a round: one model for all clients, or one each."""

    number: int
    models: tuple[Model, ...]
    matched: tuple[Matched, ...] = ()


def train(
    cohort: Cohort,
    plan: Plan,
    starts: Mapping[str, tuple[NetworkSpec, Weights | None]],
    *,
    epochs: int | None,
    round_: int,
    phase: str = "local",
    frozen: int = 0,
    proximal: float = 0.0,
) -> tuple[dict[str, Trained], frozenset[str]]:
    """Clients train from where they are told to; their models, and the names of those that collapsed."""
    section = plan.train if epochs is None else plan.train.model_copy(update={"epochs": epochs})
    requests = {
        name: FitRequest(
            plan.recipe, network, section, plan.seed, round_, phase, weights, frozen, proximal, plan.fold, plan.folds
        )
        for name, (network, weights) in starts.items()
    }
    replies = gather(cohort, requests, FitReply, plan.federation.min_clients, plan.left_out)
    trained = {
        name: Trained(starts[name][0], {**(starts[name][1] or {}), **reply.weights}, reply.windows, reply.history)
        for name, reply in replies.items()
    }
    return trained, frozenset(name for name, reply in replies.items() if reply.collapsed)


def first_models(
    cohort: Cohort, plan: Plan, clients: Iterable[str], *, epochs: int | None, common: bool
) -> dict[str, Trained]:
    """The models a matching begins with: trained now, or brought by the clients; collapsed ones are kept out."""
    if plan.federation.start == "bundles":
        requests = dict.fromkeys(clients, BringRequest())
        brought = gather(cohort, requests, BringReply, plan.federation.min_clients, plan.left_out)
        for name, reply in brought.items():
            if reply.recipe != plan.recipe:
                raise FederationError("its model was made with another recipe", where=f"client {name}")
            if reply.network.cell != plan.network.cell or reply.network.layers != plan.network.layers:
                raise FederationError("its model has another cell or other layers", where=f"client {name}")
        return {name: Trained(r.network, r.weights, r.windows) for name, r in brought.items()}
    start = plan.common_start() if common else None
    starts = dict.fromkeys(clients, (plan.network, start))
    return sound(plan, *train(cohort, plan, starts, epochs=epochs, round_=1))


def sound(plan: Plan, trained: dict[str, Trained], collapsed: frozenset[str]) -> dict[str, Trained]:
    """Keep models that always say the mean out of a matching; all of them are kept where there is no other."""
    kept = {name: model for name, model in trained.items() if name not in collapsed}
    text = "its model collapsed to the mean" + (" and is kept out of the matching" if kept else ", as all models did")
    for name in sorted(collapsed):
        plan.left_out(Failure(name, "collapsed", text))
    return kept or trained


def summed(replies: Mapping[str, ExamineReply]) -> tuple[HeadStatistics, HeadStatistics | None]:
    """Everybody's head statistics together: of what was trained on, and of what was kept out, where anything was."""
    fit = add_all(reply.fit for reply in replies.values() if reply.fit is not None)
    held = [reply.held for reply in replies.values() if reply.held is not None]
    return fit, add_all(held) if held else None


def network_of(weights: Weights, like: NetworkSpec, anatomy: Anatomy) -> NetworkSpec:
    """The shape of a network from its weights."""
    widths = anatomy.widths(weights)
    recurrent = tuple(widths[f"recurrent.{k}"] for k in range(len(like.widths)))
    return like.model_copy(update={"widths": recurrent, "input_width": widths.get("input")})


def as_float32(weights: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.float32]]:
    """Averages back in the dtype that networks have."""
    return {name: np.asarray(array, dtype=np.float32) for name, array in weights.items()}
