"""The paper's Tables IV and VI again, smaller and with controls that the paper does not have.

Controls replace the matching of FedMA by no permutation or by random ones, let clients start from the same weights,
and give the others as many local epochs as FedMA. Replies of clients are kept on disk, so a run that was cut off goes
on after the last reply. Batteries lie on a time grid instead of being cut by sample index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import WindowSet, build_windows
from fedprognos.features.windows import hold_out, joined
from fedprognos.federation.plan import Round
from fedprognos.federation.strategies import strategies
from fedprognos.federation.strategies.fedma import FedMAOptions, Matcher, bbp_map, fedma
from fedprognos.matching import Matching
from fedprognos.networks import Layer, Network
from studies.cells import measure_missing
from studies.markdown import NOTHING, difference, folded, rounds, sample, stacked, table
from studies.paper import PaperTable, paper
from studies.paper_factors import BATTERIES, GRID, rmse, rounded
from studies.samples import Sample, paired
from studies.study.bench import Bench, scope_of

RUNS = Path("build/paper")
KEPT_OUT = 0.2
"""Share of each battery's training cycles, the latest, that choose the round where `kept_out` asks for it."""
PAIRED = """\
Error after the last round minus that of FedMA, seed by seed, with 95 % intervals. Bold: the interval leaves zero out.
Others show no difference; one without an interval is of one seed. Intervals are not corrected for their number: of
twenty, one leaves zero out by chance."""
TRAINED_ON = {"all": "all three", "B0006+B0018": "B0006 B0018"}
KEPT = "All three batteries train. Cycles kept out choose the round, which stands below the error."
BATTERY_PAGE = """\
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

`python -m studies paper-batteries` trains what is missing, the smallest size first, and goes on where it was cut off.
The largest size is the paper's; `--neurons 128` leaves out the smallest."""
ENGINE_PAGE = """\
# The paper's engines with controls

Table VI of the paper, smaller and with controls: C-MAPSS FD004, recipe and network as in `turbofan-paper`. Errors are
RMSE in cycles on the 228 test engines with at least 50 rows; *capped*: labels and predictions held at 130. *Best on
test* takes the best of all rounds, for raw and capped errors by itself, as the paper does: nobody can do that in
practice. ± is the standard deviation over seeds.

- *FedMA*: as in the paper, neurons of both layers matched by their weights. *No permutation*: neurons averaged as they
  come. *Random permutations*: in an order drawn by lot. *Common start*: all clients begin with the same weights.
- *At equal epochs*: as many local epochs in all as FedMA, with those that it trains again after each layer.
- A fifth of each owner's engines is kept out and chooses the epoch of each local training. No training stops early.

`python -m studies paper-engines` trains what is missing, the smaller size first, and goes on where it was cut off."""


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
    at_equal
        Whether it has as many local epochs as FedMA has in all its rounds, not as many as in the paper.
    options
        Other options of the method.
    matcher
        What stands in the place of matching.
    """

    label: str
    method: str
    at_equal: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    matcher: Matcher | None = None

    @property
    def has_rounds(self) -> bool:
        return self.method not in ("local", "central")


LOCAL, CENTRAL = Course("Local", "local"), Course("Central", "central")
FEDAVG, FEDMA = Course("FedAvg", "fedavg"), Course("FedMA", "fedma")
COURSES = (
    FEDMA,
    Course("FedAvg, at equal epochs", "fedavg", at_equal=True),
    Course("FedMA, no permutation", "fedma", matcher=unpermuted),
    Course("Local, at equal epochs", "local", at_equal=True),
    Course("Central, at equal epochs", "central", at_equal=True),
    FEDAVG,
    LOCAL,
    CENTRAL,
    Course("FedMA, random permutations", "fedma", matcher=shuffled),
    Course("FedMA, common start", "fedma", options={"start": "common"}),
)
"""In the order of what they say."""
FIRST = 5
"""So many courses say what matching is worth, all at equal local epochs."""


@dataclass(frozen=True)
class Size:
    """How large networks are, and how long they train.

    Parameters
    ----------
    rounds, epochs
        Those of FedMA.
    fedavg
        Rounds and local epochs of FedAvg where it does not train as long as FedMA.
    again
        Local epochs that FedMA trains the layers above a matched one; as `epochs` by default.
    equal
        Local epochs a round of what trains as long as FedMA.
    stride
        Engines: every so-many-th window is trained on.
    """

    neurons: int
    rounds: int
    epochs: int
    seeds: int
    local: int
    fedavg: tuple[int, int]
    equal: int
    again: int | None = None
    stride: int = 0

    @property
    def name(self) -> str:
        return f"{self.neurons} neurons" + (f", every {self.stride}th window" if self.stride else "")


@dataclass(frozen=True)
class Table:
    """A table of the paper, repeated.

    Parameters
    ----------
    scenarios
        What is trained in each; the first has all controls.
    kept_out
        What is trained once more in the first scenario, to choose the round on cycles kept out.
    columns
        Errors that the page shows.
    """

    page: str
    preset: str
    overrides: tuple[str, ...]
    printed: PaperTable
    scenarios: Mapping[str, tuple[Course, ...]]
    kept_out: tuple[Course, ...]
    columns: tuple[str, ...]
    digits: int
    results: Path
    sizes: tuple[Size, ...]


BATTERY_TABLE = Table(
    BATTERY_PAGE,
    "battery-paper",
    GRID,
    paper().battery,
    {"all": COURSES, "B0006+B0018": (LOCAL, FEDAVG, FEDMA)},
    (LOCAL, CENTRAL, FEDAVG, FEDMA),
    BATTERIES,
    4,
    Path("docs/results/paper-batteries.json"),
    (
        Size(32, 5, 40, seeds=3, local=100, fedavg=(20, 2), equal=40),
        Size(128, 20, 120, seeds=3, local=100, fedavg=(20, 2), equal=120),
    ),
)
ENGINE_TABLE = Table(
    ENGINE_PAGE,
    "turbofan-paper",
    ("train.patience=1000",),
    paper().turbofan,
    {"heterogeneous": COURSES, "homogeneous": COURSES},
    (),
    ("raw", "capped"),
    2,
    Path("docs/results/paper-engines.json"),
    (
        Size(64, 5, 12, seeds=3, local=30, fedavg=(10, 3), again=6, equal=24, stride=8),
        Size(128, 5, 12, seeds=1, local=30, fedavg=(10, 3), again=6, equal=24, stride=4),
    ),
)


TABLES = (BATTERY_TABLE, ENGINE_TABLE)


@dataclass(frozen=True)
class Cell:
    """One training of one course."""

    scenario: str
    course: Course
    size: Size
    seed: int
    kept_out: bool = False

    @property
    def rounds(self) -> tuple[int, int]:
        """Rounds and local epochs a round."""
        size = self.size
        if self.course.method == "fedma":
            return size.rounds, size.epochs
        return (size.rounds, size.equal) if self.course.at_equal else size.fedavg

    @property
    def key(self) -> str:
        rounds, epochs = self.rounds
        lasting = f", {rounds} rounds of {epochs} epochs" if self.course.has_rounds else ""
        if self.course.at_equal and not self.course.has_rounds:
            lasting = f", {rounds * epochs} epochs"
        kept = ", kept out" if self.kept_out else ""
        return f"{self.scenario}: {self.course.label}, {self.size.name}{lasting}{kept}, seed {self.seed}"


def cells(table_: Table, size: Size) -> Iterator[Cell]:
    """All trainings of one size in the order of what they say: the first courses with every seed, then the others."""
    for part in (slice(FIRST), slice(FIRST, None)):
        for seed, (scenario, courses) in product(range(size.seeds), table_.scenarios.items()):
            yield from (Cell(scenario, course, size, seed) for course in courses[part])
    for seed in range(size.seeds):
        yield from (Cell(next(iter(table_.scenarios)), c, size, seed, kept_out=True) for c in table_.kept_out)


def write_table(table_: Table, data_dir: Path | None, neurons: int | None = None) -> Path:
    """Train what is missing, or of it what has so many neurons, and write the results and their page."""
    sizes = [size for size in table_.sizes if neurons in (None, size.neurons)]
    missing = (cell for size in sizes for cell in cells(table_, size))
    return measure_missing(table_.results, missing, lambda c: measure(table_, c, data_dir), lambda r: page(table_, r))


def measure(table_: Table, cell: Cell, data_dir: Path | None) -> dict[str, list[float]]:
    """Test errors after every round; `kept out` is the error on the cycles that choose the round."""
    size, course = cell.size, cell.course
    epochs = cell.rounds[0] * cell.rounds[1] if course.at_equal else size.local
    overrides = [*table_.overrides, f"model.widths=[{size.neurons}]", f"train.epochs={epochs}"]
    if size.stride:
        overrides += [f"model.input_width={size.neurons}", f"recipe.stride={size.stride}"]
    else:
        overrides.append(f"train.validation_fraction={KEPT_OUT if cell.kept_out else 0}")
    _, experiment, _ = config.load(table_.preset, tuple(overrides))
    scenario = scenarios(experiment, data_dir, Path())[cell.scenario]
    bench = Bench(experiment, scenario, cell.seed, RUNS, scope_of(scenario))
    tests = test_windows(bench, course)
    fleets = scenario.clients.values() if cell.kept_out else ()
    held = [hold_out(build_windows(bench.recipe, fleet), KEPT_OUT, 0, bench.recipe.task)[1] for fleet in fleets]
    errors: dict[str, list[float]] = {name: [] for name in tests}
    if held:
        errors["kept out"] = []
    for round_ in trained(bench, cell):
        models = {owner: network for owners, network in round_.models.items() for owner in owners}
        everybody = next(iter(round_.models.values()))
        for name, (owner, windows) in tests.items():
            errors[name].append(rounded(rmse(models.get(owner, everybody), windows, bench.recipe)))
        if held and len(round_.models) == 1:
            together = reduce(joined, [h for h in held if h is not None])
            errors["kept out"].append(rounded(rmse(everybody, together, bench.recipe)))
    return errors


def test_windows(bench: Bench, course: Course) -> dict[str, tuple[str, WindowSet]]:
    """By the name of the error: whose network is tested, and on what."""
    scenario = bench.scenario
    if scenario.tests.keys() == scenario.clients.keys():
        return {name: (name, build_windows(bench.recipe, fleet)) for name, fleet in scenario.tests.items()}
    by_labels = {"raw": bench.tests, "capped": replace(bench.tests, labels=bench.recipe.capped(bench.tests.labels))}
    if course.method != "local":
        return {name: ("", windows) for name, windows in by_labels.items()}
    owners = sorted(scenario.clients)
    return {f"{o}, {name}": (o, windows) for o in owners for name, windows in by_labels.items()}


def trained(bench: Bench, cell: Cell) -> Iterator[Round]:
    """The rounds of a course."""
    course, (rounds, epochs) = cell.course, cell.rounds
    options: dict[str, Any] = {"rounds": rounds, "epochs": epochs, **course.options}
    if course.method == "fedma":
        options["retrain_epochs"] = cell.size.again
    plan = bench.plan(**({course.method: options} if course.has_rounds else {}))
    cohort = bench.pooled() if course.method == "central" else bench.cohort()
    if course.matcher is not None:
        return fedma(cohort, plan, plan.federation.strategy_options("fedma", FedMAOptions), course.matcher)
    return strategies[course.method].run(cohort, plan)


Results = Mapping[str, Mapping[str, Sequence[float]]]


def page(table_: Table, results: Results) -> str:
    """Tables of every size at which FedMA was trained; what is missing of it is named."""
    parts, wanted = [table_.page], dict[str, None]()
    for size in table_.sizes:
        trainings = list(cells(table_, size))
        if any(cell.course == FEDMA and cell.key in results for cell in trainings):
            parts += _size(table_, results, size)
            wanted |= dict.fromkeys(cell.key for cell in trainings)
    if missing := [f"- {key}" for key in wanted if key not in results]:
        parts.append(folded(f"Not measured yet: {len(missing)} of {len(wanted)} trainings", "\n".join(missing)))
    return "\n\n".join(parts) + "\n"


def _size(table_: Table, results: Results, size: Size) -> list[str]:
    """The tables of one size."""
    printed = table_.printed
    parts = [
        f"## {size.name}, {size.rounds} rounds of {size.epochs} epochs",
        f"Up to {size.seeds} seed{'s' if size.seeds > 1 else ''}, one where no ± stands. Size in the paper: "
        f"{printed.neurons} neurons, "
        f"{printed.rounds} rounds of {printed.fedma_epochs} epochs.",
    ]
    picks = ("round 1", "last", "best on test")
    header = ["trained on", "method", *(f"{column}: {what}" for column in table_.columns for what in picks)]
    lines = [
        line
        for scenario, courses in table_.scenarios.items()
        for course in courses
        for line in _lines(table_, results, scenario, course, size)
        if set(line[2:]) != {NOTHING}
    ]
    parts.append(table(header, lines, 2))
    if table_.kept_out:
        chosen = [_chosen_line(table_, results, course, size) for course in table_.kept_out]
        parts += ["### Round chosen on cycles kept out", KEPT, table(["method", *table_.columns], chosen)]
    for scenario in table_.scenarios:
        if differences := _differences(table_, results, scenario, size):
            title = f"### Differences, {TRAINED_ON.get(scenario, scenario)}"
            parts += [title, PAIRED, table(["method", *table_.columns], differences)]
    return parts


def _sample(
    results: Results, cell: Cell, column: str, pick: Callable[[Sequence[float]], int], choose_by: str = ""
) -> Sample | None:
    """Errors of one column over seeds, after the round that `pick` names of the errors in `choose_by`."""
    values, chosen = {}, {}
    for seed in range(cell.size.seeds):
        entry = results.get(replace(cell, seed=seed).key, {})
        if column in entry:
            at = pick(entry.get(choose_by) or [0.0]) if choose_by else pick(entry[column])
            values[seed], chosen[seed] = entry[column][at], at % len(entry[column]) + 1
    return Sample(values, chosen) if values else None


def _best(errors: Sequence[float]) -> int:
    return int(np.argmin(errors))


def _lines(table_: Table, results: Results, scenario: str, course: Course, size: Size) -> list[list[str]]:
    """The line of a course, or one for each owner whose own network is tested on everything."""
    cell, one_round, first_column = Cell(scenario, course, size, 0), not course.has_rounds, table_.columns[0]
    entry = results.get(cell.key, {first_column: ()})
    owners = [name.removesuffix(first_column) for name in entry if name.endswith(first_column)] or [""]
    lines = []
    for owner in owners:
        line = [TRAINED_ON.get(scenario, scenario), ", ".join(filter(None, (course.label, owner.removesuffix(", "))))]
        for column in table_.columns:
            first, last, best = (
                _sample(results, cell, owner + column, pick) for pick in (lambda e: 0, lambda e: -1, _best)
            )
            below = "" if best is None else f"round {rounds(best)}"
            line += [
                NOTHING if one_round else sample(first, table_.digits),
                sample(last, table_.digits),
                NOTHING if one_round or best is None else stacked(sample(best, table_.digits), below),
            ]
        lines.append(line)
    return lines


def _chosen_line(table_: Table, results: Results, course: Course, size: Size) -> list[str]:
    cell = Cell(next(iter(table_.scenarios)), course, size, 0, kept_out=True)
    line = [course.label]
    for column in table_.columns:
        errors = _sample(results, cell, column, _best, "kept out")
        below = f"round {rounds(errors)}" if errors is not None and course.has_rounds else ""
        line.append(stacked(sample(errors, table_.digits), below))
    return line


def _differences(table_: Table, results: Results, scenario: str, size: Size) -> list[list[str]]:
    """Last rounds minus FedMA's, where there are both."""
    lines = []
    for course in table_.scenarios[scenario]:
        line = []
        for column in table_.columns:
            both = (_sample(results, Cell(scenario, c, size, 0), column, lambda errors: -1) for c in (course, FEDMA))
            line.append(difference(paired(*both), table_.digits))
        if course != FEDMA and set(line) != {NOTHING}:
            lines.append([course.label, *line])
    return lines
