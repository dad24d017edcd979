"""Part 3 of the study: the same local work in one round or in many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedprognos.federation.strategies import strategies
from studies.study.bench import Bench
from studies.study.parts import Model, exact_only, finished

COURSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Absorb, one exchange": ("absorb", {"rounds": 1}),
    "FedAvg, 12 rounds of 3 epochs": ("fedavg", {"rounds": 12, "epochs": 3}),
    "FedProx, 12 rounds of 3 epochs": ("fedprox", {"rounds": 12, "epochs": 3}),
    "FedMA, 3 rounds of 12 epochs": ("fedma", {"rounds": 3, "epochs": 12, "width_limit": 1.5}),
}
"""Method and options. The one exchange trains 300 steps, about 36 epochs."""
DRAWN = 4
"""Rounds of a course that are evaluated, where it has more."""


def rounds(bench: Bench) -> Iterator[Model]:
    """About the same number of local epochs, in one round or in many."""
    for label, (method, options) in COURSES.items():
        cohort, plan = bench.cohort(), exact_only(bench.plan(**{method: options}))
        for round_ in strategies[method].run(cohort, plan):
            if options["rounds"] <= DRAWN or round_.number % (options["rounds"] // DRAWN) == 0:
                (network,) = round_.models.values()
                yield replace(finished(bench, cohort, label, network), more={"round": round_.number})
