"""Averages of the clients' weights, one file each, by name.

Where a client has no neuron its row is not there, and its column is zero. An average therefore divides by the holders
of the OUTPUT neuron (the row), with an absent input counting as zero; the head, whose outputs are no neurons, by all
clients. With everything matched this is Eq. 6 and 7; with nothing matched the output is the mean of the clients'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedprognos.federation.aggregation._stack import Floats, Stack
from fedprognos.shelf import Shelf


@dataclass(frozen=True)
class Aggregator:
    """A way to average one tensor of several clients.

    Parameters
    ----------
    combine
        From the clients' tensors, each with its place, to the federated one.
    by_size
        Whether clients count by their data size; equally otherwise.
    """

    name: str
    label: str
    order: int
    combine: Callable[[Stack], Floats]
    by_size: bool = False


aggregators: Shelf[Aggregator] = Shelf("average", __name__, "fedprognos.aggregators")

__all__ = ["Aggregator", "Stack", "aggregators"]
