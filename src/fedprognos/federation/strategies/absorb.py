"""Absorb: neurons are matched by what they put out, from sums; what others already extract is folded into them.

Bodies go up and are put side by side; clients send sums of that network's outputs over their rows; neurons that the
others predict are absorbed, one by one, the cheapest first (`fedprognos.matching.absorb`); the head is then solved on
the small network's own statistics. One exchange, no common start, any widths in, any width out. Further rounds train on
from the absorbed network, in which everybody has the same neurons, so that plain averages do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, PositiveFloat, PositiveInt

from fedprognos import matching
from fedprognos.arrays import FloatArray
from fedprognos.federation.absorption import (
    AbsorptionRecord,
    label_of,
    layer_arrays,
    small_network,
    with_trained_head,
)
from fedprognos.federation.average import average
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.first_models import drop_collapsed, first_models
from fedprognos.federation.heads import with_heads
from fedprognos.federation.plan import ClientModels, Plan, Round, masked_mean, summed, train
from fedprognos.federation.screening import drop_harmful
from fedprognos.federation.secure.messages import LEAST_MEMBERS
from fedprognos.federation.strategies import Budget, Strategy, strategies
from fedprognos.matching import Absorption, OutputSums
from fedprognos.networks import Network
from fedprognos.networks.head import HeadStatistics, exact_head, mean_squared_error, solve_head
from fedprognos.options import Options

MOST_NEURONS = 512
"""Neurons whose sums are sent at once; more are absorbed in groups first."""
SHARES = (1.0, 0.75, 0.5, 1 / 3)
"""Widths tried where a tolerance decides, as shares of the largest."""
FEDERATED: tuple[str, ...] = ()
"""Whose body the model of the round before is: no client's own."""

Alphas = Annotated[
    tuple[Annotated[float, Field(ge=0.0)], ...],
    Field(min_length=1),
    BeforeValidator(lambda given: [given] if isinstance(given, int | float) else given),
    PlainSerializer(lambda alphas: alphas[0] if len(alphas) == 1 else list(alphas)),
]
"""One number, or several."""
Bodies = Mapping[tuple[str, ...], Network]
"""Networks by the clients they came from."""


class AbsorbOptions(Options):
    """Neurons matched by their outputs; what others extract is folded into them."""

    rounds: PositiveInt = 1
    """Further rounds train on from the absorbed model."""
    again: Literal["average", "absorb"] = "average"
    """What a further round makes of the networks: their average, because all of them began with the same neurons; or
    old and new bodies absorbed again."""
    epochs: PositiveInt | None = None
    """Local epochs a round; train.epochs by default."""
    further_steps: PositiveInt | None = None
    """Gradient steps of a further round; as many as in the first by default."""
    further_rate: PositiveFloat = 0.5
    """Learning rate of a further round, as a share of that of the first."""
    width: Annotated[float, Field(ge=0.1)] = 1.5
    """Most neurons of the federated layer, in multiples of the widest client's."""
    tolerance: Annotated[float, Field(ge=0.0)] | None = None
    """Take the narrowest of several widths up to `width` whose validation error exceeds that of keeping every neuron
    by no more than this share; `width` where none does."""
    alpha: Alphas = (0.3, 3.0, 30.0)
    """How much what the other neurons' gates would miss counts, against what the head would. Of several, the one whose
    small network fits the training rows best is taken; groups of clients take the first."""
    group_width: PositiveFloat = 2.0
    """With many clients groups are absorbed first, each to so many times the widest client's neurons, or to more where
    the sums have room for them."""


def absorb(cohort: Cohort, plan: Plan, options: AbsorbOptions) -> Iterator[Round]:
    """One exchange, or rounds that go on from it."""
    clients = first_models(cohort, plan, plan.participants(cohort, 1), epochs=options.epochs)
    widest = max(network.spec.hidden for network in clients.networks.values())
    record = absorbed(cohort, plan, options, {(name,): body for name, body in clients.networks.items()}, widest)
    network, spent = record.after, plan.epochs_of(options.epochs, clients.history)
    yield Round(1, {cohort.clients: network}, spent, clients.history, absorbed=record)
    for r in range(2, options.rounds + 1):
        fit, _ = summed(plan.evaluate(cohort, cohort.clients, network, statistics=True))
        start = with_trained_head(network, fit, plan.federation.ridge)
        starts = dict.fromkeys(plan.participants(cohort, r), start)
        later, epochs_again = further(plan, options), None if options.further_steps else options.epochs
        if options.again == "average" and cohort.sums is not None:
            network = masked_mean(cohort, later, starts, epochs=epochs_again, round_=r)
            spent += later.epochs_of(epochs_again, {})
            yield Round(r, {cohort.clients: network}, spent)
            continue
        trained = train(cohort, later, starts, epochs=epochs_again, round_=r)
        spent += later.epochs_of(epochs_again, trained.history)
        clients = drop_harmful(cohort, plan, drop_collapsed(plan, trained))
        if options.again == "average":
            network = averaged(plan, clients)
            yield Round(r, {cohort.clients: network}, spent, clients.history)
        else:
            bodies: Bodies = {FEDERATED: start, **{(name,): body for name, body in clients.networks.items()}}
            record = absorbed(cohort, plan, options, bodies, widest)
            network = record.after
            yield Round(r, {cohort.clients: network}, spent, clients.history, absorbed=record)


def further(plan: Plan, options: AbsorbOptions) -> Plan:
    """How a further round trains."""
    changed: dict[str, float] = {"learning_rate": options.further_rate * plan.train.learning_rate}
    if options.further_steps is not None:
        changed["steps"] = options.further_steps
    return replace(plan, train=plan.train.model_copy(update=changed))


def averaged(plan: Plan, clients: ClientModels) -> Network:
    """Networks that began with the same neurons: neuron by neuron, weighted by data size."""
    spec = next(iter(clients.networks.values())).spec
    tensors = {name: network.weights for name, network in clients.networks.items()}
    return Network(spec, average(tensors, spec.anatomy, how="weighted", sizes=plan.counted(clients.sizes)))


def absorbed(cohort: Cohort, plan: Plan, options: AbsorbOptions, bodies: Bodies, widest: int) -> AbsorptionRecord:
    """The bodies as one network of the width asked for; in groups first where they are many."""
    bodies = in_groups(cohort, plan, options, bodies, widest)
    whole = SideBySide.of(cohort, plan, options, bodies, cohort.clients)
    most = min(max(int(options.width * widest), 1), whole.network.spec.hidden)
    whole = whole.best(cohort, most)
    measured: dict[int, float] = {}
    if options.tolerance is not None:
        for width in {max(int(share * most), 1) for share in SHARES}:
            judged = with_heads(cohort, plan, cohort.clients, whole.at(width)).get("exact")
            if judged is not None and judged.validation_rmse is not None:
                measured[width] = judged.validation_rmse
        limit = (1 + options.tolerance) * (whole.validation_rmse or 0.0)
        most = min((width for width, error in measured.items() if error <= limit), default=most)
    return whole.record(most, measured)


def in_groups(cohort: Cohort, plan: Plan, options: AbsorbOptions, bodies: Bodies, widest: int) -> Bodies:
    """Groups of bodies absorbed by themselves, then groups of groups, until the rest can be told at once.

    A group is judged on the rows of its own members. So no message, and nothing that a client does, grows with the
    number of clients, but for the number of levels: its logarithm. A body so wide that no other fits beside it is
    absorbed by itself first.
    """
    least = max(min(int(options.group_width * widest), MOST_NEURONS // 2), 1)
    while sum(network.spec.hidden for network in bodies.values()) > MOST_NEURONS and len(bodies) > 2:
        named = {label_of(members): members for members in bodies}
        parts = matching.groups({n: bodies[members].spec.hidden for n, members in named.items()}, MOST_NEURONS)
        target = max(least, MOST_NEURONS // len(parts))  # as many as the next sums have room for
        found: dict[tuple[str, ...], Network] = {}
        for part in parts:
            members = tuple(sorted(client for n in part for client in named[n]))
            some = {named[n]: bodies[named[n]] for n in part}
            if sum(network.spec.hidden for network in some.values()) <= target:  # there is nothing to absorb
                found[members] = Network.concat([some[own] for own in sorted(some)])
                continue
            there = [client for client in members if client in cohort.clients]
            if cohort.sums is not None and len(there) < LEAST_MEMBERS:  # a sum of one or two is theirs alone
                there = []
            found[members] = SideBySide.of(cohort, plan, options, some, there or cohort.clients).at(target)
        bodies = found
    return bodies


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Networks side by side, the sums of what they put out, and the order in which their neurons go.

    Parameters
    ----------
    fit, held
        What the head sees: on what was trained on, and on what was kept out.
    alphas
        What is tried; the first decides the order in which neurons go until :meth:`best` has found another.
    """

    plan: Plan
    bodies: Bodies
    network: Network
    fit: HeadStatistics
    held: HeadStatistics | None
    sums: tuple[OutputSums, ...]
    alphas: tuple[float, ...]

    @classmethod
    def of(
        cls, cohort: Cohort, plan: Plan, options: AbsorbOptions, bodies: Bodies, clients: tuple[str, ...] | list[str]
    ) -> SideBySide:
        """Ask these clients for the sums."""
        network = Network.concat([bodies[members] for members in sorted(bodies)])
        fit, held = summed(plan.evaluate(cohort, clients, network, statistics=True))
        return cls(plan, bodies, network, fit, held, plan.outputs(cohort, clients, network).layers, options.alpha)

    @cached_property
    def smallest(self) -> Absorption:
        """Neurons eliminated down to one."""
        arrays, ridge = layer_arrays(self.network), self.plan.federation.ridge
        return matching.absorb(arrays, self.sums, width=1, alpha=self.alphas[0], ridge=ridge, head=self.fit.sums)

    def best(self, cohort: Cohort, width: int) -> SideBySide:
        """With the alpha first whose small network fits best what was trained on.

        The sums cannot tell it, because they ignore how what is missed feeds back through time. What was kept out is
        not asked: it has to judge this method beside others.
        """
        if len(self.alphas) == 1 or width == self.network.spec.hidden:
            return self
        tried = [replace(self, alphas=(alpha,)) for alpha in self.alphas]
        errors = []
        for one in tried:
            fit, _ = summed(self.plan.evaluate(cohort, cohort.clients, one.at(width), statistics=True))
            errors.append(mean_squared_error(fit, solve_head(fit, self.plan.federation.ridge)))
        return tried[int(np.argmin(errors))]

    def result_at(self, width: int) -> Absorption:
        """The elimination stopped at this width."""
        return self.smallest.at(min(width, self.network.spec.hidden))

    def at(self, width: int) -> Network:
        """The network with so many neurons in each layer."""
        return small_network(self.network, self.result_at(width))

    @cached_property
    def validation_rmse(self) -> float | None:
        """Error with every neuron kept, on what training kept out."""
        error = exact_head(self.fit, self.held, self.plan.federation.ridge).validation_mse
        return None if error is None else self._rmse(error)

    def record(self, width: int, measured: Mapping[int, float]) -> AbsorptionRecord:
        """The small network and all that the sums tell."""
        names = sorted(self.bodies)
        ends = np.cumsum([self.bodies[members].spec.hidden for members in names])
        neurons = {
            label_of(members): np.arange(end - self.bodies[members].spec.hidden, end)
            for members, end in zip(names, ends, strict=True)
        }
        sums, ridge = self.fit.sums, self.plan.federation.ridge
        whole, without = matching.contributions(sums, neurons, ridge=ridge)
        result = self.result_at(width)
        everything = {} if self.validation_rmse is None else {self.network.spec.hidden: self.validation_rmse}
        return AbsorptionRecord(
            before=self.network,
            after=small_network(self.network, result),
            result=result,
            sums=sums,
            neurons=neurons,
            whole=self._rmse(whole),
            without={name: self._rmse(loss) for name, loss in without.items()},
            repeats=matching.repeats(sums, neurons),
            predicted={width: self._rmse(loss) for width, loss in self.smallest.losses[-1].items()},
            measured={**everything, **measured},
            alpha=self.alphas[0],
        )

    def _rmse(self, loss: float | FloatArray) -> float:
        """A standardised loss in the label's own measure."""
        return float(np.sqrt(loss)) * self.plan.recipe.label_std


def _epochs(options: AbsorbOptions, budget: Budget) -> int:
    return options.rounds * (options.epochs or budget.epochs)


strategies.add(Strategy("absorb", "Absorb", 60, absorb, AbsorbOptions, _epochs, by_default=True))
