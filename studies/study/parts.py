"""The parts of the study: what is trained, what is made of it, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.federation.absorb_steps import (
    Bodies,
    ask_for_sums,
    concat_bodies,
    in_groups,
    layer_arrays,
    small_network,
)
from fedprognos.federation.averages import average
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.exchanges.fit import train
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import strategies
from fedprognos.federation.strategies.absorb import AbsorbOptions
from fedprognos.federation.strategies.fedma import FedMAOptions, algorithm_1
from fedprognos.matching import Absorption, OutputSums, absorb
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.head import HeadStatistics, exact_head, mean_squared_error
from studies.study.bench import Bench, mean_of

MULTIPLES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Widths, in multiples of a client's."""
MATCHED = (1.0, 1.5, 2.0)
"""Limits on the width of networks matched by their weights."""
MOST_BODIES = 30
"""With more clients, nobody puts all bodies side by side or tries each by itself."""
FRACTIONS = (0.1, 0.2, 0.4)
"""Shares of its units that a newcomer has."""
COURSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Absorb, one exchange": ("absorb", {"rounds": 1}),
    "FedAvg, 12 rounds of 3 epochs": ("fedavg", {"rounds": 12, "epochs": 3}),
    "FedProx, 12 rounds of 3 epochs": ("fedprox", {"rounds": 12, "epochs": 3}),
    "FedMA, 3 rounds of 12 epochs": ("fedma", {"rounds": 3, "epochs": 12, "width_limit": 1.5}),
}
"""Method and options. The one exchange trains 300 steps, about 36 epochs."""
DRAWN = 4
"""Rounds of a course that are evaluated, where it has more."""
Entry = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its head, or predictions that no single network makes, and what getting it took.

    Without predictions for the test engines where it was judged on others.
    """

    method: str
    predictions: FloatArray | None = None
    network: Network | None = None
    bytes: int | None = None
    more: Mapping[str, Any] | None = None

    def entry(self) -> Entry:
        """As it is written down."""
        facts: Entry = {"method": self.method, **(self.more or {})}
        if self.predictions is not None:
            facts["said"] = [round(float(v), 2) for v in self.predictions]
        if self.bytes is not None:
            facts["bytes"] = self.bytes
        if self.network is not None:
            facts |= {"width": self.network.spec.hidden, "parameters": self.network.spec.parameters}
        return facts


def one_exchange(bench: Bench) -> Iterator[Model]:
    """Parts 1 and 6: everything that can be made of the same bodies in one exchange, at every width."""
    bodies, plan = bench.bodies(), exact_only(bench.plan())
    widest, many = max(b.spec.hidden for b in bodies.values()), len(bodies) > MOST_BODIES
    alone = {name: bench.with_head(bench.cohort([name]), body) for name, body in bodies.items()}
    predictions = {name: bench.predictions(network) for name, network in alone.items()}
    for name in alone if not many else ():
        yield Model("alone", predictions[name], alone[name], 0, {"client": name})
    truth, moved = bench.recipe.capped(bench.tests.labels), 4 * sum(n.spec.parameters for n in alone.values())
    alone_error = float(np.mean([np.sqrt(np.mean((predicted - truth) ** 2)) for predicted in predictions.values()]))
    yield Model(
        "mean of predictions", mean_of(list(predictions.values())), None, moved, {"alone": round(alone_error, 3)}
    )
    cohort = trained(bench)
    if not many:
        yield best_body(bench, plan, bodies)
        yield finished(bench, cohort, "concat", Network.concat([bodies[name] for name in sorted(bodies)]))
    cohort = trained(bench)
    whole = side_by_side(cohort, plan, bodies)
    before = replace(cohort.traffic)
    everything, most = sum(body.spec.hidden for body in bodies.values()), whole.network.spec.hidden
    for multiple in MULTIPLES:
        width = int(multiple * widest)
        if width <= most and width < everything:  # at most all that the groups kept, and less than concat
            cohort.traffic = replace(before)
            yield finished(bench, cohort, "absorb", whole.at(width))
    if not many:
        yield from by_weights(bench, plan, bodies)


def by_weights(bench: Bench, plan: Plan, bodies: Mapping[str, Network]) -> Iterator[Model]:
    """Neurons matched and averaged by their weights, and weights averaged as they come."""
    sizes = {name: fleet.rows for name, fleet in bench.scenario.clients.items()}
    for limit in MATCHED:
        cohort = trained(bench)
        options = plan.federation.strategy_options("fedma", FedMAOptions).model_copy(update={"width_limit": limit})
        matched, _ = algorithm_1(bodies, plan.counted(sizes), options, seed=plan.seed)
        yield finished(bench, cohort, "BBP-MAP", matched)
    cohort = trained(bench)
    tensors = {name: body.weights for name, body in bodies.items()}
    averaged = average(tensors, plan.spec.anatomy, how="weighted", sizes=sizes)
    yield finished(bench, cohort, "coordinate average", Network(plan.spec, averaged))


def central(bench: Bench) -> Iterator[Model]:
    """All data in one place."""
    cohort, network = centrally_trained(bench)
    yield Model("central", *both(bench, cohort, network))


def centrally_trained(bench: Bench) -> tuple[MessageCohort, Network]:
    """The client that has everybody's data, and its network."""
    cohort, plan = bench.pooled(), exact_only(bench.plan())
    *_, last = strategies["central"].run(cohort, plan)
    (network,) = last.models.values()
    return cohort, network


def reservoir(bench: Bench) -> Iterator[Model]:
    """The body that nobody trains."""
    cohort, plan = bench.cohort(), exact_only(bench.plan())
    (only,) = strategies["reservoir"].run(cohort, plan)
    (network,) = only.models.values()
    yield finished(bench, cohort, "reservoir", network)


def rounds(bench: Bench) -> Iterator[Model]:
    """Part 3: about the same number of local epochs, in one round or in many."""
    for label, (method, options) in COURSES.items():
        cohort, plan = bench.cohort(), exact_only(bench.plan(**{method: options}))
        for round_ in strategies[method].run(cohort, plan):
            if options["rounds"] <= DRAWN or round_.number % (options["rounds"] // DRAWN) == 0:
                (network,) = round_.models.values()
                yield replace(finished(bench, cohort, label, network), more={"round": round_.number})


def different_widths(bench: Bench) -> Iterator[Model]:
    """Part 2: clients that bring networks of half, one and one and a half times the width."""
    plan, widths = exact_only(bench.plan()), (32, 64, 96)
    bodies: dict[str, Network] = {}
    for name, width in zip(sorted(bench.scenario.clients), widths, strict=True):
        bodies |= bench.bodies([name], widths=(width,))
    yield best_body(bench, plan, bodies)
    cohort = bench.cohort()
    yield finished(bench, cohort, "concat", Network.concat([bodies[name] for name in sorted(bodies)]))
    cohort = bench.cohort()
    whole = side_by_side(cohort, plan, bodies)
    for width in (32, 64, 96, 128):
        yield finished(bench, cohort, "absorb", whole.at(width))


def newcomers(bench: Bench) -> Iterator[Model]:
    """Parts 4 and 5: each client in turn never took part, or joins the others with its first units."""
    plan, everyone = exact_only(bench.plan()), sorted(bench.scenario.clients)
    cohort = bench.cohort()
    full = side_by_side(cohort, plan, bench.bodies()).at(int(1.5 * plan.spec.hidden))
    yield Model("everybody", bench.predictions(bench.with_head(cohort, full)), more={"newcomer": ""})
    for name in everyone:
        others = bench.among([n for n in everyone if n != name])
        plan, bodies = exact_only(others.plan()), others.bodies()
        width = int(1.5 * plan.spec.hidden)
        cohort = others.cohort()
        body = side_by_side(cohort, plan, bodies).at(width)
        newcomer_facts: dict[str, Any] = {"newcomer": name, "share": 0.0}
        yield Model("others", others.predictions(others.with_head(cohort, body)), more=newcomer_facts)
        for share in FRACTIONS:
            joined = others.joined_by(name, share)
            own_body = joined.bodies([name])
            newcomer_facts = {"newcomer": name, "share": share}
            yield Model(
                "alone",
                joined.predictions(joined.with_head(joined.cohort([name]), own_body[name])),
                more=newcomer_facts,
            )
            cohort = joined.cohort()
            yield Model("head only", joined.predictions(joined.with_head(cohort, body)), more=newcomer_facts)
            both_ = side_by_side(cohort, plan, {**bodies, **own_body}).at(width)
            yield Model("joined", joined.predictions(joined.with_head(cohort, both_)), more=newcomer_facts)


def recipe(bench: Bench) -> Iterator[Model]:
    """Part 7: what is made of one recipe's bodies, with and without a reservoir and the latest row in the head."""
    plan, bodies = exact_only(bench.plan()), bench.bodies()
    yield best_body(bench, plan, bodies)
    cohort = bench.cohort()
    large = Network.concat([bodies[name] for name in sorted(bodies)])
    yield finished(bench, cohort, "concat", large)
    small = side_by_side(cohort, plan, bodies).at(int(1.5 * plan.spec.hidden))
    yield finished(bench, cohort, "absorb", small)


BESIDE: Mapping[str, Mapping[str, int]] = {
    "row": {"direct": 1},
    "reservoir and row": {"direct": 1, "reservoir": 600},
}
"""What heads see beside the network."""


def beside(bench: Bench) -> Iterator[Model]:
    """Part 7, what the head sees beside the absorbed network: the bodies are those of the recipe as it is."""
    plan, bodies = exact_only(bench.plan()), bench.bodies()
    cohort = bench.cohort()
    small = side_by_side(cohort, plan, bodies).at(int(1.5 * plan.spec.hidden))
    for label, more in BESIDE.items():
        yield finished(bench, cohort, f"absorb with {label}", seeing(small, more))


def beside_central(bench: Bench) -> Iterator[Model]:
    """Part 7, the same beside the network of central training."""
    cohort, network = centrally_trained(bench)
    for label, more in BESIDE.items():
        yield finished(bench, cohort, f"central with {label}", seeing(network, more))


def seeing(network: Network, more: Mapping[str, int]) -> Network:
    """The network with a head that sees more, to be solved."""
    spec = NetworkSpec(**{**network.spec.model_dump(), **more})
    missing = {n: np.zeros(shape, np.float32) for n, shape in spec.shapes.items() if n not in network.weights}
    return Network(spec, {**network.weights, **missing})


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Bodies as one wide network, and the sums from which it is absorbed to any width.

    Parameters
    ----------
    fit, held
        What the head sees: on rows trained on, and on rows kept out.
    """

    bodies: Bodies
    network: Network
    fit: HeadStatistics
    held: HeadStatistics | None
    sums: tuple[OutputSums, ...]
    alpha: float
    ridge: float

    @classmethod
    def from_bodies(
        cls, cohort: MessageCohort, plan: Plan, bodies: Bodies, clients: Sequence[str] | None = None
    ) -> SideBySide:
        """Ask these clients, or all, for the sums."""
        network, _ = concat_bodies(bodies)
        fit, held, sums = ask_for_sums(cohort, plan, network, clients or cohort.clients)
        alpha = plan.federation.strategy_options("absorb", AbsorbOptions).alpha[0]
        return cls(bodies, network, fit, held, sums, alpha, plan.federation.ridge)

    def result_at(self, width: int) -> Absorption:
        """Absorbed to this width."""
        arrays = layer_arrays(self.network)
        return absorb(arrays, self.sums, width=width, alpha=self.alpha, ridge=self.ridge, head=self.fit.sums)

    def at(self, width: int) -> Network:
        """The network of this width."""
        return small_network(self.network, self.result_at(width))


def side_by_side(cohort: MessageCohort, plan: Plan, bodies: Mapping[str, Network]) -> SideBySide:
    """Bodies and the order in which their neurons go; in groups first where they are many."""
    options = plan.federation.strategy_options("absorb", AbsorbOptions)
    widest = max(body.spec.hidden for body in bodies.values())
    alone: Bodies = {(name,): body for name, body in bodies.items()}
    return SideBySide.from_bodies(cohort, plan, in_groups(cohort, plan, alone, widest, options.alpha[0]))


def best_body(bench: Bench, plan: Plan, bodies: Mapping[str, Network]) -> Model:
    """The body whose head fits everybody's training rows best."""
    cohort = trained(bench)
    by_client: dict[str, tuple[float, Network]] = {}
    for name, body in sorted(bodies.items()):
        fit, held = evaluate(cohort, plan, cohort.clients, body).head_statistics
        head = exact_head(fit, held, plan.federation.ridge).head
        by_client[name] = (mean_squared_error(fit, head), body.with_head(head))
    best = min(by_client, key=lambda name: by_client[name][0])
    network = by_client[best][1]
    return Model("best single body", bench.predictions(network), network, cohort.traffic.bytes, {"client": best})


def trained(bench: Bench) -> MessageCohort:
    """A cohort whose traffic holds the training of the bodies already."""
    cohort = bench.cohort()
    train(cohort, bench.plan(), dict.fromkeys(cohort.clients), epochs=None, round_=1)
    return cohort


def finished(bench: Bench, cohort: MessageCohort, method: str, network: Network) -> Model:
    """The network with its exact head, and all bytes up to then."""
    predictions, with_head = both(bench, cohort, network)
    return Model(method, predictions, with_head, cohort.traffic.bytes)


def both(bench: Bench, cohort: MessageCohort, network: Network) -> tuple[FloatArray, Network]:
    """What the network says with its exact head, and that network."""
    solved = bench.with_head(cohort, network)
    return bench.predictions(solved), solved


def exact_only(plan: Plan) -> Plan:
    """The plan with exact heads alone."""
    return replace(plan, federation=plan.federation.model_copy(update={"heads": ("exact",)}))


Part = Callable[[Bench], Iterator[Model]]


@dataclass(frozen=True)
class Task:
    """Some measurements of one scenario: kept together, done or not done.

    Parameters
    ----------
    overrides
        Options of the experiment that differ from the preset's.
    """

    part: str
    scenario: str
    run: Part
    seed: int
    overrides: Sequence[str] = ()
    change: str = ""

    @property
    def key(self) -> str:
        """Its name in the file of measurements."""
        return "/".join([self.part, self.scenario, self.change, str(self.seed)])
