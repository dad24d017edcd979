"""Residuals: how many errors of a model are how large, for prediction intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedprognos.errors import MessageError
from fedprognos.features import Recipe
from fedprognos.federation.exchanges import Cost, Exchange, OnEpoch, Words, exchanges, network_below_head
from fedprognos.federation.limits import run_cost
from fedprognos.fleet import Fleet
from fedprognos.networks import POINTS, HeadSums, Network, residuals
from fedprognos.privacy import RESERVE, reserved

if TYPE_CHECKING:
    from fedprognos.federation.client import Client

MAX_EDGES, MAX_RANGES, MAX_STRETCH = 400, 20, 100.0


@dataclass(frozen=True, eq=False)
class ResidualRequest:
    """Send how many residuals, scaled as for a calibration, fall between these edges, by range of the prediction.

    Residuals are taken at points spread evenly over the life of every unit.

    Parameters
    ----------
    ranges
        Predictions at which one range ends and the next begins.
    sums
        What the network's head was solved from: each unit is left out of it in turn. None where the network has not
        learnt from the units asked about.
    only_reserve
        Only the units of the client's reserve; all of them by default.
    stretch
        How much larger errors are taken to be, for units that the network's layers have not learnt from; those of RUL
        halfway to the cap.
    """

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    ranges: NDArray[np.float64]
    edges: NDArray[np.float64]
    sums: HeadSums | None = None
    only_reserve: bool = False
    stretch: float = 1.0

    @property
    def alike(self) -> bool:
        """Whether units count alike in the head's sums."""
        return self.sums is not None and self.sums.alike


@dataclass(frozen=True, eq=False)
class ResidualReply:
    """Counts (ranges, edges + 1): below the first edge, between edges, above the last; and each range's units.

    A range with fewer units than the client's floor is counted within a neighbour and is empty itself.

    Parameters
    ----------
    squared
        Sum of the squared residuals, labels capped.
    """

    counts: NDArray[np.int64]
    units: NDArray[np.int64]
    squared: float


def answer(client: Client, request: ResidualRequest, on_epoch: OnEpoch | None) -> ResidualReply:
    """Counts of residuals by range of the prediction."""
    windows = client.windows(request.recipe)
    parts = client.summed_parts(
        request.recipe, request.network, request.seed, request.validation_fraction, request.alike
    )
    ranges, edges, network = request.ranges, request.edges, request.network.check("request")
    for bounds, most in ((ranges, MAX_RANGES), (edges, MAX_EDGES)):
        if bounds.ndim != 1 or len(bounds) > most or (np.diff(bounds) <= 0).any():
            raise MessageError(f"edges and ranges must be at most {MAX_EDGES} and {MAX_RANGES} increasing numbers")
    if not 1 <= request.stretch <= MAX_STRETCH or (request.sums is not None and not 0 < request.sums.share <= 1):
        raise MessageError(f"stretch must be 1 to {MAX_STRETCH}, and the share of the head's sums 0 to 1")
    if request.only_reserve:
        windows = windows.select(reserved(windows, client.split_seed(request.seed, "reserve", RESERVE), client.floors))
    else:
        client.floors.check(windows)
    errors = residuals(network, windows, request.recipe, request.sums, parts, request.stretch)
    counts, units = client.floors.histogram(errors, ranges, edges)
    return ResidualReply(counts, units, errors.squared)


def cost(request: ResidualRequest, fleet: Fleet) -> Cost:
    """Two passes, and a head solved once for every unit that is left out."""
    memory, operations = run_cost(request.recipe, request.network.spec, fleet, passes=2.0, squares=True)
    return memory, operations + len(fleet) * float(request.network.spec.features) ** 3


def check(request: ResidualRequest, reply: ResidualReply, most_points: int) -> None:
    """A histogram of the shape asked for, of no more points than the units can have."""
    shape, counts, units = (len(request.ranges) + 1, len(request.edges) + 1), reply.counts, reply.units
    if (
        counts.shape != shape
        or units.shape != shape[:1]
        or counts.dtype != np.int64
        or units.dtype != np.int64
        or min(counts.min(), units.min(), reply.squared) < 0
        or units.max() > most_points
        or counts.sum() > POINTS * min(int(units.sum()), most_points)
        or (counts.sum(axis=1) < units).any()
    ):
        raise MessageError("sent an invalid residual histogram")


def template(request: ResidualRequest) -> ResidualReply:
    """An empty histogram."""
    counts = np.zeros((len(request.ranges) + 1, len(request.edges) + 1), dtype=np.int64)
    return ResidualReply(counts, counts[:, 0], 0.0)


exchanges.add(
    Exchange(
        ResidualRequest,
        ResidualReply,
        80,
        Words(
            "residuals for intervals",
            "how many errors are how large, by range of the prediction",
            "how well the model does here",
        ),
        answer,
        cost,
        check,
        template=template,
        only_masked=True,
        about=network_below_head,
    )
)
