"""Choice: each client takes the head that is best for its own machines, judged on units it kept out.

A client is offered the shared head of a model. From its own sums it makes others for the same features: a personal head
near the shared one, one that sees the neurons of its own network only (alone), one that sees the inputs only
(linear), and the mean of shared and alone. All are fitted to the units it trained on; the one with the smallest error
on the units it kept out is fitted again to all of them and kept. The head stays with the client; which kind it is and
its ridge strength leave. The choice is only as good as the units kept out: where training chose its best epoch on them,
they flatter the client's own neurons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort, gather
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges
from fedprognos.federation.exchanges.personal import ONLY_HEAD
from fedprognos.federation.limits import run_cost
from fedprognos.federation.plausible import check_count
from fedprognos.fleet import Fleet
from fedprognos.networks import HeadStatistics, Network, head_statistics, mean_squared_error, solve_head

if TYPE_CHECKING:
    from fedprognos.federation.client import Client
    from fedprognos.federation.plan import Plan

KINDS = ("together", "personal", "blend", "alone", "linear")
STRENGTHS = tuple(10.0**k for k in range(-6, 2))
"""Ridge strengths tried, relative to the spread of each feature."""
LEAST_GAIN = 0.05
"""Another head must lower the shared head's error by this share: kept-out units are few."""


@dataclass(frozen=True, eq=False)
class ChoiceRequest:
    """Choose a head for your machines and keep it.

    Parameters
    ----------
    network
        The model, with its shared head.
    fitted
        The shared head (L + 1,) before it was fitted to units kept out: these can judge it. Empty
        where there is none: the shared head is taken then, or that of `kind` and `strength`.
    neurons
        First of the client's own neurons among the features, and the one after the last; (0, 0) if none are its own.
    head
        Name to keep it under.
    """

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    fitted: NDArray[np.float64]
    neurons: tuple[int, int] = (0, 0)
    kind: str = ""
    strength: float = 1.0
    alike: bool = False
    head: str = ONLY_HEAD


@dataclass(frozen=True)
class ChoiceReply:
    """What was chosen, with which ridge strength, and from how many windows the head was made."""

    kind: str
    strength: float
    windows: int


def answer(client: Client, request: ChoiceRequest, on_epoch: OnEpoch | None) -> ChoiceReply:
    """Choose on the units kept out, then fit to all; without such units the shared head is taken."""
    network, fraction = request.network.check("request"), request.validation_fraction
    if request.kind and request.kind not in KINDS:
        raise MessageError("not a kind of head")
    train, held = client.head_parts(request.recipe, request.seed, fraction)
    fit = head_statistics(network, train, request.recipe, alike=request.alike)
    if len(request.fitted) not in (0, len(network.head)):
        raise MessageError("a head that does not fit the network")
    whole, kind, strength = fit, request.kind or KINDS[0], request.strength
    if held is not None and len(request.fitted) and not request.kind:
        kept_out = head_statistics(network, held, request.recipe, alike=request.alike)
        kind, strength = choose(fit, kept_out, request.fitted, _columns(request))
        whole = fit.add(kept_out)
    head = make_head(kind, strength, whole, network.head, _columns(request))
    client.folder.save_head(request.head, head)
    return ChoiceReply(kind, strength, len(train) + (0 if held is None else len(held)))


def _columns(request: ChoiceRequest) -> dict[str, IntArray]:
    """Features that the heads `alone` and `linear` see; without neurons of its own, a client sees everybody's.

    Local models see the inputs beside their neurons as well, so `alone` does.
    """
    spec, (first, end) = request.network.spec, request.neurons
    if not 0 <= first <= end <= spec.hidden:
        raise MessageError("other neurons than the network has")
    inputs = np.arange(spec.hidden + spec.reservoir, spec.features)
    neurons = np.arange(first, end) if end > first else np.arange(spec.hidden)
    return {"alone": np.concatenate([neurons, inputs]), "linear": inputs}


def choose(
    fit: HeadStatistics, kept_out: HeadStatistics, shared: FloatArray, columns: Mapping[str, IntArray]
) -> tuple[str, float]:
    """Kind and strength of the head with the smallest error on kept-out units; the shared one unless another gains."""
    errors = {("together", 1.0): mean_squared_error(kept_out, shared)}
    for kind in KINDS[1:]:
        for strength in STRENGTHS:
            if kind in ("personal", "blend") or len(columns[kind]):
                head = make_head(kind, strength, fit, shared, columns)
                errors[kind, strength] = mean_squared_error(kept_out, head)
    best = min(errors, key=lambda option: errors[option])
    together = ("together", 1.0)
    return best if errors[best] < (1 - LEAST_GAIN) ** 2 * errors[together] else together


def make_head(
    kind: str, strength: float, statistics: HeadStatistics, shared: FloatArray, columns: Mapping[str, IntArray]
) -> FloatArray:
    """A head (L + 1,) of one kind from a client's own sums."""
    if kind == "together":
        return shared
    if kind == "personal":  # what is left of the labels is fitted by a deviation from the shared head, held small
        left = replace(statistics, hy=statistics.hy - statistics.hh @ shared)
        return np.asarray(shared + solve_head(left, strength))
    if kind == "blend":
        return np.asarray((shared + make_head("alone", strength, statistics, shared, columns)) / 2)
    seen = columns[kind]
    head = np.zeros_like(shared)
    head[np.append(seen, len(head) - 1)] = solve_head(statistics.only(seen), strength)
    return head


def cost(request: ChoiceRequest, fleet: Fleet) -> Cost:
    """Two passes, and a solution for every kind and strength."""
    memory, operations = run_cost(request.recipe, request.network.spec, fleet, passes=2.0, squares=True)
    width = float(request.network.spec.features)
    return memory + 8 * 8.0 * width**2, operations + 4 * len(STRENGTHS) * width**3


def check(request: ChoiceRequest, reply: ChoiceReply, most_points: int) -> None:
    """A known kind, and a possible number of points."""
    if reply.kind not in KINDS or not 0 < reply.strength <= 1e3:
        raise MessageError("sent an unknown kind of head")
    check_count(reply.windows, most_points)


def chosen_heads(
    cohort: Cohort,
    plan: Plan,
    network: Network,
    clients: tuple[str, ...],
    fitted: FloatArray | None,
    head: str,
    earlier: Mapping[str, ChoiceReply] | None = None,
) -> dict[str, ChoiceReply]:
    """What each client chose; it keeps the head under this name.

    Parameters
    ----------
    earlier
        What clients chose before: they make the same kind of head again, for another network.
    """
    there = [name for name in sorted(clients) if name in cohort.clients]
    width = network.spec.hidden // len(clients) if network.spec.hidden % len(clients) == 0 else 0
    side_by_side = width > 0 and network.spec.hidden == plan.spec.hidden * len(clients)
    requests = {}
    for place, name in enumerate(sorted(clients)):
        if name not in there:
            continue
        neurons = (place * width, (place + 1) * width) if side_by_side else (0, 0)
        request = ChoiceRequest(
            plan.recipe,
            network,
            plan.seed,
            plan.train.validation_fraction,
            np.empty(0) if fitted is None else fitted,
            neurons,
            alike=plan.federation.alike,
            head=head,
        )
        if earlier is not None:
            if name not in earlier:
                continue
            request = replace(request, fitted=np.empty(0), kind=earlier[name].kind, strength=earlier[name].strength)
        requests[name] = request
    return gather(cohort, requests, ChoiceReply, plan.federation.min_clients, plan.left_out)


exchanges.add(
    Exchange(
        ChoiceRequest,
        ChoiceReply,
        75,
        Words(
            "choosing a model",
            "which kind of head this client chose, its ridge strength, and from how many points; the head stays",
            "whether the shared model suits this client's machines",
        ),
        answer,
        cost,
        check,
    )
)
