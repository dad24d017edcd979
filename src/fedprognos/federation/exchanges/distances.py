"""Distances: how far a network's features go from their mean at any training point, for the measure of novelty.

The sums that a head is solved from give the distance (:mod:`fedprognos.networks.novelty`). They do not say how far it
gets in training, which a limit needs: windows of one machine differ more than its state does over a whole life. So each
client says between which two edges its largest distance lies, and the places of all clients are added up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import FederationError, MessageError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges, network_below_head
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.limits import run_cost
from fedprognos.federation.plausible import MOST_CLIENTS, MOST_ROWS, check_head_shape, check_head_statistics
from fedprognos.federation.totals import total
from fedprognos.fleet import Fleet
from fedprognos.networks import (
    DISTANCE_EDGES,
    HeadStatistics,
    Network,
    Novelty,
    largest_distance,
    novelty_from_sums,
)
from fedprognos.privacy import LEAST_MEMBERS

if TYPE_CHECKING:
    from fedprognos.federation.client import Client
    from fedprognos.federation.heads import Judged
    from fedprognos.federation.plan import Plan


@dataclass(frozen=True, eq=False)
class DistanceRequest:
    """Say between which of :data:`DISTANCE_EDGES` the largest distance of your points lies.

    Parameters
    ----------
    sums
        Of all clients' points under this network: they give the distance.
    """

    recipe: Recipe
    network: Network
    seed: int
    sums: HeadStatistics


@dataclass(frozen=True, eq=False)
class DistanceReply:
    """How many clients' largest distances lie below the first edge, between edges, and above the last."""

    clients: NDArray[np.int64]


def answer(client: Client, request: DistanceRequest, on_epoch: OnEpoch | None) -> DistanceReply:
    """A one in the right place, where no row stands out in the features."""
    network = request.network.check("request")
    (windows,) = client.summed_parts(request.recipe, network, request.seed, 0.0, alike=False)
    check_head_shape(network.spec, request.sums)
    # Statistics come from outside: as many points as they like, but such as features can have. Each processor adds them
    # up with its own last digits, so both halves count alike.
    sums = replace(request.sums, hh=(request.sums.hh + request.sums.hh.T) / 2)
    check_head_statistics(network.spec, request.recipe, sums, MOST_ROWS)
    novelty = novelty_from_sums(sums, network.spec)
    if novelty is None:
        raise MessageError("asked about the features of a network that has none")
    clients = np.zeros(len(DISTANCE_EDGES) + 1, dtype=np.int64)
    clients[np.searchsorted(DISTANCE_EDGES, largest_distance(novelty, network, windows))] = 1
    return DistanceReply(clients)


def cost(request: DistanceRequest, fleet: Fleet) -> Cost:
    """Two passes: the distances, and the check that no row stands out."""
    return run_cost(request.recipe, request.network.spec, fleet, passes=2.0, squares=True)


def check(request: DistanceRequest, reply: DistanceReply, most_points: int) -> None:
    """One place a client."""
    clients = reply.clients
    if clients.shape != (len(DISTANCE_EDGES) + 1,) or clients.dtype != np.int64:
        raise MessageError(f"sent {clients.shape} places instead of {len(DISTANCE_EDGES) + 1}")
    if clients.min() < 0 or not 1 <= clients.sum() <= MOST_CLIENTS:
        raise MessageError("sent places that no clients have")


def template(request: DistanceRequest) -> DistanceReply:
    """Nobody anywhere."""
    return DistanceReply(np.zeros(len(DISTANCE_EDGES) + 1, dtype=np.int64))


@dataclass(frozen=True)
class Unmeasured:
    """Why nothing is known of how far a network's state is from training."""

    reason: str


def measured_novelty(cohort: Cohort, plan: Plan, clients: Iterable[str], judged: Judged) -> Novelty | Unmeasured:
    """How far the features of a model's clients go, from the sums that its head was solved from.

    Where the head was not solved, the clients are asked for the same sums. Those with no part in them are not asked.
    """
    network, sums = judged.network, judged.sums
    present = tuple(name for name in clients if name in cohort.clients and judged.shares.get(name, 1.0) > 0)
    if plan.federation.privacy is not None:
        return Unmeasured("differential privacy does not cover it")
    if cohort.sums is not None and len(present) < LEAST_MEMBERS:
        return Unmeasured(f"a masked sum needs {LEAST_MEMBERS} clients")
    try:
        if sums is None:
            fit, held = evaluate(cohort, plan, present, network).head_statistics
            statistics = fit if held is None else fit.add(held)
        else:
            statistics = sums.total
        novelty = novelty_from_sums(statistics, network.spec)
        if novelty is None:
            return Unmeasured("the network has no features")
        request = DistanceRequest(plan.recipe, network, plan.seed, statistics)
        least, left_out = plan.federation.min_clients, plan.left_out
        places = total(cohort, dict.fromkeys(present, request), DistanceReply, least, left_out).clients
    except FederationError as error:
        return Unmeasured(f"some clients could not take part: {error.what}")
    furthest = int(np.flatnonzero(places).max())
    if furthest == len(DISTANCE_EDGES):
        return Unmeasured("states of training machines go too far to set a limit")
    return novelty.limited_by(float(DISTANCE_EDGES[furthest]))


exchanges.add(
    Exchange(
        DistanceRequest,
        DistanceReply,
        85,
        Words(
            "range of the network's states",
            "which of 26 ranges holds the largest distance of its features",
            "how unlike the others' this site's most unusual row is, roughly",
        ),
        answer,
        cost,
        check,
        template=template,
        only_masked=True,
        about=network_below_head,
    )
)
