"""What the absorb strategy needs around the mathematics: sums from clients, groups, small networks, a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos import matching
from fedprognos.arrays import FloatArray, IntArray
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.exchanges.outputs import summed_outputs
from fedprognos.federation.plan import Plan
from fedprognos.matching import Absorption, LabelledSums, LinearWeights, OutputSums, RecurrentWeights
from fedprognos.networks import HeadStatistics, Network, solve_head
from fedprognos.privacy import LEAST_MEMBERS

MOST_NEURONS = 640
"""Neurons whose sums are sent at once (0.8 MB, as they grow with the square); more are absorbed in groups first."""
GROUP_NEURONS, GROUP_BODIES = 256, 4
"""A group has so many neurons, or so many of the widest body, where there are many levels of groups."""
LARGE_GROUP = 512
"""Neurons of a group where one level of groups is enough."""
MANY_CLIENTS = 40
"""With more, one request does for the head's statistics and the sums."""
Bodies = Mapping[tuple[str, ...], Network]
"""Networks by the clients they came from."""


@dataclass(frozen=True, eq=False)
class AbsorptionRecord:
    """How a network was absorbed, for the report.

    Parameters
    ----------
    before, after
        The clients' networks side by side, and the small network.
    result
        Which neurons of `before` were kept, and which were absorbed by which.
    sums
        What the head of `before` saw, over all clients.
    neurons
        Each client's neurons in the last layer of `before`.
    whole, without
        Error of the head with all neurons, and without each client's, in the label's own measure.
    repeats : (clients, clients)
        How well (R2) the features of one client predict those of another.
    predicted
        Error by width as the sums predict it.
    measured
        Error by width on rows kept out of training, where any are: with all neurons, and at the widths tried.
    alpha
        How much the gates of other neurons counted.
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

    @classmethod
    def from_result(
        cls,
        plan: Plan,
        wide: Network,
        neurons: Mapping[str, IntArray],
        fit: HeadStatistics,
        result: Absorption,
        alpha: float,
        measured: Mapping[int, float],
    ) -> AbsorptionRecord:
        """All that the sums say besides the small network: contributions, repeats, errors by width.

        `measured` are mean squared errors of standardised labels, NaN where no rows were kept out.
        """
        ridge = plan.federation.ridge

        def rmse(standardised_loss: float) -> float:
            return float(np.sqrt(standardised_loss)) * plan.recipe.label_std

        whole, without = matching.contributions(fit.sums, neurons, ridge=ridge)
        return cls(
            before=wide,
            after=small_network(wide, result),
            result=result,
            sums=fit.sums,
            neurons=neurons,
            whole=rmse(whole),
            without={name: rmse(loss) for name, loss in without.items()},
            repeats=matching.repeats(fit.sums, neurons),
            predicted={width: rmse(loss) for width, loss in result.losses[-1].items()},
            measured={width: rmse(error) for width, error in measured.items() if np.isfinite(error)},
            alpha=alpha,
        )

    @property
    def width(self) -> int:
        """Neurons kept in the last layer."""
        return len(self.result.kept[-1])

    @property
    def kept(self) -> dict[str, int]:
        """Neurons kept of each client."""
        return {name: int(np.isin(indices, self.result.kept[-1]).sum()) for name, indices in self.neurons.items()}


def concat_bodies(bodies: Bodies) -> tuple[Network, dict[str, IntArray]]:
    """The bodies side by side, and which neurons of the last layer came from which."""
    members = sorted(bodies)
    ends = np.cumsum([bodies[m].spec.hidden for m in members])
    neurons = {label_of(m): np.arange(end - bodies[m].spec.hidden, end) for m, end in zip(members, ends, strict=True)}
    return Network.concat([bodies[m] for m in members]), neurons


def ask_for_sums(
    cohort: Cohort, plan: Plan, network: Network, clients: Iterable[str]
) -> tuple[HeadStatistics, HeadStatistics | None, tuple[OutputSums, ...]]:
    """Head statistics of these clients' rows (trained on, kept out), and sums of every layer's outputs.

    Over whole lives the head sees every step, so its statistics can do for one layer's sums. They do where many
    clients make bytes scarce; with few clients they were somewhat worse.
    """
    clients = tuple(clients)
    evaluation = evaluate(cohort, plan, clients, network, factors=True)
    fit, held = evaluation.head_statistics
    many = len(cohort.clients) > MANY_CLIENTS
    if many and plan.recipe.life and network.spec.layers == 2 and not plan.federation.privacy:
        return fit, held, (fit.sums.take(np.arange(network.spec.hidden)),)
    return fit, held, summed_outputs(cohort, plan, evaluation.harmless(clients), network)


def in_groups(cohort: Cohort, plan: Plan, bodies: Bodies, widest: int, alpha: float) -> Bodies:
    """Absorb groups of bodies by themselves, then groups of groups, until the sums of all fit into one message.

    A group is judged on the rows of its own members, and absorbed to one client's width. Where a single level is
    enough, groups are larger and keep up to two clients' width. So no message, and nothing that a client does, grows
    with the number of clients, except for the number of levels: its logarithm. A body so wide that no other fits
    beside it is absorbed by itself first.
    """
    neurons = sum(network.spec.hidden for network in bodies.values())
    one_level = 2 * widest * -(-neurons // LARGE_GROUP) <= MOST_NEURONS
    most = min(LARGE_GROUP if one_level else max(GROUP_NEURONS, GROUP_BODIES * widest), MOST_NEURONS)
    least, first = min(widest, MOST_NEURONS // 2), True
    while sum(network.spec.hidden for network in bodies.values()) > MOST_NEURONS and len(bodies) > 2:
        by_label = {label_of(members): members for members in bodies}
        parts = matching.groups({n: bodies[members].spec.hidden for n, members in by_label.items()}, most)
        target = max(least, min(MOST_NEURONS // len(parts), 2 * widest)) if first else least
        first = False
        absorbed: dict[tuple[str, ...], Network] = {}
        for part in parts:
            members = tuple(sorted(client for label in part for client in by_label[label]))
            wide, _ = concat_bodies({by_label[label]: bodies[by_label[label]] for label in part})
            if wide.spec.hidden > target:
                wide = absorb_group(cohort, plan, wide, members, target, alpha)
            absorbed[members] = wide
        bodies = absorbed
    return bodies


def absorb_group(
    cohort: Cohort, plan: Plan, wide: Network, members: Sequence[str], width: int, alpha: float
) -> Network:
    """A group's network absorbed to a width, judged on the rows of those members that are there."""
    present = [client for client in members if client in cohort.clients]
    if cohort.sums is not None and len(present) < LEAST_MEMBERS:
        present = []  # a masked sum of one or two clients would reveal theirs, so all clients answer
    fit, _, sums = ask_for_sums(cohort, plan, wide, present or cohort.clients)
    ridge = plan.federation.ridge
    result = matching.absorb(layer_arrays(wide), sums, width=width, alpha=alpha, ridge=ridge, head=fit.sums)
    return small_network(wide, result)


def with_trained_head(network: Network, statistics: HeadStatistics, ridge: float) -> Network:
    """The network with the head that fits its own outputs best: the start of further training.

    What exact heads see beside the network takes no part in training, so it takes none in this head.
    """
    neurons = np.arange(network.spec.hidden)
    head = np.zeros(network.spec.features + 1)
    head[np.append(neurons, -1)] = solve_head(statistics.only(neurons), ridge)
    return network.with_head(head)


def layer_arrays(network: Network) -> list[LinearWeights | RecurrentWeights]:
    """The layers below the head, as `fedprognos.matching.absorb` takes them."""
    return [
        layer.recurrent(network.weights) if layer.is_recurrent else LinearWeights(*network.layer(layer).values())
        for layer in network.anatomy.layers[:-1]
    ]


def small_network(network: Network, result: Absorption) -> Network:
    """The network of the arrays that absorption left; the head reads absorbed neurons as mixtures of the kept ones."""
    weights = dict(network.weights)
    for layer, arrays in zip(network.anatomy.layers[:-1], result.layers, strict=True):
        values = vars(arrays).values()  # in the order of the layer's tensors
        weights |= {n: np.asarray(a, np.float32) for n, a in zip(layer.tensors, values, strict=True)}
    head = network.weights["head.weight"].astype(np.float64) @ result.mixtures[-1]
    weights["head.weight"] = head.astype(np.float32)
    groups = [str(layer.group) for layer in network.anatomy.layers[:-1]]
    return Network(network.spec.with_widths(dict(zip(groups, result.widths, strict=True))), weights).check("absorbed")


def label_of(members: Sequence[str]) -> str:
    """A body named by the clients it came from.

    >>> label_of(["a"]), label_of(["a", "b", "c"])
    ('a', 'a and 2 more')
    """
    return members[0] if len(members) == 1 else f"{members[0]} and {len(members) - 1} more"
