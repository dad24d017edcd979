"""Few machines: from how many units an owner on federating pays, and where a simple model is enough.

Two owners have the same number of engines, drawn by lot. Each trains alone, or both put their networks side by side
under one head (concat). Ridge and boosting stand beside them, alone and with all engines in one place. NASA's test
engines judge, labels capped at 125 cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.evaluation import baselines
from fedprognos.experiment import config
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.features import build_windows
from fedprognos.files import read_json, write_text
from fedprognos.fleet import Fleet, catalog, pool
from fedprognos.networks import Network
from studies.cells import measure_missing, not_measured
from studies.markdown import NOTHING, sample, share_of, table
from studies.own_tables import Case, boosted, fleet_table
from studies.plotting import BLUE, GREEN, ORANGE, legend, named, panels, svg
from studies.samples import Sample, over_seeds, paired
from studies.study.bench import Bench, scope_of
from studies.study.parts import exact_only

PRESETS = {"FD001": "turbofan-fd001-literature", "FD004": "turbofan-literature"}
UNITS = (2, 5, 10, 20, 40)
OWNERS = 2
SEEDS = 4
RESULTS = Path("docs/results/few-machines.json")
PICTURE = Path("docs/pictures/few-machines.svg")
RUNS = Path("build/few-machines")
TOGETHER = "networks together"
METHODS: Mapping[str, tuple[str, Literal["-", "--"]]] = {
    "network alone": (BLUE, "--"),
    TOGETHER: (BLUE, "-"),
    "boosting alone": (ORANGE, "--"),
    "boosting, one place": (ORANGE, "-"),
    "ridge alone": (GREEN, "--"),
    "ridge, one place": (GREEN, "-"),
}
"""Colour and line of each."""
PAGE = """\
# Few machines

From how many engines an owner on does federating pay, and where is a simple model enough? {owners} owners have equally
many engines, drawn by lot, a draw a seed. *Alone*: the mean error of the owners' own models. *Together*: their networks
side by side under one head, solved from sums; no row leaves its owner. *One place*: all engines of all owners pooled.
Ridge is the baseline of every run. Boosting sees the latest row, rolling means and deviations of 20 rows, and the age.
Errors are RMSE in cycles on all test engines, labels capped at 125; ± is the standard deviation over seeds.

`python -m studies few-machines` measures what is missing and makes this page."""
GAINS = """\
## Where it pays

By how much the error of the networks together differs from that of others, in percent of theirs, draw by draw; in
brackets the 95 % interval. An interval that holds zero shows no difference. Boosting and ridge *alone* are what an
owner can do by itself with a simple model."""
RULE = """\
The fewest engines an owner from which on, at every number measured, the networks together are clearly better:"""
RIVALS = ("network alone", "boosting alone", "ridge alone", "boosting, one place", "ridge, one place")


@dataclass(frozen=True)
class Cell:
    """One draw of engines."""

    subset: str
    units: int
    seed: int

    @property
    def key(self) -> str:
        return f"{self.subset}, {self.units} units an owner, seed {self.seed}"


def cells() -> Iterator[Cell]:
    """All draws, one seed of each first."""
    for seed in range(SEEDS):
        yield from (Cell(subset, units, seed) for units in UNITS for subset in PRESETS)


def write_few_machines(data_dir: Path | None) -> Path:
    """Measure what is missing, and write the results, their page and their picture."""
    written = measure_missing(RESULTS, cells(), lambda cell: measure(cell, data_dir), page)
    write_text(PICTURE, picture(read_json(RESULTS)))
    return written


def measure(cell: Cell, data_dir: Path | None) -> dict[str, float]:
    """Errors of every method."""
    _, experiment, _ = config.load(PRESETS[cell.subset])
    drawn = owners_of(next(iter(scenarios(experiment, data_dir, Path()).values())), cell)
    bench = Bench(experiment, drawn, cell.seed, RUNS, scope_of(drawn))
    truth = bench.recipe.capped(bench.tests.labels)

    def error(predictions: FloatArray) -> float:
        return float(np.sqrt(np.mean((bench.recipe.capped(predictions) - truth) ** 2)))

    bodies = bench.bodies()
    plan = exact_only(bench.plan())
    alone = [error(bench.predictions(bench.with_head(bench.cohort([n]), bodies[n], plan))) for n in bodies]
    together = bench.with_head(bench.cohort(), Network.concat([bodies[n] for n in sorted(bodies)]), plan)
    fleets = [drawn.clients[name] for name in sorted(drawn.clients)]
    ridge = [_ridge(bench, fleet) for fleet in (*fleets, pool(fleets))]
    boosting = [_boosting(cell, data_dir, [unit.id for unit in fleet]) for fleet in (*fleets, pool(fleets))]
    errors = {
        "network alone": float(np.mean(alone)),
        TOGETHER: error(bench.predictions(together)),
        "boosting alone": float(np.mean([error(p) for p in boosting[:-1]])),
        "boosting, one place": error(boosting[-1]),
        "ridge alone": float(np.mean([error(p) for p in ridge[:-1]])),
        "ridge, one place": error(ridge[-1]),
    }
    return {name: round(value, 3) for name, value in errors.items()}


def owners_of(scenario: Scenario, cell: Cell) -> Scenario:
    """Engines drawn by lot for two owners; larger draws hold the smaller ones of the same seed."""
    fleet = pool([scenario.clients[name] for name in sorted(scenario.clients)])
    order = np.random.default_rng(cell.seed).permutation(len(fleet))
    dealt = {
        f"owner-{k + 1}": fleet.select([fleet.units[i] for i in order[k::OWNERS][: cell.units]]) for k in range(OWNERS)
    }
    return Scenario("drawn", dealt, scenario.tests)


def _ridge(bench: Bench, fleet: Fleet) -> FloatArray:
    predictions = baselines["ridge"].predict(build_windows(bench.recipe, fleet), bench.tests, bench.recipe)
    if predictions is None:
        raise DataError("ridge regression does not apply to these engines")
    return predictions


def _boosting(cell: Cell, data_dir: Path | None, units: Sequence[str]) -> FloatArray:
    """Remaining life of every test engine, learnt from these units."""
    source, case = catalog.find("cmapss", data_dir), Case(cell.subset, "lot", OWNERS)
    engines = fleet_table(source / f"train_{cell.subset}.txt", case)
    numbers = {f"M{int(unit.rpartition('-')[2]):03d}" for unit in units}
    tests = fleet_table(source / f"test_{cell.subset}.txt", case)
    return boosted(engines[engines["maschine"].isin(numbers)].reset_index(drop=True), tests)


def curve(results: Mapping[str, Mapping[str, float]], subset: str, method: str) -> dict[int, Sample]:
    """The errors of a method over seeds, by units an owner."""
    samples = {units: over_seeds(results, Cell(subset, units, 0), SEEDS, method) for units in UNITS}
    return {units: errors for units, errors in samples.items() if errors is not None}


def picture(results: Mapping[str, Mapping[str, float]]) -> str:
    """Learning curves, a panel a sub-set."""
    with panels(len(PRESETS), len(PRESETS), 2.8) as (figure, axes):
        for ax, subset in zip(axes, PRESETS, strict=True):
            for method, (colour, style) in METHODS.items():
                samples = curve(results, subset, method)
                means = [entry.mean for entry in samples.values()]
                ax.plot(list(samples), means, color=colour, linestyle=style, marker="o", markersize=3)
            ax.set_xscale("log")
            ax.set_xticks(UNITS, [str(units) for units in UNITS])
            ax.minorticks_off()
            named(ax, subset, "engines an owner", "RMSE in cycles, capped")
        names: list[tuple[str, str, Literal["-", "--", "o"]]] = [(n, c, s) for n, (c, s) in METHODS.items()]
        legend(figure, names, columns=3)
        return svg(figure, "Error by engines an owner")


def page(results: Mapping[str, Mapping[str, float]]) -> str:
    """The curves as tables; draws that were not measured are named."""
    parts = [PAGE.format(owners=OWNERS), f"![Error by engines an owner](../pictures/{PICTURE.name})"]
    for subset in PRESETS:
        curves = {method: curve(results, subset, method) for method in METHODS}
        rows = [[method, *(sample(curves[method].get(units), 1) for units in UNITS)] for method in METHODS]
        parts += [f"## {subset}", table(["method", *(f"{units} engines" for units in UNITS)], rows)]
    gains, rule = [], []
    for rival in RIVALS:
        pairs = {s: [curve(results, s, method) for method in (TOGETHER, rival)] for s in PRESETS}
        shares = {s: [share_of(first.get(n), second.get(n)) for n in UNITS] for s, (first, second) in pairs.items()}
        gains += [[f"{subset}, {rival}", *line] for subset, line in shares.items()]
        rule.append([rival, *(clear_from(*pair) for pair in pairs.values())])
    header = [f"{units} engines" for units in UNITS]
    parts += [GAINS, table(["against", *header], gains), RULE, table(["better than", *PRESETS], rule)]
    return "\n\n".join([*parts, *not_measured((cell.key for cell in cells()), results)]) + "\n"


def clear_from(ours: Mapping[int, Sample], theirs: Mapping[int, Sample]) -> str:
    """The fewest units from which on the interval of the difference lies below zero."""
    least = NOTHING
    for units in reversed(UNITS):
        gap = paired(ours.get(units), theirs.get(units))
        if gap is None or gap.high is None or gap.high >= 0:
            break
        least = str(units)
    return least
