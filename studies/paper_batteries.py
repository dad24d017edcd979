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
from fedprognos.federation.plan import Plan, Round
from fedprognos.federation.strategies import strategies
from fedprognos.federation.strategies.fedma import FedMAOptions, Matcher, bbp_map, fedma
from fedprognos.files import read_json, write_json, write_text
from fedprognos.matching import Matching
from fedprognos.networks import Layer, Network
from fedprognos.networks.torch_threads import one_torch_thread
from studies.markdown import BLANK, NOTHING, rounds, sample, signed, stacked, table
from studies.paper import paper
from studies.paper_factors import BATTERIES, GRID, PRESET, rmse, rounded
from studies.samples import Sample, paired
from studies.study.bench import Bench, scope_of

RESULTS = Path("docs/results/paper-batteries.json")
RUNS = Path("build/paper-batteries")
ROUNDS, EPOCHS = 20, 120
KEPT_OUT = 0.2
"""Share of each battery's training cycles, the latest, that choose the round where `kept_out` asks for it."""
PAGE = """\
# The paper's batteries with controls

Table IV of the paper with the sampling put right: cycles on a time grid over the first 2394 s
([why](paper-factors.md)), all else as in `battery-paper`. FedAvg and FedMA run {rounds} rounds. FedMA trains {epochs}
local epochs a round, then its head for {epochs} epochs on the averaged body. Errors in Ah on the last 30 % of each
battery's cycles; ± is the standard deviation over seeds. *Best on test* takes the best of all rounds for each battery
and seed, as the paper does: nobody can do that in practice.

- *FedMA*: as in the paper, neurons matched by their weights. *No permutation*: neurons averaged as they come. *Random
  permutations*: in an order drawn by lot. *Common start*: all clients begin with the same weights.
- *Kept out*: the latest fifth of each battery's training cycles is not trained on. It chooses the epoch of each local
  training and the round.

`python -m studies paper-batteries` trains what is missing, and goes on where it was cut off. `--neurons 128 --seeds 5`
is the paper's size."""
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
    options
        Its options.
    matcher
        What stands in the place of matching.
    """

    label: str
    method: str
    options: Mapping[str, Any] | None = field(default=None, hash=False)
    matcher: Matcher | None = None


LOCAL, CENTRAL = Course("Local", "local"), Course("Central", "central")
FEDAVG = Course("FedAvg, 2 epochs a round", "fedavg", {"epochs": 2})
FEDMA = Course("FedMA", "fedma", {"epochs": EPOCHS})
COURSES = (
    LOCAL,
    CENTRAL,
    FEDAVG,
    FEDMA,
    Course("FedMA, no permutation", "fedma", {"epochs": EPOCHS}, unpermuted),
    Course("FedMA, random permutations", "fedma", {"epochs": EPOCHS}, shuffled),
    Course("FedMA, common start", "fedma", {"epochs": EPOCHS, "start": "common"}),
    Course("FedAvg, 120 epochs a round", "fedavg", {"epochs": EPOCHS}),
)
ALL, PAIR = "all", "B0006+B0018"


@dataclass(frozen=True)
class Cell:
    """One training of one course."""

    scenario: str
    course: Course
    neurons: int
    seed: int
    kept_out: bool = False

    @property
    def key(self) -> str:
        kept = ", kept out" if self.kept_out else ""
        return f"{self.scenario}: {self.course.label}, {self.neurons} neurons{kept}, seed {self.seed}"


def cells(neurons: int, seeds: int) -> Iterator[Cell]:
    """All trainings in the order of what they say: every control with one seed first."""
    for seed in range(seeds):
        yield from (Cell(ALL, course, neurons, seed) for course in COURSES)
        yield from (Cell(PAIR, course, neurons, seed) for course in (LOCAL, FEDAVG, FEDMA))
    for seed in range(seeds):
        yield from (Cell(ALL, course, neurons, seed, kept_out=True) for course in (LOCAL, CENTRAL, FEDAVG, FEDMA))


def write_batteries(data_dir: Path | None, neurons: int, seeds: int, tell: Callable[[str], None] = print) -> Path:
    """Train what is missing, and write the results and their page after each training."""
    results: dict[str, Any] = read_json(RESULTS) if RESULTS.is_file() else {}
    with one_torch_thread():
        for cell in cells(neurons, seeds):
            if cell.key not in results:
                results[cell.key] = measure(cell, data_dir)
                write_json(RESULTS, results)
                write_text(RESULTS.with_suffix(".md"), page(results, neurons, seeds))
                tell(cell.key)
    write_text(RESULTS.with_suffix(".md"), page(results, neurons, seeds))
    return RESULTS.with_suffix(".md")


def measure(cell: Cell, data_dir: Path | None) -> dict[str, list[float]]:
    """Test error of every battery after every round; `kept out` is the error on the cycles that choose the round."""
    fraction = KEPT_OUT if cell.kept_out else 0
    overrides = (*GRID, f"model.widths=[{cell.neurons}]", f"train.validation_fraction={fraction}")
    _, experiment, _ = config.load(PRESET, overrides)
    scenario = scenarios(experiment, data_dir, Path())[cell.scenario]
    bench = Bench(experiment, scenario, cell.seed, RUNS, scope_of(scenario))
    tests = {name: build_windows(bench.recipe, fleet) for name, fleet in scenario.tests.items()}
    held = {}
    if cell.kept_out:
        for name, fleet in scenario.clients.items():
            held[name] = hold_out(build_windows(bench.recipe, fleet), KEPT_OUT, 0)[1]
    errors: dict[str, list[float]] = {name: [] for name in tests}
    if held:
        errors["kept out"] = []
    for round_ in trained(bench, cell.course):
        models = {owner: network for owners, network in round_.models.items() for owner in owners}
        everybody = next(iter(round_.models.values()))
        for name, windows in tests.items():
            errors[name].append(rounded(rmse(models.get(name, everybody), windows, bench.recipe)))
        if held and len(round_.models) == 1:
            together = reduce(joined, [h for h in held.values() if h is not None])
            errors["kept out"].append(rounded(rmse(everybody, together, bench.recipe)))
    return errors


def trained(bench: Bench, course: Course) -> Iterator[Round]:
    """The rounds of a course."""
    options = {**(course.options or {}), **({"rounds": ROUNDS} if course.options else {})}
    plan: Plan = bench.plan(**({course.method: options} if options else {}))
    cohort = bench.pooled() if course.method == "central" else bench.cohort()
    if course.matcher is not None:
        return fedma(cohort, plan, plan.federation.strategy_options("fedma", FedMAOptions), course.matcher)
    return strategies[course.method].run(cohort, plan)


def page(results: Mapping[str, Mapping[str, Sequence[float]]], neurons: int, seeds: int) -> str:
    """Tables of all that was trained at this size; what is missing is named."""
    words = PAGE.format(rounds=ROUNDS, epochs=EPOCHS)
    parts = [words, f"Size: {neurons} neurons (paper: {paper().battery.neurons}), {seeds} seeds."]
    header = [
        "trained on",
        "method",
        *(f"{b}: {what}" for b in BATTERIES for what in ("round 1", "last", "best on test")),
    ]
    lines = []
    for scenario, course in dict.fromkeys((c.scenario, c.course) for c in cells(neurons, seeds)):
        lines.append(_line(results, scenario, course, neurons, seeds))
    parts.append(table(header, lines, 2))
    if chosen := [_chosen_line(results, c, neurons, seeds) for c in (LOCAL, CENTRAL, FEDAVG, FEDMA)]:
        parts += ["## Round chosen on cycles kept out", "All three batteries train. Below an error: the round."]
        parts.append(table(["method", *BATTERIES], chosen))
    if differences := _differences(results, neurons, seeds):
        parts += [PAIRED, table(["method", *BATTERIES], differences)]
    missing = [cell.key for cell in cells(neurons, seeds) if cell.key not in results]
    if missing:
        parts += ["## Not trained yet", "\n".join(f"- {key}" for key in missing)]
    return "\n\n".join(parts) + "\n"


def _samples(
    results: Mapping[str, Mapping[str, Sequence[float]]], scenario: str, course: Course, neurons: int, seeds: int,
    battery: str, pick: Callable[[Sequence[float]], int], kept_out: bool = False,
) -> Sample | None:  # fmt: skip
    """Errors of one battery over seeds, after the round that `pick` names."""
    values, chosen = {}, {}
    for seed in range(seeds):
        entry = results.get(Cell(scenario, course, neurons, seed, kept_out).key)
        if entry is not None and battery in entry:
            at = pick(entry.get("kept out") or [0.0]) if kept_out else pick(entry[battery])
            values[seed], chosen[seed] = entry[battery][at], at % len(entry[battery]) + 1
    return Sample(values, chosen) if values else None


def _line(
    results: Mapping[str, Mapping[str, Sequence[float]]], scenario: str, course: Course, neurons: int, seeds: int
) -> list[str]:
    line = [" ".join(("all three",) if scenario == ALL else scenario.split("+")), course.label]
    for battery in BATTERIES:
        first, last, best = (
            _samples(results, scenario, course, neurons, seeds, battery, pick)
            for pick in (lambda errors: 0, lambda errors: -1, lambda errors: int(np.argmin(errors)))
        )
        one_round = course.options is None
        line += [
            NOTHING if one_round else sample(first, 4),
            sample(last, 4),
            NOTHING if one_round or best is None else stacked(sample(best, 4), f"round {rounds(best)}"),
        ]
    return line


def _chosen_line(
    results: Mapping[str, Mapping[str, Sequence[float]]], course: Course, neurons: int, seeds: int
) -> list[str]:
    line = [course.label]
    for battery in BATTERIES:
        errors = _samples(results, ALL, course, neurons, seeds, battery, lambda e: int(np.argmin(e)), kept_out=True)
        below = f"round {rounds(errors)}" if errors is not None and course.options else ""
        line.append(stacked(sample(errors, 4), below))
    return line


def _differences(results: Mapping[str, Mapping[str, Sequence[float]]], neurons: int, seeds: int) -> list[list[str]]:
    """Last rounds minus FedMA's, where at least two seeds of both are there."""
    lines = []
    for course in COURSES:
        line = [course.label]
        for battery in BATTERIES if course != FEDMA else ():
            first, second = (
                _samples(results, ALL, c, neurons, seeds, battery, lambda errors: -1) for c in (course, FEDMA)
            )
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
