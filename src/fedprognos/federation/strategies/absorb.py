"""Absorb: neurons are matched by what they put out, from sums; what others already extract is folded into them.

Bodies go up and are put side by side; clients send sums of that network's outputs over their rows; neurons that the
others predict are absorbed, one by one, the cheapest first (`fedprognos.matching.absorb`); the head is then solved on
the small network's own statistics. One exchange, no common start, any widths in, any width out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from fedprognos import matching
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.heads import with_heads
from fedprognos.federation.plan import Plan, Round, drop_collapsed, first_models, summed, train
from fedprognos.federation.screening import drop_harmful
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.matching import Absorption, LinearWeights, OutputSums, RecurrentWeights
from fedprognos.networks import Network
from fedprognos.networks.head import HeadStatistics
from fedprognos.options import Options

MOST_NEURONS = 512
"""Neurons whose sums are sent at once; more are absorbed in groups first."""


class AbsorbOptions(Options):
    """Neurons matched by their outputs; what others extract is folded into them."""

    rounds: PositiveInt = 1
    """Further rounds train on from the absorbed model and absorb old and new bodies again."""
    epochs: PositiveInt | None = None
    """Local epochs a round; train.epochs by default."""
    width: Annotated[float, Field(ge=0.1)] = 1.5
    """Most neurons of the federated layer, in multiples of the widest client's."""
    tolerance: Annotated[float, Field(ge=0.0)] | None = None
    """Take the narrowest of several widths up to `width` whose validation error exceeds that of `width` by no more
    than this share."""
    alpha: Annotated[float, Field(ge=0.0)] = 0.3
    """How much what the other neurons' gates would miss counts, against what the head would."""
    group_width: PositiveFloat = 2.0
    """With many clients groups are absorbed first, each to so many times the widest client's neurons."""


@dataclass(frozen=True, eq=False)
class AbsorptionRecord:
    """How a network was absorbed, for the report.

    Parameters
    ----------
    neurons
        Neurons of each client in the network that was absorbed, by client.
    contributions
        The head's loss with all neurons, and without each client's.
    repeats : (clients, clients)
        How well (R2) one client's features predict another's.
    """

    result: Absorption
    neurons: Mapping[str, np.ndarray[Any, np.dtype[np.intp]]]
    contributions: tuple[float, Mapping[str, float]]
    repeats: np.ndarray[Any, np.dtype[np.float64]]
    errors: Mapping[int, float] = field(default_factory=dict)


def absorb(cohort: Cohort, plan: Plan, options: AbsorbOptions) -> Iterator[Round]:
    """One exchange, or rounds of it."""
    epochs = options.epochs or plan.train.epochs
    clients = first_models(cohort, plan, plan.participants(cohort, 1), epochs=options.epochs)
    widest = max(network.spec.hidden for network in clients.networks.values())
    bodies = dict(clients.networks)
    for r in range(1, options.rounds + 1):
        network, record = absorbed(cohort, plan, options, bodies, widest)
        yield Round(r, {cohort.clients: network}, r * epochs, clients.history, absorbed=record)
        if r < options.rounds:
            starts = dict.fromkeys(plan.participants(cohort, r + 1), network)
            fitted = train(cohort, plan, starts, epochs=options.epochs, round_=r + 1)
            clients = drop_harmful(cohort, plan, drop_collapsed(plan, fitted))
            bodies = {"federated": network, **clients.networks}


def absorbed(
    cohort: Cohort, plan: Plan, options: AbsorbOptions, bodies: Mapping[str, Network], widest: int
) -> tuple[Network, AbsorptionRecord]:
    """The bodies as one network of the width asked for; in groups first where they are many."""
    while sum(network.spec.hidden for network in bodies.values()) > MOST_NEURONS and len(bodies) > 2:
        sizes = {name: network.spec.hidden for name, network in bodies.items()}
        target = int(options.group_width * widest)
        parts = matching.groups(sizes, MOST_NEURONS)
        if len(parts) >= len(bodies):
            break
        bodies = {
            "+".join(members): _side_by_side(cohort, plan, options, [bodies[m] for m in members]).at(target)
            for members in parts
        }
    names = sorted(bodies)
    whole = _side_by_side(cohort, plan, options, [bodies[name] for name in names])
    ends = np.cumsum([bodies[name].spec.hidden for name in names])
    neurons = {name: np.arange(end - bodies[name].spec.hidden, end) for name, end in zip(names, ends, strict=True)}
    most = max(int(options.width * widest), 1)
    widths = [most] if options.tolerance is None else sorted({most, most * 3 // 4, most // 2, most // 3} - {0})
    found = {width: whole.at(width) for width in widths}
    errors: dict[int, float] = {}
    if len(widths) > 1:
        for width, network in found.items():
            judged = with_heads(cohort, plan, cohort.clients, network).get("exact")
            if judged is not None and judged.validation_rmse is not None:
                errors[width] = judged.validation_rmse
        good = [w for w in errors if errors[w] <= (1 + (options.tolerance or 0.0)) * errors[most]]
        most = min(good, default=most)
    record = AbsorptionRecord(
        whole.result_at(most),
        neurons,
        matching.contributions(whole.head, neurons, ridge=plan.federation.ridge),
        matching.repeats(whole.head, neurons),
        errors,
    )
    return found[most], record


@dataclass(frozen=True, eq=False)
class _Whole:
    """Networks side by side with the sums of their outputs, absorbed as far as anybody will ask."""

    network: Network
    head: OutputSums
    smallest: Absorption

    def result_at(self, width: int) -> Absorption:
        return self.smallest.at(min(width, self.network.spec.hidden))

    def at(self, width: int) -> Network:
        """The network with so many neurons in its last layer; layers below in proportion."""
        return small_network(self.network, self.result_at(width))


def _side_by_side(cohort: Cohort, plan: Plan, options: AbsorbOptions, bodies: Sequence[Network]) -> _Whole:
    """Ask for the sums of the bodies' outputs and eliminate neurons down to one."""
    network = Network.concat(bodies)
    fit, _ = summed(plan.evaluate(cohort, cohort.clients, network, statistics=True))
    sums = [OutputSums(float(o.n), float(o.starts), o.s, o.S) for o in plan.outputs(cohort, network).layers]
    head = head_sums(fit)
    result = matching.absorb(
        layer_arrays(network), sums, width=1, alpha=options.alpha, ridge=plan.federation.ridge, head=head
    )
    return _Whole(network, head, result)


def head_sums(statistics: HeadStatistics) -> OutputSums:
    """The head's statistics as sums: of the last layer's outputs, then of what the head sees beside them."""
    hh, hy = statistics.hh, statistics.hy
    return OutputSums(statistics.n, 0.0, hh[-1, :-1], hh[:-1, :-1], hy[:-1], float(hy[-1]), statistics.yy)


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


def _epochs(options: AbsorbOptions, budget: Budget) -> int:
    return options.rounds * (options.epochs or budget.epochs)


strategies.add(Strategy("absorb", "Absorb", 60, absorb, AbsorbOptions, _epochs, by_default=True))
