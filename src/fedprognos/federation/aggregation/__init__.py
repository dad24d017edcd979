"""Averages of the clients' weights, one file each, by name.

Where a client has no neuron its row is not there, and its column is zero. An average therefore divides by the holders
of the OUTPUT neuron (the row), with an absent input counting as zero; the head, whose outputs are no neurons, by all
clients. With everything matched this is Eq. 6 and 7; with nothing matched the output is the mean of the clients'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from fedprognos.federation.aggregation._stack import Floats, Stack
from fedprognos.shelf import Shelf

Stacks = Mapping[str, Stack]
"""All tensors of all clients, by the tensor's name."""


@dataclass(frozen=True)
class Aggregator:
    """A way to average the tensors of several clients.

    Parameters
    ----------
    combine
        From one tensor of all clients, each with its place, to the federated one.
    by_size
        Whether clients count by their data size; equally otherwise.
    prepare
        Looks at all tensors together first, and gives them with other weights or values.
    robust
        Whether it bounds what one client in five can do, so that it is used for heads, too.
    """

    name: str
    label: str
    order: int
    combine: Callable[[Stack], Floats]
    by_size: bool = False
    prepare: Callable[[Stacks], Stacks] = lambda stacks: stacks
    robust: bool = False


aggregators: Shelf[Aggregator] = Shelf("average", __name__, "fedprognos.aggregators")
AggregatorName = Annotated[str, AfterValidator(aggregators.known)]
"""The name of an aggregator on the shelf, in options."""

__all__ = ["Aggregator", "AggregatorName", "Stack", "Stacks", "aggregators"]
