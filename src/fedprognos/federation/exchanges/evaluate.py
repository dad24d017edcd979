"""Evaluate: sums of a model's errors on what training kept out, and statistics from which its head is solved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.errors import FederationError, MessageError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.exchanges import Cost, Exchange, Failure, OnEpoch, Words, exchanges, network_below_head
from fedprognos.federation.limits import run_cost
from fedprognos.federation.plausible import (
    LARGEST_VALUE,
    ROUNDING,
    check_count,
    check_head_shape,
    check_head_statistics,
)
from fedprognos.federation.totals import add_all, masked_total
from fedprognos.fleet import Fleet
from fedprognos.networks import UNIT_WEIGHT, HeadStatistics, Network, head_statistics, predict
from fedprognos.privacy import Privacy, capped_statistics, harmless_statistics, private_statistics

if TYPE_CHECKING:
    from fedprognos.federation.client import Client
    from fedprognos.federation.plan import Plan


@dataclass(frozen=True, eq=False)
class EvaluateRequest:
    """Send this model's errors on your validation part, and, if asked, the statistics of its head.

    Parameters
    ----------
    validation_fraction
        The share that training kept out; 0 if none.
    alike
        Let units count alike in the statistics.
    privacy
        Clip the rows and add noise; nothing else is sent.
    factors
        Send products as float32 factors: these statistics choose neurons, and no head is solved from them.
    """

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    statistics: bool = False
    without_reserve: bool = False
    alike: bool = False
    privacy: Privacy | None = None
    factors: bool = False


@dataclass(frozen=True)
class ErrorSums:
    """Sums over predictions, in the label's own measure, labels capped: what a pooled RMSE is made of."""

    n: int
    error: float
    absolute: float
    squared: float

    def __post_init__(self) -> None:
        """Refuse sums that no predictions have: they may come from anybody."""
        if self.n < 1 or self.absolute < 0 or self.squared < 0:
            raise ValueError("sums that no predictions have")

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.squared / self.n))


@dataclass(frozen=True, eq=False)
class EvaluateReply:
    """Validation sums (None where nothing, or too little, was kept out) and head statistics of both parts."""

    validation: ErrorSums | None
    fit: HeadStatistics | None = None
    held: HeadStatistics | None = None


def answer(client: Client, request: EvaluateRequest, on_epoch: OnEpoch | None) -> EvaluateReply:
    """Errors on the part kept out, and statistics of parts that are large enough."""
    network, recipe, fraction = request.network.check("request"), request.recipe, request.validation_fraction
    if request.privacy is not None:
        points, _ = client.head_parts(recipe, request.seed, 0.0, request.without_reserve)
        return EvaluateReply(None, private_statistics(network, points, recipe, request.privacy))
    sums = None
    if fraction > 0:
        held = client.parts(recipe, request.seed, fraction, request.without_reserve)[1]
        if held is not None and client.floors.enough(held):
            error = predict(network, held, recipe) - recipe.capped(held.labels)
            absolute, squared = float(np.abs(error).sum()), float(np.square(error).sum())
            sums = ErrorSums(len(held), float(error.sum()), absolute, squared)
    if not request.statistics:
        return EvaluateReply(sums)
    parts = client.summed_parts(recipe, network, request.seed, fraction, request.alike, request.without_reserve)
    return EvaluateReply(sums, *(head_statistics(network, part, recipe, alike=request.alike) for part in parts))


def cost(request: EvaluateRequest, fleet: Fleet) -> Cost:
    """Three passes: errors, statistics, and the check that no row stands out."""
    return run_cost(request.recipe, request.network.spec, fleet, passes=3.0, squares=True)


def check(request: EvaluateRequest, reply: EvaluateReply, most_points: int) -> None:
    """Sums that predictions can have, and statistics that features and labels can have."""
    if reply.validation is not None:
        _check_errors(reply.validation, request.recipe, most_points)
    if not request.statistics:
        if reply.fit is not None or reply.held is not None:
            raise MessageError("sent statistics that were not asked for")
        return
    if reply.fit is None:
        raise MessageError("sent no statistics")
    if request.privacy is not None:  # noise breaks every other rule
        check_head_shape(request.network.spec, reply.fit)
        return
    if request.alike:
        most_points *= UNIT_WEIGHT
    check_head_statistics(request.network.spec, request.recipe, reply.fit, most_points)
    if reply.held is not None:
        check_head_statistics(request.network.spec, request.recipe, reply.held, most_points - reply.fit.n)


def _check_errors(sums: ErrorSums, recipe: Recipe, most_points: int) -> None:
    """|sum e| <= sum |e|, and Cauchy-Schwarz between sum |e| and sum e^2, with room for rounding."""
    check_count(sums.n, most_points)
    largest = (recipe.cap or LARGEST_VALUE) * (1 + ROUNDING)
    room = 1 + ROUNDING
    if (
        abs(sums.error) > sums.absolute * room + ROUNDING
        or sums.absolute > sums.n * largest
        or sums.absolute**2 > sums.squared * sums.n * room + ROUNDING
        or sums.squared > sums.absolute * largest * room + ROUNDING
    ):
        raise MessageError("sent sums that no predictions have")


def template(request: EvaluateRequest) -> EvaluateReply:
    """Every part that was asked for."""
    validation = ErrorSums(1, 0.0, 0.0, 0.0) if request.validation_fraction > 0 else None
    if not request.statistics:
        return EvaluateReply(validation)
    width = request.network.spec.features + 1
    sums = HeadStatistics(0, 0.0, np.zeros((width, width)), np.zeros(width))
    return EvaluateReply(validation, sums, sums if request.validation_fraction > 0 else None)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What clients say of a network together.

    Parameters
    ----------
    sums
        Their replies added up, without those of clients whose statistics harm the others.
    shares
        How much of its weight each client has in the statistics: 0 where it was left out. Empty where replies are
        masked, or have no statistics: then all count fully.
    """

    sums: EvaluateReply
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def head_statistics(self) -> tuple[HeadStatistics, HeadStatistics | None]:
        """Statistics of what was trained on, and of what was kept out where anything was."""
        if self.sums.fit is None:
            raise FederationError("no client sent statistics of the head")
        return self.sums.fit, self.sums.held

    def harmless(self, clients: Iterable[str]) -> list[str]:
        """Those of the clients that were not left out."""
        return [name for name in clients if self.shares.get(name, 1.0) > 0]


def evaluate(
    cohort: Cohort,
    plan: Plan,
    clients: Iterable[str],
    network: Network,
    *,
    statistics: bool = True,
    factors: bool = False,
) -> Evaluation:
    """Clients' errors on what training kept out and, where asked for, statistics of the head, added up."""
    clients, federation = tuple(clients), plan.federation
    request = EvaluateRequest(
        plan.recipe,
        network,
        plan.seed,
        plan.train.validation_fraction,
        statistics,
        plan.without_reserve,
        federation.alike,
        plan.privacy(cohort, network.spec, len(clients)),
        factors and cohort.sums is None,
    )
    requests = dict.fromkeys(clients, request)
    if cohort.sums is not None:
        return Evaluation(masked_total(cohort, requests, federation.min_clients, plan.left_out))
    replies = gather(cohort, requests, EvaluateReply, federation.min_clients, plan.left_out)
    if not statistics:
        return Evaluation(add_all(replies))
    sent = {name: (reply.fit, reply.held) for name, reply in replies.items() if reply.fit is not None}
    kept = capped_statistics(sent, federation.weight_cap)
    if federation.screen is not None:
        kept, harms = harmless_statistics(kept, federation.ridge, federation.screen)
        for harm in harms:
            plan.left_out(Failure(harm.client, "harmful", harm.in_words("its statistics")))
    sums = add_all({name: EvaluateReply(replies[name].validation, *parts) for name, parts in kept.items()})
    return Evaluation(sums, {name: _weight(kept.get(name)) / max(_weight(sent[name]), 1.0) for name in sent})


def _weight(parts: tuple[HeadStatistics, HeadStatistics | None] | None) -> float:
    """Points behind the statistics of what was trained on: the product of the column of ones with itself."""
    return 0.0 if parts is None else float(parts[0].hh[-1, -1])


exchanges.add(
    Exchange(
        EvaluateRequest,
        EvaluateReply,
        40,
        Words(
            "evaluating a model",
            "sums of errors, and of the head's features and labels (H'H, H'y)",
            "how features vary together; no row",
        ),
        answer,
        cost,
        check,
        template=template,
        only_masked=True,
        about=network_below_head,
    )
)
