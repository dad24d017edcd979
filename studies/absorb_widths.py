"""How wide absorption should leave a network: chosen on engines kept out of training, judged on others.

Of each client's engines a fifth judges and takes part in nothing. Of the rest a fifth is kept out of training and
chooses the width, as `federation.absorb.width` does with several widths. NASA's test engines are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedprognos.experiment import config
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.features import build_windows
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.strategies.absorb import AS_GOOD, AbsorbOptions, errors_of
from fedprognos.fleet import Fleet, pool
from fedprognos.networks import Network, predict
from studies.cells import measure_missing, not_measured
from studies.markdown import sample, share_of, table
from studies.samples import Sample, over_seeds
from studies.study.bench import Bench, scope_of
from studies.study.measure import PRESET
from studies.study.parts import exact_only, side_by_side

SUBSETS: Mapping[str, tuple[str, ...]] = {
    "FD001": ("data.subset=FD001", "partition.lifespan-3.edges=[190, 255]"),
    "FD004": (),
}
SCENARIOS = (
    ("FD004", "lifespan-3"),
    ("FD001", "lifespan-3"),
    ("FD004", "random-10"),
    ("FD001", "random-10"),
    ("FD004", "lifespan-30"),
    ("FD004", "random-3"),
    ("FD004", "lifespan-10"),
)
SEEDS = 3
WIDTHS = (1.0, 1.5, 2.5, 4.0)
"""In multiples of a client's."""
JUDGES = CHOOSES = 0.2
CONCAT, ALL = "concat", "all"
RESULTS = Path("docs/results/absorb-widths.json")
RUNS = Path("build/absorb-widths")
PAGE = """\
# How wide absorption leaves a network

Clients of C-MAPSS train a GRU of 64 neurons each (preset `study-clients`, 300 steps), which is absorbed to several
widths in multiples of a client's (three values of `alpha` each). A fifth of each client's engines judges: errors are
RMSE in cycles on all rows of these, labels capped at 130, up to {seeds} seeds, one where no ± stands. Another
fifth is kept out of training and chooses the width. NASA's test engines take no part. ± is the standard deviation
over seeds.

- *Concat*: every neuron. *All*: every neuron that groups leave; the same as concat with 3 and 10 clients.
- *Chosen*: what `federation.absorb.width` does by default, with the widths {tried}: the narrowest whose error on the
  engines kept out is at most {limit} above that of *all*, or *all* if none is.

Differences are to concat, seed by seed, in percent; in brackets the 95 % interval.

`python -m studies absorb-widths` measures what is missing and makes this page."""


@dataclass(frozen=True)
class Cell:
    """One deal of engines and one draw of first weights."""

    subset: str
    scenario: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.subset}, {self.scenario}, seed {self.seed}"


def cells() -> Iterator[Cell]:
    """One seed of each scenario first."""
    for seed in range(SEEDS):
        yield from (Cell(*scenario, seed) for scenario in SCENARIOS)


def write_absorb_widths(data_dir: Path | None) -> Path:
    """Measure what is missing, and write the results and their page."""
    return measure_missing(RESULTS, cells(), lambda cell: measure(cell, data_dir), page)


def measure(cell: Cell, data_dir: Path | None) -> dict[str, dict[str, float]]:
    """By width: the error on the engines that choose, that on those that judge, and the number of neurons."""
    _, experiment, _ = config.load(PRESET, (*SUBSETS[cell.subset], f"train.validation_fraction={CHOOSES}"))
    rule = experiment.partition[cell.scenario].model_copy(update={"seed": cell.seed})
    dealt = scenarios(experiment.model_copy(update={"partition": {cell.scenario: rule}}), data_dir, Path())
    scenario, judges = without_judges(dealt[cell.scenario], cell.seed)
    bench = Bench(experiment, scenario, cell.seed, RUNS, scope_of(scenario))
    plan, cohort, bodies = exact_only(bench.plan()), bench.cohort(), bench.bodies()
    windows = build_windows(bench.recipe, judges)
    truth = bench.recipe.capped(windows.labels)

    def measured(network: Network) -> tuple[float, dict[str, float]]:
        training, held = errors_of(plan, *evaluate(cohort, plan, cohort.clients, network).head_statistics)
        predicted = predict(bench.with_head(cohort, network, plan), windows, bench.recipe)
        error = float(np.sqrt(np.mean((predicted - truth) ** 2)))
        kept_out = float(np.sqrt(held)) * bench.recipe.label_std
        return training, {"kept out": round(kept_out, 4), "judged": round(error, 4), "neurons": network.spec.hidden}

    whole = side_by_side(cohort, plan, bodies)
    errors = {
        CONCAT: measured(Network.concat([bodies[name] for name in sorted(bodies)]))[1],
        ALL: measured(whole.network)[1],
    }
    for multiple in WIDTHS:
        width = int(multiple * max(body.spec.hidden for body in bodies.values()))
        if width < whole.network.spec.hidden:
            tried = [measured(replace(whole, alpha=alpha).at(width)) for alpha in AbsorbOptions().alpha]
            errors[f"{multiple:g}"] = min(tried, key=lambda entry: entry[0])[1]
    return errors


def without_judges(scenario: Scenario, seed: int) -> tuple[Scenario, Fleet]:
    """The clients without those of their engines that judge, drawn by lot, and all these engines."""
    rng, clients, judges = np.random.default_rng(seed), {}, []
    for name, fleet in sorted(scenario.clients.items()):
        order = rng.permutation(len(fleet))
        count = max(round(JUDGES * len(fleet)), 1)
        judges.append(fleet.select([fleet.units[i] for i in order[:count]]))
        clients[name] = fleet.select([fleet.units[i] for i in order[count:]])
    return replace(scenario, clients=clients), pool(judges)


def chosen(errors: Mapping[str, Mapping[str, float]]) -> str:
    """The width that the errors on kept-out engines choose among those tried by default."""
    for multiple in AbsorbOptions().width:
        entry = errors.get(f"{multiple:g}")
        if entry is not None and entry["kept out"] <= AS_GOOD * errors[ALL]["kept out"]:
            return f"{multiple:g}"
    return ALL


def page(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A line a scenario and width; what is missing is named."""
    limit = f"{100 * (AS_GOOD - 1):g} %"
    parts = [PAGE.format(seeds=SEEDS, limit=limit, tried=", ".join(f"{w:g}" for w in AbsorbOptions().width))]
    for scenario in SCENARIOS:
        cell = Cell(*scenario, 0)
        concat = over_seeds(results, cell, SEEDS, CONCAT, "judged")
        if concat is None:
            continue
        rows = []
        for width in (*(f"{multiple:g}" for multiple in WIDTHS), ALL, CONCAT):
            errors = over_seeds(results, cell, SEEDS, width, "judged")
            neurons = over_seeds(results, cell, SEEDS, width, "neurons")
            if errors is not None and neurons is not None:
                against = "" if width == CONCAT else share_of(errors, concat, 1)
                rows.append([width, f"{neurons.mean:g}", sample(errors, 2), against])
        picks = {s: chosen(results[replace(cell, seed=s).key]) for s in concat.by_seed}
        entries = {s: results[replace(cell, seed=s).key][pick] for s, pick in picks.items()}
        errors = Sample({s: entry["judged"] for s, entry in entries.items()}, {})
        widths = ", ".join(picks[s] for s in sorted(picks))
        mean = f"{np.mean([entry['neurons'] for entry in entries.values()]):.0f}"
        rows.append([f"**chosen**: {widths}", mean, sample(errors, 2), share_of(errors, concat, 1)])
        parts += [f"## {cell.subset}, {cell.scenario}", table(["width", "neurons", "error", "against concat"], rows)]
    return "\n\n".join([*parts, *not_measured((cell.key for cell in cells()), results)]) + "\n"
