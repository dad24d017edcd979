"""Wear: sums over units from which it follows which columns move with the remaining life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.errors import MessageError
from fedprognos.features import Recipe, WearSums, carries_wear, wear_sums
from fedprognos.federation.cohort import Cohort, OnLeftOut, gather
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges
from fedprognos.federation.federation_section import FederationOptions
from fedprognos.federation.plausible import check_count
from fedprognos.federation.totals import add_all, masked_total
from fedprognos.fleet import Fleet
from fedprognos.matching import OutputSums

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
    """Sums over all units whose label changes; nothing where these are fewer than the floor."""
    windows = client.windows(request.recipe)
    client.floors.check(windows)
    sums = wear_sums(windows, request.recipe)
    # The floor must hold for the units that count, too: the sums of one unit are that unit's correlations.
    return WearReply(sums) if sums.n >= client.floors.units else template(request)


def cost(request: WearRequest, fleet: Fleet) -> Cost:
    """A copy of the columns, and one product of columns for each row."""
    width = float(len(request.recipe.sensors))
    return 16.0 * fleet.rows * (width + 2) + 8 * width**2, fleet.rows * width * 10 + len(fleet) * width**2


def check(request: WearRequest, reply: WearReply, most_points: int) -> None:
    """Sums that correlations between -1 and 1 can have."""
    sums, width = reply.sums, len(request.recipe.sensors)
    if sums.total.shape != (width,) or sums.products.shape != (width, width):
        raise MessageError(f"sent sums of {sums.total.shape} and {sums.products.shape} columns instead of {width}")
    if sums.n == 0:  # no unit counts where all labels are the same, or too few units have others
        if sums.total.any() or sums.products.any():
            raise MessageError("sent sums of no units that are not zero")
        return
    check_count(sums.n, most_points)
    OutputSums(sums.n, 0, sums.total, sums.products).check(bounded=True)


def template(request: WearRequest) -> WearReply:
    """Zeros for every column."""
    width = len(request.recipe.sensors)
    return WearReply(WearSums(0, np.zeros(width), np.zeros((width, width))))


def wear_columns(cohort: Cohort, recipe: Recipe, federation: FederationOptions, left_out: OnLeftOut) -> tuple[str, ...]:
    """The sensors of a recipe that carry wear in the units of all clients together."""
    requests = dict.fromkeys(cohort.clients, WearRequest(recipe))
    if cohort.sums is not None:
        reply = masked_total(cohort, requests, federation.min_clients, left_out)
    else:
        replies = gather(cohort, requests, WearReply, federation.min_clients, left_out)
        reply = add_all(capped_wear(replies, federation.weight_cap))
    return tuple(name for name, keep in zip(recipe.sensors, carries_wear(reply.sums), strict=True) if keep)


def capped_wear(replies: Mapping[str, WearReply], cap: float | None) -> Mapping[str, WearReply]:
    """Replies in which no client has more units than `cap` times the median client: more are scaled down."""
    counts = [reply.sums.n for reply in replies.values() if reply.sums.n]
    if cap is None or not counts:
        return replies
    most = max(int(cap * np.median(counts)), 1)
    capped = {}
    for name, reply in replies.items():
        sums, share = reply.sums, min(1.0, most / max(reply.sums.n, 1))
        capped[name] = WearReply(WearSums(min(sums.n, most), share * sums.total, share * sums.products))
    return capped


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
