"""Part 3 of the study: the same local work in one round or in many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedprognos.federation.strategies import strategies
from studies.study.bench import Bench
from studies.study.parts import Model, exact_only, finished

Courses = Mapping[str, tuple[str, float, Mapping[str, Any]]]
COURSES: Courses = {
    "Absorb, one exchange": ("absorb", 1.0, {"rounds": 1}),
    "Absorb, then 2 averages": ("absorb", 0.5, {"rounds": 3}),
    "Absorb, absorbed again twice": ("absorb", 0.5, {"rounds": 3, "again": "absorb"}),
    "FedAvg, 12 rounds of 3 epochs": ("fedavg", 1.0, {"rounds": 12, "epochs": 3}),
    "FedProx, 12 rounds of 3 epochs": ("fedprox", 1.0, {"rounds": 12, "epochs": 3}),
    "FedMA, 3 rounds of 12 epochs": ("fedma", 1.0, {"rounds": 3, "epochs": 12, "width_limit": 1.5}),
}
"""Method, share of the steps that its first round takes, options. 300 steps are about 36 epochs."""
FURTHER: Courses = {
    "Absorb, 450 steps: one exchange": ("absorb", 1.5, {"rounds": 1}),
    "Absorb, 450 steps: 300, then 2 averages": ("absorb", 1.0, {"rounds": 3}),
}
"""Half as much local work again: in the one exchange, or in rounds after it."""
DRAWN = 4
"""Rounds of a course that are evaluated, where it has more."""


def rounds(bench: Bench) -> Iterator[Model]:
    """About the same number of local epochs, in one round or in many."""
    return _courses(bench, COURSES)


def further_rounds(bench: Bench) -> Iterator[Model]:
    """Half as many local epochs again."""
    return _courses(bench, FURTHER)


def _courses(bench: Bench, courses: Courses) -> Iterator[Model]:
    steps = bench.experiment.train.steps or 0
    for label, (method, share, options) in courses.items():
        more = {"further_steps": steps // 4} if method == "absorb" else {}
        cohort, plan = bench.cohort(), exact_only(bench.plan(**{method: {**options, **more}}))
        plan = replace(plan, train=plan.train.model_copy(update={"steps": int(share * steps)}))
        for round_ in strategies[method].run(cohort, plan):
            if options["rounds"] <= DRAWN or round_.number % (options["rounds"] // DRAWN) == 0:
                (network,) = round_.models.values()
                yield replace(finished(bench, cohort, label, network), more={"round": round_.number})
