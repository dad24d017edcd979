"""Heads of a trained network: as trained and averaged, solved exactly, or each client's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.plan import Plan, summed
from fedprognos.federation.pool_messages import (
    ONLY_HEAD,
    PersonalReply,
    PersonalRequest,
    PooledSlopes,
    PoolReply,
    PoolRequest,
)
from fedprognos.federation.privacy.statistics import ada_ssp
from fedprognos.federation.secure.messages import LEAST_MEMBERS
from fedprognos.networks import Network
from fedprognos.networks.head import exact_head
from fedprognos.networks.pooling import Grid, pooled_fits, shared_slopes
from fedprognos.networks.residuals import HeadSums


@dataclass(frozen=True, eq=False)
class Judged:
    """A network and its error on what training kept out (None where nothing was), labels capped.

    Parameters
    ----------
    sums
        What its head was solved from; None where it was not.
    shares
        How much of its weight each client has in them; all of it where replies are masked.
    """

    network: Network
    validation_rmse: float | None
    sums: HeadSums | None = None
    shares: Mapping[str, float] = field(default_factory=dict)


def with_heads(
    cohort: Cohort, plan: Plan, clients: Iterable[str], network: Network, ridge: float | None = None
) -> dict[str, Judged]:
    """The network with each of the shared heads asked for, from one exchange with its clients.

    Parameters
    ----------
    ridge
        Strength of the exact head where nothing is kept out to choose it on; the plan's by default.
    """
    wanted = plan.federation.heads
    there = [name for name in clients if name in cohort.clients]
    if cohort.sums is not None and len(there) < LEAST_MEMBERS:  # a sum of one or two is theirs alone
        return {"mean": Judged(network, None)}
    statistics = "exact" in wanted or "personal" in wanted
    fraction = plan.train.validation_fraction
    if not statistics and fraction == 0:
        return {"mean": Judged(network, None)}
    found = plan.evaluate(cohort, there, network, statistics=statistics)
    judged = {}
    if "mean" in wanted:
        judged["mean"] = Judged(network, None if found.validation is None else found.validation.rmse)
    if (privacy := plan.privacy(cohort, network.spec, len(there))) is not None:
        return {**judged, "exact": Judged(network.with_head(ada_ssp(summed(found)[0], privacy, len(there))), None)}
    if statistics:
        fit, held = summed(found)
        solved = exact_head(fit, held, ridge or plan.federation.ridge)
        sums = HeadSums(fit if held is None else fit.add(held), solved.strength, plan.federation.alike)
        error = None
        if fraction > 0 and solved.validation_mse is not None:
            error = float(np.sqrt(solved.validation_mse)) * plan.recipe.label_std
        judged["exact"] = Judged(network.with_head(solved.head), error, sums, dict(plan.shares))
    return judged


def personal_heads(
    cohort: Cohort, plan: Plan, network: Network, clients: tuple[str, ...], head: str = ONLY_HEAD
) -> Mapping[str, str]:
    """Let clients make heads of their own from slopes that they share, and keep them under this name; by client."""
    there = [name for name in cohort.clients if name in clients]
    fraction, least = plan.train.validation_fraction, plan.federation.min_clients
    if cohort.sums is not None:  # shared slopes need each client's own sums: heads are made near the common one
        near = PersonalRequest(plan.recipe, network, plan.seed, fraction, head=head)
        made = gather(cohort, dict.fromkeys(there, near), PersonalReply, least, plan.left_out)
        return dict.fromkeys(made, head)
    asked = PoolRequest(plan.recipe, network, plan.seed, fraction)
    replies = gather(cohort, dict.fromkeys(there, asked), PoolReply, least, plan.left_out)
    grid = Grid.of(network.spec.features)
    shared = {}
    for k in range(pooled_fits(network, fraction)):
        sums = [one for reply in replies.values() if (one := reply.fits[k]) is not None]
        if sums:
            shared[k] = shared_slopes(sums, grid)
    slopes = PooledSlopes(grid.freedoms, shared)
    request = PersonalRequest(plan.recipe, network, plan.seed, fraction, slopes, head)
    made = gather(cohort, dict.fromkeys(replies, request), PersonalReply, least, plan.left_out)
    return dict.fromkeys(made, head)
