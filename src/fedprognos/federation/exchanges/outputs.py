"""Outputs: sums over what every layer of a network puts out, for absorbing neurons that others predict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges, network_below_head
from fedprognos.federation.limits import run_cost
from fedprognos.federation.plausible import check_count
from fedprognos.federation.totals import total
from fedprognos.fleet import Fleet
from fedprognos.matching import OutputSums
from fedprognos.networks import Network
from fedprognos.networks.cells import cells

if TYPE_CHECKING:
    from fedprognos.federation.client import Client
    from fedprognos.federation.plan import Plan


@dataclass(frozen=True, eq=False)
class OutputsRequest:
    """Send sums over the outputs of every layer below the head, on the part that training learnt from."""

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    without_reserve: bool = False
    factors: bool = False


@dataclass(frozen=True, eq=False)
class OutputsReply:
    """Sums for each layer, from the input on."""

    layers: tuple[OutputSums, ...]


def answer(client: Client, request: OutputsRequest, on_epoch: OnEpoch | None) -> OutputsReply:
    """Sums in which no time step stands out."""
    network, fraction = request.network.check("request"), request.validation_fraction
    return OutputsReply(client.summed_outputs(request.recipe, network, request.seed, fraction, request.without_reserve))


def cost(request: OutputsRequest, fleet: Fleet) -> Cost:
    """Three passes: the sums, and twice the check that no step stands out."""
    return run_cost(request.recipe, request.network.spec, fleet, passes=3.0, squares=True)


def check(request: OutputsRequest, reply: OutputsReply, most_points: int) -> None:
    """Sums of the right layers that outputs can have."""
    network = request.network
    layers, widths = network.anatomy.layers[:-1], _widths(network)
    if [len(sums.s) for sums in reply.layers] != widths:
        raise MessageError(
            f"sent sums of layers of {[len(sums.s) for sums in reply.layers]} neurons instead of {widths}"
        )
    for layer, sums in zip(layers, reply.layers, strict=True):
        check_count(sums.n, most_points * max(request.recipe.window, 2))  # whole lives have rows that are no points
        if not 0 <= sums.starts <= sums.n:
            raise MessageError("sent more beginnings than time steps")
        sums.check(bounded=layer.is_recurrent and cells[network.spec.cell].bounded)


def template(request: OutputsRequest) -> OutputsReply:
    """Zeros for every layer."""
    widths = _widths(request.network)
    return OutputsReply(tuple(OutputSums(0, 0, np.zeros(w), np.zeros((w, w))) for w in widths))


def _widths(network: Network) -> list[int]:
    return [network.widths[str(layer.group)] for layer in network.anatomy.layers[:-1]]


def summed_outputs(cohort: Cohort, plan: Plan, clients: Iterable[str], network: Network) -> tuple[OutputSums, ...]:
    """Sums of the outputs of every layer over these clients."""
    fraction = plan.train.validation_fraction
    request = OutputsRequest(plan.recipe, network, plan.seed, fraction, plan.without_reserve, cohort.sums is None)
    requests = dict.fromkeys(clients, request)
    return total(cohort, requests, OutputsReply, plan.federation.min_clients, plan.left_out).layers


exchanges.add(
    Exchange(
        OutputsRequest,
        OutputsReply,
        50,
        Words(
            "sums of outputs",
            "sums of the neurons' outputs and of their products",
            "how outputs vary together; no row",
        ),
        answer,
        cost,
        check,
        template=template,
        only_masked=True,
        about=network_below_head,
    )
)
