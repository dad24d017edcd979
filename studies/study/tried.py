"""Part 8: what was tried to lose less, judged on training engines kept out, because something was to be chosen.

A fifth of each client's engines trains nothing and fits no head. Errors are those of the exact head on all their rows,
every engine counting alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np

from fedprognos import matching
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import strategies
from fedprognos.federation.strategies.absorb import AbsorbOptions
from fedprognos.federation.strategies.fedavg import FedAvgOptions
from fedprognos.networks import Network
from fedprognos.networks.head import HeadStatistics, mean_squared_error, solve_head
from studies.study.bench import Bench
from studies.study.distilling import distilled
from studies.study.parts import Model, SideBySide, exact_only, side_by_side

KEPT_OUT = ("train.validation_fraction=0.2", "train.warmup=10000")
"""Options with which a fifth is kept out, and only judged on: the last epoch counts."""
MORE_STEPS = 240
"""Gradient steps of more local work before the exchange."""
TAUGHT, SHORT, RATE = 3, 20, 0.001
"""Rounds of distilling, gradient steps of each, and their learning rate."""
GROUPS: Mapping[str, tuple[int, float, bool]] = {
    "groups judged on everybody's rows": (512, 4.0, False),
    "groups kept at twice a client's width": (512, 2.0, True),
    "groups of two": (128, 0.8, True),
    "no groups": (10_000, 2.0, True),
}
"""Neurons of a group, widths that it is absorbed to, and whether its own members' rows decide."""
EVERYTHING = "keeping every neuron"
"""What everything else is compared with."""


def tried(bench: Bench) -> Iterator[Model]:
    """Everything that was made of the same bodies."""
    plan, bodies, cohort = exact_only(bench.plan()), bench.bodies(), bench.cohort()
    everything = Network.concat([bodies[name] for name in sorted(bodies)])
    yield judged(cohort, plan, EVERYTHING, everything)
    whole, base = side_by_side(cohort, plan, bodies), plan.spec.hidden
    widths = [int(m * base) for m in (1, 1.5, 4) if m * base <= whole.network.spec.hidden and m < len(bodies)]
    ways = [replace(whole, alpha=alpha) for alpha in AbsorbOptions().alpha]
    for width in widths:
        each = [judged(cohort, plan, f"alpha {way.alpha:g}", way.at(width)) for way in ways]
        taken = min(each, key=lambda model: float((model.more or {})["fitted"]))  # as the strategy does
        yield from (replace(taken, method="absorbed"), *each)
    flat = grouped(cohort, plan, bodies, *GROUPS["no groups"])
    if len(whole.bodies) < len(bodies):
        for label, how in GROUPS.items():
            yield from at_widths(cohort, plan, f"alpha 0.3, {label}", grouped(cohort, plan, bodies, *how), widths)
    for width in widths[:2]:
        *_, last = islice(distilled(bench, plan, flat, width, steps=SHORT, rate=RATE), TAUGHT)
        yield judged(cohort, plan, f"states distilled, {TAUGHT} rounds of {SHORT} steps", last)
    for width in widths:
        yield states_kept(plan, flat, width)


def further(bench: Bench) -> Iterator[Model]:
    """More local work: before the exchange, or in rounds of FedAvg."""
    plan = exact_only(bench.plan())
    steps = (plan.train.steps or 0) + MORE_STEPS
    longer = replace(plan, train=plan.train.model_copy(update={"steps": steps}))
    for method, words in (("concat", "every neuron"), ("absorb", "absorbed")):
        *_, (_, network) = rounds(bench, longer, method)
        yield judged(bench.cohort(), plan, f"{words}, {MORE_STEPS} steps more", network)
    options = plan.federation.strategy_options("fedavg", FedAvgOptions)
    *_, (_, network) = rounds(bench, plan, "fedavg")
    yield judged(bench.cohort(), plan, f"FedAvg, {options.rounds} rounds of {options.epochs} epochs", network)


def rounds(bench: Bench, plan: Plan, method: str) -> Iterator[tuple[int, Network]]:
    """What a method has after every round."""
    for round_ in strategies[method].run(bench.cohort(), plan):
        (network,) = round_.models.values()
        yield round_.number, network


def grouped(
    cohort: MessageCohort, plan: Plan, bodies: Mapping[str, Network], most: int, widths: float, own_rows: bool
) -> SideBySide:
    """Bodies absorbed in groups of another kind first; one group is none."""
    sizes = {name: body.spec.hidden for name, body in bodies.items()}
    parts = matching.groups(sizes, most)
    grouped_bodies: dict[tuple[str, ...], Network] = {(name,): body for name, body in bodies.items()}
    if len(parts) > 1:
        target = int(widths * max(sizes.values()))
        grouped_bodies = {
            part: SideBySide.from_bodies(
                cohort, plan, {(n,): bodies[n] for n in part}, part if own_rows else cohort.clients
            ).at(target)
            for part in parts
        }
    return SideBySide.from_bodies(cohort, plan, grouped_bodies)


def at_widths(cohort: MessageCohort, plan: Plan, label: str, whole: SideBySide, widths: list[int]) -> Iterator[Model]:
    """One way to absorb, at every width."""
    for width in widths:
        yield judged(cohort, plan, label, whole.at(width))


def judged(cohort: MessageCohort, plan: Plan, label: str, network: Network) -> Model:
    """The error on what was kept out."""
    fit, held = evaluate(cohort, plan, cohort.clients, network).head_statistics
    return _model(plan, label, network.spec.hidden, fit, held)


def states_kept(plan: Plan, whole: SideBySide, width: int) -> Model:
    """What a small network could reach that puts out just what the kept neurons put out in the large one."""
    kept = whole.result_at(width).kept[-1]
    held = None if whole.held is None else whole.held.only(kept)
    return _model(plan, "kept neurons as they were", width, whole.fit.only(kept), held)


def _model(plan: Plan, label: str, width: int, fit: HeadStatistics, held: HeadStatistics | None) -> Model:
    if held is None:
        raise RuntimeError("no client keeps enough out of training to be judged by")
    head = solve_head(fit, plan.federation.ridge)

    def error(part: HeadStatistics) -> float:
        return float(np.sqrt(mean_squared_error(part, head))) * plan.recipe.label_std

    return Model(label, more={"kept_out": round(error(held), 4), "fitted": round(error(fit), 4), "width": width})
