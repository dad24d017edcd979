"""Wear: sums over units from which it follows which columns move with the remaining life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.errors import MessageError
from fedprognos.features import Recipe, WearSums, carries_wear, wear_sums
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges import Cost, Exchange, Failure, OnEpoch, Words, exchanges
from fedprognos.federation.plausible import ROUNDING, check_count
from fedprognos.federation.totals import total
from fedprognos.fleet import Fleet

if TYPE_CHECKING:
    from fedprognos.federation.client import Client


@dataclass(frozen=True, eq=False)
class WearRequest:
    """Send sums over your units of how every column moves with the capped label."""

    recipe: Recipe


@dataclass(frozen=True, eq=False)
class WearReply:
    """The sums."""

    sums: WearSums


def answer(client: Client, request: WearRequest, on_epoch: OnEpoch | None) -> WearReply:
    """Sums over all units, where these are enough."""
    windows = client.windows(request.recipe)
    client.floors.check(windows)
    return WearReply(wear_sums(windows, request.recipe))


def cost(request: WearRequest, fleet: Fleet) -> Cost:
    """A copy of the columns, and one product of columns for each row."""
    width = float(len(request.recipe.sensors))
    return 16.0 * fleet.rows * (width + 2) + 8 * width**2, fleet.rows * width * 10 + len(fleet) * width**2


def check(request: WearRequest, reply: WearReply, most_points: int) -> None:
    """Sums that correlations between -1 and 1 can have."""
    sums, width = reply.sums, len(request.recipe.sensors)
    if sums.total.shape != (width,) or sums.products.shape != (width, width):
        raise MessageError(f"sent sums of {sums.total.shape} and {sums.products.shape} columns instead of {width}")
    check_count(max(sums.n, 1), most_points)  # no unit counts where all labels are the same
    largest = sums.n * (1 + ROUNDING)
    if not (np.abs(sums.total) <= largest).all() or not (np.abs(sums.products) <= largest).all():
        raise MessageError("sent correlations beyond 1")
    if (np.diag(sums.products) < 0).any():
        raise MessageError("sent squares below 0")


def template(request: WearRequest) -> WearReply:
    """Zeros for every column."""
    width = len(request.recipe.sensors)
    return WearReply(WearSums(0, np.zeros(width), np.zeros((width, width))))


def wear_columns(
    cohort: Cohort, recipe: Recipe, min_clients: int | None, left_out: Callable[[Failure], None]
) -> tuple[str, ...]:
    """The sensors of a recipe that carry wear in the units of all clients together."""
    requests = dict.fromkeys(cohort.clients, WearRequest(recipe))
    kept = carries_wear(total(cohort, requests, WearReply, min_clients, left_out).sums)
    return tuple(name for name, keep in zip(recipe.sensors, kept, strict=True) if keep)


exchanges.add(
    Exchange(
        WearRequest,
        WearReply,
        15,
        Words(
            "which columns carry wear",
            "sums over units of the correlations between columns and remaining life",
            "which columns move with wear, and how alike they do so in all units; no row",
        ),
        answer,
        cost,
        check,
        template=template,
        only_masked=True,
    )
)
