"""What absorption takes from messages and networks, and what it leaves: sums, small networks, a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.matching import Absorption, LabelledSums, LinearWeights, RecurrentWeights
from fedprognos.networks import Network
from fedprognos.networks.head import HeadStatistics, solve_head


@dataclass(frozen=True, eq=False)
class AbsorptionRecord:
    """How a network was absorbed, for the report.

    Parameters
    ----------
    before, after
        The clients' networks side by side, and the small network.
    result
        Who was kept in `before`, and who was absorbed by whom.
    sums
        What the head of `before` saw, over all clients.
    neurons
        Which neurons of the last layer of `before` are whose.
    whole, without
        Error of the head with all neurons, and without each client's; in the label's own measure.
    repeats : (clients, clients)
        How well (R2) the features of one client predict those of another.
    predicted
        Error by width as the sums predict it.
    measured
        Error by width on what training kept out, of the widths that were tried.
    alpha
        How much what gates would miss counted.
    """

    before: Network
    after: Network
    result: Absorption
    sums: LabelledSums
    neurons: Mapping[str, IntArray]
    whole: float
    without: Mapping[str, float]
    repeats: FloatArray
    predicted: Mapping[int, float]
    measured: Mapping[int, float]
    alpha: float

    @property
    def width(self) -> int:
        """Neurons kept in the last layer."""
        return len(self.result.kept[-1])

    @property
    def kept(self) -> dict[str, int]:
        """Neurons kept of each client."""
        return {name: int(np.isin(own, self.result.kept[-1]).sum()) for name, own in self.neurons.items()}


def with_trained_head(network: Network, statistics: HeadStatistics, ridge: float) -> Network:
    """The network with the head that fits its own outputs best: what training goes on from.

    What exact heads see beside the network takes no part in training, so it takes none in this head.
    """
    own = np.arange(network.spec.hidden)
    head = np.zeros(network.spec.features + 1)
    head[np.append(own, -1)] = solve_head(statistics.only(own), ridge)
    return network.with_head(head)


def layer_arrays(network: Network) -> list[LinearWeights | RecurrentWeights]:
    """The layers below the head as the matcher wants them."""
    return [
        layer.recurrent(network.weights) if layer.is_recurrent else LinearWeights(*network.layer(layer).values())
        for layer in network.anatomy.layers[:-1]
    ]


def small_network(network: Network, result: Absorption) -> Network:
    """The network of the arrays that absorption left; the head reads what was absorbed from those that stayed."""
    weights = dict(network.weights)
    for layer, arrays in zip(network.anatomy.layers[:-1], result.layers, strict=True):
        values = vars(arrays).values() if isinstance(arrays, LinearWeights) else (
            arrays.weight_ih, arrays.weight_hh, arrays.bias_ih, arrays.bias_hh
        )  # fmt: skip
        weights |= {n: np.asarray(a, np.float32) for n, a in zip(layer.tensors, values, strict=True)}
    weights["head.weight"] = (network.weights["head.weight"].astype(np.float64) @ result.mixtures[-1]).astype(
        np.float32
    )
    groups = [str(layer.group) for layer in network.anatomy.layers[:-1]]
    return Network(network.spec.with_widths(dict(zip(groups, result.widths, strict=True))), weights).check("absorbed")


def label_of(members: Sequence[str]) -> str:
    """A body by the clients it came from; that of the round before came from all.

    >>> label_of(["a"]), label_of(["a", "b", "c"]), label_of([])
    ('a', 'a and 2 more', '(federated)')
    """
    if not members:
        return "(federated)"
    return members[0] if len(members) == 1 else f"{members[0]} and {len(members) - 1} more"
