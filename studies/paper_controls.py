"""The paper's Table IV with the sampling put right, and with controls that the paper does not have.

Time grid instead of sample index, all else as `battery-paper`. Controls replace the matching of FedMA by no
permutation or by random ones, let clients start from the same weights, and give FedAvg as many local epochs as FedMA.
Replies of clients are kept on disk, so a run that was cut off goes on after the last reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import build_windows
from fedprognos.features.windows import hold_out, joined
from fedprognos.federation.plan import Round
from fedprognos.federation.strategies import strategies
from fedprognos.federation.strategies.fedma import FedMAOptions, Matcher, bbp_map, fedma
from fedprognos.matching import Matching
from fedprognos.networks import Layer, Network
from studies.cells import measure_missing, not_measured
from studies.markdown import BLANK, NOTHING, rounds, sample, signed, stacked, table
from studies.paper import paper
from studies.paper_factors import BATTERIES, GRID, PRESET, rmse, rounded
from studies.samples import Sample, paired
from studies.study.bench import Bench, scope_of

RESULTS = Path("docs/results/paper-batteries.json")
RUNS = Path("build/paper-batteries")
KEPT_OUT = 0.2
"""Share of each battery's training cycles, the latest, that choose the round where `kept_out` asks for it."""
PAGE = """\
# The paper's batteries with controls

Table IV of the paper with the sampling put right: cycles on a time grid over the first 2394 s
([why](paper-factors.md)), all else as in `battery-paper`. Errors in Ah on the last 30 % of each battery's cycles; ± is
the standard deviation over seeds. *Best on test* takes the best of all rounds for each battery and seed, as the paper
does: nobody can do that in practice.

- *FedMA*: as in the paper, neurons matched by their weights. *No permutation*: neurons averaged as they come. *Random
  permutations*: in an order drawn by lot. *Common start*: all clients begin with the same weights.
- *Kept out*: the latest fifth of each battery's training cycles is not trained on. It chooses the epoch of each local
  training and the round.

- *Local*, *Central*: 100 epochs. *FedAvg*: 20 rounds of 2 epochs. Both are as in the paper. *At equal epochs*: as many
  local epochs in all as FedMA. FedMA also trains its head on the averaged body, as many epochs again.

`python -m studies paper-batteries` trains what is missing, and goes on where it was cut off.
`--neurons 128 --rounds 20 --epochs 120 --seeds 5` is the paper's size: days on two cores."""
PAIRED = """\
## Differences, seed by seed

Error after the last round, in Ah, minus that of FedMA; 95 % intervals. An interval that holds zero shows no
difference."""


def unpermuted(
    layer: Layer, networks: Mapping[str, Network], sizes: Mapping[str, float], options: FedMAOptions, seed: int
) -> Matching:
    """Control: neuron k of one client is neuron k of all."""
    matching = bbp_map(layer, networks, sizes, options, seed)
    return replace(matching, assignments={j: np.arange(len(places)) for j, places in matching.assignments.items()})


def shuffled(
    layer: Layer, networks: Mapping[str, Network], sizes: Mapping[str, float], options: FedMAOptions, seed: int
) -> Matching:
    """Control: neurons of each client in an order drawn by lot."""
    matching, rng = bbp_map(layer, networks, sizes, options, seed), np.random.default_rng(seed)
    return replace(
        matching, assignments={j: rng.permutation(len(matching.assignments[j])) for j in sorted(matching.assignments)}
    )


@dataclass(frozen=True)
class Course:
    """One way to train.

    Parameters
    ----------
    method
        Name of the strategy.
    fixed
        Rounds and epochs where they do not depend on the size of the study.
    options
        Other options of the method.
    matcher
        What stands in the place of matching.
    as_long
        Local and central training: as many epochs as FedMA has in all its rounds.
    """

    label: str
    method: str
    fixed: tuple[int, int] | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    matcher: Matcher | None = None
    as_long: bool = False

    @property
    def has_rounds(self) -> bool:
        return self.method not in ("local", "central")


LOCAL, CENTRAL = Course("Local", "local"), Course("Central", "central")
FEDAVG, FEDMA = Course("FedAvg", "fedavg", fixed=(20, 2)), Course("FedMA", "fedma")
COURSES = (
    LOCAL,
    CENTRAL,
    FEDAVG,
    FEDMA,
    Course("FedMA, no permutation", "fedma", matcher=unpermuted),
    Course("FedMA, random permutations", "fedma", matcher=shuffled),
    Course("FedMA, common start", "fedma", options={"start": "common"}),
    Course("FedAvg, at equal epochs", "fedavg"),
    Course("Local, at equal epochs", "local", as_long=True),
    Course("Central, at equal epochs", "central", as_long=True),
)
ALL, PAIR = "all", "B0006+B0018"


@dataclass(frozen=True)
class Size:
    """Neurons, and rounds and local epochs a round of FedMA and of what is compared with it at equal epochs."""

    neurons: int = 32
    rounds: int = 5
    epochs: int = 40
    seeds: int = 3

    @property
    def all_epochs(self) -> int:
        return self.rounds * self.epochs


@dataclass(frozen=True)
class Cell:
    """One training of one course."""

    scenario: str
    course: Course
    size: Size
    seed: int
    kept_out: bool = False

    @property
    def key(self) -> str:
        kept = ", kept out" if self.kept_out else ""
        rounds = self.course.fixed or (self.size.rounds, self.size.epochs)
        lasting = f", {rounds[0]} rounds of {rounds[1]} epochs" if self.course.has_rounds else ""
        if self.course.as_long:
            lasting = f", {self.size.all_epochs} epochs"
        return f"{self.scenario}: {self.course.label}, {self.size.neurons} neurons{lasting}{kept}, seed {self.seed}"


def cells(size: Size) -> Iterator[Cell]:
    """All trainings in the order of what they say: every control with one seed first."""
    for seed in range(size.seeds):
        yield from (Cell(ALL, course, size, seed) for course in COURSES)
        yield from (Cell(PAIR, course, size, seed) for course in (LOCAL, FEDAVG, FEDMA))
    for seed in range(size.seeds):
        yield from (Cell(ALL, course, size, seed, kept_out=True) for course in (LOCAL, CENTRAL, FEDAVG, FEDMA))


def write_batteries(data_dir: Path | None, size: Size) -> Path:
    """Train what is missing, and write the results and their page."""
    return measure_missing(RESULTS, cells(size), lambda cell: measure(cell, data_dir), lambda r: page(r, size))


def measure(cell: Cell, data_dir: Path | None) -> dict[str, list[float]]:
    """Test error of every battery after every round; `kept out` is the error on the cycles that choose the round."""
    fraction = KEPT_OUT if cell.kept_out else 0
    overrides: tuple[str, ...] = (*GRID, f"model.widths=[{cell.size.neurons}]", f"train.validation_fraction={fraction}")
    if cell.course.as_long:
        overrides = (*overrides, f"train.epochs={cell.size.all_epochs}")
    _, experiment, _ = config.load(PRESET, overrides)
    scenario = scenarios(experiment, data_dir, Path())[cell.scenario]
    bench = Bench(experiment, scenario, cell.seed, RUNS, scope_of(scenario))
    tests = {name: build_windows(bench.recipe, fleet) for name, fleet in scenario.tests.items()}
    held = {}
    if cell.kept_out:
        for name, fleet in scenario.clients.items():
            held[name] = hold_out(build_windows(bench.recipe, fleet), KEPT_OUT, 0, bench.recipe.task)[1]
    errors: dict[str, list[float]] = {name: [] for name in tests}
    if held:
        errors["kept out"] = []
    for round_ in trained(bench, cell.course, cell.size):
        models = {owner: network for owners, network in round_.models.items() for owner in owners}
        everybody = next(iter(round_.models.values()))
        for name, windows in tests.items():
            errors[name].append(rounded(rmse(models.get(name, everybody), windows, bench.recipe)))
        if held and len(round_.models) == 1:
            together = reduce(joined, [h for h in held.values() if h is not None])
            errors["kept out"].append(rounded(rmse(everybody, together, bench.recipe)))
    return errors


def trained(bench: Bench, course: Course, size: Size) -> Iterator[Round]:
    """The rounds of a course."""
    rounds, epochs = course.fixed or (size.rounds, size.epochs)
    options = {"rounds": rounds, "epochs": epochs, **course.options}
    plan = bench.plan(**({course.method: options} if course.has_rounds else {}))
    cohort = bench.pooled() if course.method == "central" else bench.cohort()
    if course.matcher is not None:
        return fedma(cohort, plan, plan.federation.strategy_options("fedma", FedMAOptions), course.matcher)
    return strategies[course.method].run(cohort, plan)


def page(results: Mapping[str, Mapping[str, Sequence[float]]], size: Size) -> str:
    """Tables of all that was trained at this size; what is missing is named."""
    printed = paper().battery
    parts = [
        PAGE,
        f"Size here: {size.neurons} neurons, {size.rounds} rounds of {size.epochs} epochs, {size.seeds} seeds. "
        f"Size in the paper: {printed.neurons} neurons, {printed.rounds} rounds of {printed.fedma_epochs} epochs.",
    ]
    header = [
        "trained on",
        "method",
        *(f"{b}: {what}" for b in BATTERIES for what in ("round 1", "last", "best on test")),
    ]
    lines = []
    for scenario, course in dict.fromkeys((c.scenario, c.course) for c in cells(size)):
        lines.append(_line(results, scenario, course, size))
    parts.append(table(header, lines, 2))
    if chosen := [_chosen_line(results, c, size) for c in (LOCAL, CENTRAL, FEDAVG, FEDMA)]:
        parts += ["## Round chosen on cycles kept out", "All three batteries train. Below an error: the round."]
        parts.append(table(["method", *BATTERIES], chosen))
    if differences := _differences(results, size):
        parts += [PAIRED, table(["method", *BATTERIES], differences)]
    return "\n\n".join([*parts, *not_measured((cell.key for cell in cells(size)), results)]) + "\n"


def _samples(
    results: Mapping[str, Mapping[str, Sequence[float]]], scenario: str, course: Course, size: Size,
    battery: str, pick: Callable[[Sequence[float]], int], kept_out: bool = False,
) -> Sample | None:  # fmt: skip
    """Errors of one battery over seeds, after the round that `pick` names."""
    values, chosen = {}, {}
    for seed in range(size.seeds):
        entry = results.get(Cell(scenario, course, size, seed, kept_out).key)
        if entry is not None and battery in entry:
            at = pick(entry.get("kept out") or [0.0]) if kept_out else pick(entry[battery])
            values[seed], chosen[seed] = entry[battery][at], at % len(entry[battery]) + 1
    return Sample(values, chosen) if values else None


def _line(results: Mapping[str, Mapping[str, Sequence[float]]], scenario: str, course: Course, size: Size) -> list[str]:
    line = [" ".join(("all three",) if scenario == ALL else scenario.split("+")), course.label]
    for battery in BATTERIES:
        first, last, best = (
            _samples(results, scenario, course, size, battery, pick)
            for pick in (lambda errors: 0, lambda errors: -1, lambda errors: int(np.argmin(errors)))
        )
        one_round = not course.has_rounds
        line += [
            NOTHING if one_round else sample(first, 4),
            sample(last, 4),
            NOTHING if one_round or best is None else stacked(sample(best, 4), f"round {rounds(best)}"),
        ]
    return line


def _chosen_line(results: Mapping[str, Mapping[str, Sequence[float]]], course: Course, size: Size) -> list[str]:
    line = [course.label]
    for battery in BATTERIES:
        errors = _samples(results, ALL, course, size, battery, lambda e: int(np.argmin(e)), kept_out=True)
        below = f"round {rounds(errors)}" if errors is not None and course.has_rounds else ""
        line.append(stacked(sample(errors, 4), below))
    return line


def _differences(results: Mapping[str, Mapping[str, Sequence[float]]], size: Size) -> list[list[str]]:
    """Last rounds minus FedMA's, where at least two seeds of both are there."""
    lines = []
    for course in COURSES:
        line = [course.label]
        for battery in BATTERIES if course != FEDMA else ():
            first, second = (_samples(results, ALL, c, size, battery, lambda errors: -1) for c in (course, FEDMA))
            if first is None or second is None:
                continue
            shared = sorted(first.by_seed.keys() & second.by_seed.keys())
            if len(shared) > 1:
                difference = paired(*(Sample({s: x.by_seed[s] for s in shared}, {}) for x in (first, second)))
                low, high = (NOTHING if end is None else signed(end, 4) for end in (difference.low, difference.high))
                line.append(f"{signed(difference.mean, 4)}{BLANK}[{low}, {high}]")
        if len(line) > 1:
            lines.append(line)
    return lines
