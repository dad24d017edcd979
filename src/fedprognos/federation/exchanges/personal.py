"""Personal heads: clients pool sums for slopes that they share, then each makes a head for itself, which stays.

Two exchanges: PoolRequest asks for the sums, PersonalRequest brings the shared slopes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges, network_below_head
from fedprognos.federation.limits import run_cost
from fedprognos.federation.plausible import LARGEST_VALUE, check_count
from fedprognos.fleet import Fleet
from fedprognos.matching import OutputSums
from fedprognos.networks import (
    CentredSums,
    Fits,
    Grid,
    Network,
    forward_fits,
    head_statistics,
    judged_on_held_out,
    pooled_fits,
    shared_slopes,
)
from fedprognos.privacy import FloorError

if TYPE_CHECKING:
    from fedprognos.federation.client import Client
    from fedprognos.federation.plan import Plan

MAX_STRENGTHS = 64
ONLY_HEAD = "0" * 32
"""Name of a personal head where a client makes a single one."""


def head_name(*facts: object) -> str:
    """A name for the personal heads of one model, from what the run says of it: scenario, method, seed, round, owners.

    Never from computed numbers: another processor computes other last digits and would not find the head.
    """
    return hashlib.sha256("\x1f".join(map(str, facts)).encode()).hexdigest()[: len(ONLY_HEAD)]


@dataclass(frozen=True, eq=False)
class PoolRequest:
    """Send the sums from which slopes shared by personal heads follow: of your earlier points, and of all."""

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float


@dataclass(frozen=True, eq=False)
class PoolReply:
    """Centred sums of the points before each cut and of all; None in place of sums of too few points."""

    fits: tuple[CentredSums | None, ...]


@dataclass(frozen=True, eq=False)
class PooledSlopes:
    """Slopes that clients share, for every freedom (f,) of their own slopes and every strength.

    Parameters
    ----------
    shared
        (f, strengths, features) by the number of the cut they are fitted up to; the last are those of all points.
    """

    freedoms: NDArray[np.float64]
    shared: Mapping[int, NDArray[np.float64]]

    @staticmethod
    def near(network: Network, fits: int) -> PooledSlopes:
        """The slopes of a network's head in place of slopes that clients share."""
        freedoms, slopes = Grid.for_columns(network.spec.features).freedoms, network.head[:-1]
        every = np.broadcast_to(slopes, (len(freedoms), 1, len(slopes)))
        return PooledSlopes(freedoms, dict.fromkeys(range(fits), every))

    def check(self, fits: int, columns: int) -> PooledSlopes:
        """These slopes, or :class:`MessageError` if they do not fit what the client has."""
        freedoms = self.freedoms
        if freedoms.ndim != 1 or not 1 <= len(freedoms) <= MAX_STRENGTHS or (freedoms < 0).any():
            raise MessageError(f"freedoms of personal heads must be 1 to {MAX_STRENGTHS} numbers of at least 0")
        if fits - 1 not in self.shared or not all(0 <= k < fits for k in self.shared):
            raise MessageError("slopes of other cuts than the client has, or not those of all points")
        for slopes in self.shared.values():
            fitting = slopes.ndim == 3 and slopes.shape[::2] == (len(freedoms), columns)
            if not fitting or not 1 <= slopes.shape[1] <= MAX_STRENGTHS:
                raise MessageError("slopes that do not fit the network's head")
        return self


@dataclass(frozen=True, eq=False)
class PersonalRequest:
    """Make yourself a head and keep it: from shared slopes, or near the head of this model without them.

    Parameters
    ----------
    head
        Name to keep it under, by which a :class:`ScoreRequest` asks for it.
    """

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    slopes: PooledSlopes | None = None
    head: str = ONLY_HEAD


@dataclass(frozen=True)
class PersonalReply:
    """The head was made from so many windows; the head itself stays."""

    windows: int


def answer_pool(client: Client, request: PoolRequest, on_epoch: OnEpoch | None) -> PoolReply:
    """Sums of all points, and of the earlier ones where they are enough and no row stands out in them."""
    floors, network, fraction = client.floors, request.network, request.validation_fraction
    fits = _fits(client, request).sendable(floors.rows, floors.units, apart=floors.parts)
    if floors.leverage < 1:
        floors.check_leverage(network, client.learnt_from(request.recipe, request.seed))
        try:
            if not judged_on_held_out(network, fraction):
                raise FloorError("parts of few points")
            for part in client.head_parts(request.recipe, request.seed, fraction):
                if part is not None:
                    floors.check_leverage(network, part)
        except FloorError:  # only the sums of all points leave
            fits = (*[None] * (len(fits) - 1), fits[-1])
    return PoolReply(fits)


def answer_personal(client: Client, request: PersonalRequest, on_epoch: OnEpoch | None) -> PersonalReply:
    """Make the head and keep it in the client's folder."""
    fits, columns = _fits(client, request), request.network.spec.features
    slopes = request.slopes or PooledSlopes.near(request.network, len(fits.fitted))
    slopes.check(len(fits.fitted), columns)
    client.folder.save_head(request.head, fits.head(slopes.freedoms, slopes.shared))
    return PersonalReply(fits.fitted[-1].n)


def _fits(client: Client, request: PoolRequest | PersonalRequest) -> Fits:
    """Statistics of the points that a personal head is fitted to, and of those on which it is evaluated."""
    network, fraction = request.network.check("request"), request.validation_fraction
    if not judged_on_held_out(network, fraction):
        windows = client.head_parts(request.recipe, request.seed, 0.0)[0]
        return forward_fits(network, windows, request.recipe, client.split_seed(request.seed, "cuts", 0.0))
    train, held = client.head_parts(request.recipe, request.seed, fraction)
    learnt = head_statistics(network, train, request.recipe)
    later = head_statistics(network, train.select(np.arange(0)) if held is None else held, request.recipe)
    return Fits([learnt, learnt.add(later)], [later], nested=held is not None)


def cost(request: PoolRequest | PersonalRequest, fleet: Fleet) -> Cost:
    """Two passes, sums of seven parts more with a few copies of each, and a solution for every strength."""
    memory, operations = run_cost(request.recipe, request.network.spec, fleet, passes=2.0, squares=True)
    width = float(request.network.spec.features)
    return memory + 7 * 32.0 * width**2, operations + MAX_STRENGTHS * 10.0 * width**3


def check_pool(request: PoolRequest, reply: PoolReply, most_points: int) -> None:
    """Sums of every cut that features and labels can have; those of all points must be there."""
    if len(reply.fits) != pooled_fits(request.network, request.validation_fraction) or reply.fits[-1] is None:
        raise MessageError("sent sums of other points than asked for")
    columns = request.network.spec.features
    for sums in reply.fits:
        if sums is None:
            continue
        sums.check(columns)
        check_count(sums.n, most_points)
        OutputSums(sums.n, 0, np.zeros(columns), sums.matrix()).check(bounded=False)
        if columns and np.abs(sums.slope).max() > sums.n * LARGEST_VALUE**2:
            raise MessageError(f"sent slopes beyond {LARGEST_VALUE:g} squared a point")


def check_personal(request: PersonalRequest, reply: PersonalReply, most_points: int) -> None:
    """A possible number of points."""
    check_count(reply.windows, most_points)


def personal_heads(
    cohort: Cohort, plan: Plan, network: Network, clients: tuple[str, ...], head: str = ONLY_HEAD
) -> Mapping[str, str]:
    """Let clients make heads of their own from slopes that they share, and keep them under this name; by client."""
    present = [name for name in cohort.clients if name in clients]
    fraction, least = plan.train.validation_fraction, plan.federation.min_clients
    if cohort.sums is not None:  # shared slopes need each client's own sums: heads are made near the common one
        near = PersonalRequest(plan.recipe, network, plan.seed, fraction, head=head)
        replies = gather(cohort, dict.fromkeys(present, near), PersonalReply, least, plan.left_out)
        return dict.fromkeys(replies, head)
    asked = PoolRequest(plan.recipe, network, plan.seed, fraction)
    pooled = gather(cohort, dict.fromkeys(present, asked), PoolReply, least, plan.left_out)
    grid = Grid.for_columns(network.spec.features)
    shared = {}
    for k in range(pooled_fits(network, fraction)):
        sums = [fit for reply in pooled.values() if (fit := reply.fits[k]) is not None]
        if sums:
            shared[k] = shared_slopes(sums, grid)
    slopes = PooledSlopes(grid.freedoms, shared)
    request = PersonalRequest(plan.recipe, network, plan.seed, fraction, slopes, head)
    replies = gather(cohort, dict.fromkeys(pooled, request), PersonalReply, least, plan.left_out)
    return dict.fromkeys(replies, head)


exchanges.add(
    Exchange(
        PoolRequest,
        PoolReply,
        60,
        Words(
            "sums for personal heads",
            "centred sums of the head's features and labels, for slopes that personal heads share",
            "how features vary together; no row",
        ),
        answer_pool,
        cost,
        check_pool,
        only_masked=True,
        about=network_below_head,
    )
)
exchanges.add(
    Exchange(
        PersonalRequest,
        PersonalReply,
        70,
        Words(
            "making personal heads",
            "on how many points a head was made for this client; the head stays",
            "a number of points",
        ),
        answer_personal,
        cost,
        check_personal,
    )
)
