"""Why the re-run of the paper's batteries trains badly: one factor at a time, each a row of a table.

Every row changes one thing in `battery-paper` and trains one network on all three batteries (central) and one on each
battery alone (local). Cycles, batteries and the test are the paper's, but where a row says otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError
from fedprognos.experiment import config
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import Recipe, WindowSet, build_windows
from fedprognos.features.windows import hold_out, joined
from fedprognos.fleet import Unit
from fedprognos.networks import Network, fit, predict
from studies.cells import measure_missing
from studies.markdown import NOTHING, sample, table
from studies.paper import paper
from studies.samples import over_seeds
from studies.study.bench import Bench, scope_of

PRESET = "battery-paper"
SEEDS = 3
NEURONS, CONFIRMED = 32, 128
RESULTS = Path("docs/results/paper-factors.json")
RUNS = Path("build/paper-factors")
BATTERIES = ("B0006", "B0007", "B0018")
SLOW_IN_S = 15.0
SAMPLED = "sampling"
"""Key of the facts about samples in the file of results."""
Stop = Literal["last epoch", "latest cycles", "random cycles", "test"]
GRID = ("recipe.cycle=grid", "recipe.grid_end_in_s=2394", "recipe.grid_points=171")
PAGE = """\
# Why the re-run of the batteries fails

`battery-paper` with one thing changed a row: {neurons} neurons where nothing else is said, {seeds} seeds, errors in Ah
on the last 30 % of each battery's cycles, as in the paper. *Central*: one network for all three batteries. *Local*:
each battery alone. *Train*: the error of central training on its own training cycles. ± is the standard deviation
over seeds. `python -m studies paper-factors` measures what is missing and makes this page."""
SAMPLING = """\
## How the cycles were sampled

Cycles with more than {slow:g} s between samples, and the median time between samples. The first 171 samples of such a
cycle cover twice the time of those of another one."""


@dataclass(frozen=True)
class Factor:
    """One thing that differs from the preset.

    Parameters
    ----------
    stop
        What decides which epoch's network is kept.
    own_scaling
        Sensors are scaled battery by battery, not by the moments of all.
    raw_labels
        The network learns Ah, not standardised capacity; the head's bias begins at 0 or at the mean.
    random_test
        The test is a random 30 % of the cycles instead of the last 30 %.
    slow_cycles
        Whether cycles with more than `SLOW_IN_S` between samples are trained on.
    """

    name: str
    level: str
    overrides: tuple[str, ...] = ()
    stop: Stop = "last epoch"
    own_scaling: bool = False
    raw_labels: Literal["", "from zero", "from the mean"] = ""
    random_test: bool = False
    slow_cycles: bool = True
    neurons: int = NEURONS

    @property
    def key(self) -> str:
        return f"{self.name}: {self.level}, {self.neurons} neurons"


AS_IT_IS = Factor("as it is", "index, batch 16, 100 epochs, rate 0.001")
SINGLE = (
    AS_IT_IS,
    Factor("samples", "time grid, first 2394 s", GRID),
    Factor("samples", "time grid, first 1530 s: 171 samples of 9 s", (*GRID, "recipe.grid_end_in_s=1530")),
    Factor("samples", "index, trained on cycles sampled every 15 s or faster", slow_cycles=False),
    Factor("batch size", "1", ("train.batch_size=1",)),
    Factor("batch size", "4", ("train.batch_size=4",)),
    Factor("batch size", "64", ("train.batch_size=64",)),
    Factor("batch size", "all cycles", ("train.batch_size=512",)),
    Factor("epochs", "10", ("train.epochs=10",)),
    Factor("epochs", "30", ("train.epochs=30",)),
    Factor("epochs", "300", ("train.epochs=300",)),
    Factor("learning rate", "0.0001", ("train.learning_rate=0.0001",)),
    Factor("learning rate", "0.0005", ("train.learning_rate=0.0005",)),
    Factor("learning rate", "0.005", ("train.learning_rate=0.005",)),
    Factor("scaling", "each battery by its own moments", own_scaling=True),
    Factor("early stopping", "on the latest fifth of training cycles", stop="latest cycles"),
    Factor("early stopping", "on a random fifth of training cycles", stop="random cycles"),
    Factor("early stopping", "on the test itself", stop="test"),
    Factor("output", "Ah, bias from zero", raw_labels="from zero"),
    Factor("output", "Ah, bias from the mean", raw_labels="from the mean"),
    Factor("first weights", "forget bias 1", ("train.forget_bias=1",)),
    Factor("optimizer", "RMSprop", ("train.optimizer=rmsprop",)),
    Factor("gradient norm", "unlimited", ("train.clip=1000000",)),
    Factor("weight decay", "0.1", ("train.weight_decay=0.1",)),
    Factor("test", "a random 30 % of the cycles", random_test=True),
)
ON_GRID = (
    Factor("time grid and batch size", "4", (*GRID, "train.batch_size=4")),
    Factor("time grid and epochs", "300", (*GRID, "train.epochs=300")),
    Factor("time grid and early stopping", "on the latest fifth of training cycles", GRID, stop="latest cycles"),
    Factor("time grid and early stopping", "on the test itself", GRID, stop="test"),
    Factor("time grid and scaling", "each battery by its own moments", GRID, own_scaling=True),
)
AT_FULL_WIDTH = tuple(replace(factor, neurons=CONFIRMED) for factor in SINGLE[:4])
FACTORS = (*SINGLE, *ON_GRID, *AT_FULL_WIDTH)


@dataclass(frozen=True, eq=False)
class BatteryWindows:
    """Windows of one battery: to train on, to stop on where something is, and of the test."""

    train: WindowSet
    test: WindowSet
    held: WindowSet | None = None


@dataclass(frozen=True)
class Cell:
    """One training of one factor, with one seed; without a factor: how the cycles were sampled."""

    factor: Factor | None
    seed: int = 0

    @property
    def key(self) -> str:
        return SAMPLED if self.factor is None else f"{self.factor.key}, seed {self.seed}"


def write_factors(data_dir: Path | None) -> Path:
    """Measure what is missing, and write the results and their page after each."""
    cells = [Cell(None), *(Cell(factor, seed) for factor in FACTORS for seed in range(SEEDS))]
    return measure_missing(
        RESULTS,
        cells,
        lambda c: sampling(data_dir) if c.factor is None else measure(c.factor, c.seed, data_dir),
        page,
    )


def measure(factor: Factor, seed: int, data_dir: Path | None) -> dict[str, Any]:
    """Errors of central and of local training with one seed."""
    overrides = (*factor.overrides, f"model.widths=[{factor.neurons}]")
    _, experiment, _ = config.load(PRESET, overrides)
    scenario = scenarios(experiment, data_dir, Path())["all"]
    bench = Bench(experiment, scenario, seed, RUNS, scope_of(scenario))
    recipe = bench.recipe
    if factor.raw_labels:
        recipe = recipe.model_copy(update={"label_mean": 0.0, "label_std": 1.0})
    batteries = {name: battery_windows(factor, bench, recipe, name) for name in BATTERIES}
    central, train_error, epoch = trained(factor, bench, recipe, list(batteries.values()))
    local = {name: trained(factor, bench, recipe, [batteries[name]])[0] for name in BATTERIES}
    return {
        "train": rounded(train_error),
        "epoch": epoch,
        "central": {n: rounded(rmse(central, batteries[n].test, recipe)) for n in BATTERIES},
        "local": {n: rounded(rmse(local[n], batteries[n].test, recipe)) for n in BATTERIES},
    }


def battery_windows(factor: Factor, bench: Bench, recipe: Recipe, name: str) -> BatteryWindows:
    """Cycles of one battery as windows."""
    if factor.own_scaling:
        alone = bench.among([name]).recipe
        recipe = recipe.model_copy(update={"mean": alone.mean, "std": alone.std})
    train = build_windows(recipe, bench.scenario.clients[name])
    test = build_windows(recipe, bench.scenario.tests[name])
    rng = np.random.default_rng(bench.seed)
    if not factor.slow_cycles:
        (unit,) = bench.scenario.clients[name]
        train = train.select(intervals_in_s(unit) <= SLOW_IN_S)
    if factor.random_test:
        train, test = dealt(replace(joined(train, test), unit_ids=(name, name)), len(test), rng)
    if factor.stop == "latest cycles":
        train, held = hold_out(train, 0.2, bench.seed, recipe.task)
        return BatteryWindows(train, test, held)
    if factor.stop == "random cycles":
        train, held = dealt(train, round(0.2 * len(train)), rng)
        return BatteryWindows(train, test, held)
    return BatteryWindows(train, test, test if factor.stop == "test" else None)


def intervals_in_s(unit: Unit) -> FloatArray:
    """The median time between the samples of each cycle."""
    if unit.cycles is None:
        raise DataError("not a cyclic unit", where=f"unit {unit.id}")
    return np.array([np.median(np.diff(unit.time[a:b])) for a, b in itertools.pairwise(unit.cycles)])


def sampling(data_dir: Path | None) -> dict[str, dict[str, dict[str, float]]]:
    """How each battery's cycles were sampled, in training and test."""
    scenario = scenarios(config.load(PRESET)[1], data_dir, Path())["all"]
    facts: dict[str, dict[str, dict[str, float]]] = {}
    for name in BATTERIES:
        for part, fleets in (("train", scenario.clients), ("test", scenario.tests)):
            (unit,) = fleets[name]
            intervals = intervals_in_s(unit)
            slow, median = int((intervals > SLOW_IN_S).sum()), round(float(np.median(intervals)), 1)
            facts.setdefault(name, {})[part] = {"cycles": len(intervals), "slow": slow, "median_in_s": median}
    return facts


def dealt(windows: WindowSet, count: int, rng: np.random.Generator) -> tuple[WindowSet, WindowSet]:
    """All but a random `count` of the windows, and those."""
    order = rng.permutation(len(windows))
    return windows.select(np.sort(order[count:])), windows.select(np.sort(order[:count]))


def trained(
    factor: Factor, bench: Bench, recipe: Recipe, batteries: list[BatteryWindows]
) -> tuple[Network, float, int]:
    """A network trained on these batteries together, its error on them, and the epoch it is of."""
    train = reduce(joined, [b.train for b in batteries])
    held = [b.held for b in batteries if b.held is not None]
    plan = bench.plan()
    start = plan.common_start()
    if factor.raw_labels == "from the mean":
        start = start.with_layer(start.anatomy.layers[-1], {"head.bias": np.full(1, train.labels.mean(), np.float32)})
    validation = reduce(joined, held) if held else None
    result = fit(start, train, validation, recipe, plan.train.training(), seed=bench.seed, device="cpu")
    return result.network, rmse(result.network, train, recipe), result.best_epoch


def rmse(network: Network, windows: WindowSet, recipe: Recipe) -> float:
    """Root of the mean squared error, in Ah."""
    errors: FloatArray = predict(network, windows, recipe) - windows.labels
    return float(np.sqrt(np.mean(errors**2)))


def rounded(value: float) -> float:
    """Five decimals: hundredths of a mAh."""
    return round(value, 5)


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The table; a row that was not measured says so."""
    header = ["factor", "level", "train", *(f"central {b}" for b in BATTERIES), *(f"local {b}" for b in BATTERIES)]
    printed = {(r.test, r.method): r.rmse for r in paper().battery.rows}
    lines = [
        ["paper", "as printed", NOTHING, *(f"{printed[b, m]:.4f}" for m in ("central", "local") for b in BATTERIES)]
    ]
    for factor in FACTORS:
        cell = Cell(factor)
        name = factor.name if factor.neurons == NEURONS else f"{factor.name}, {factor.neurons} neurons"
        train = over_seeds(results, cell, SEEDS, "train")
        tested = [over_seeds(results, cell, SEEDS, method, b) for method in ("central", "local") for b in BATTERIES]
        missing = SEEDS - (0 if train is None else train.seeds)
        level = factor.level + (f" ({missing} seeds missing)" if missing else "")
        lines.append([name, level, *(sample(errors, 4) for errors in (train, *tested))])
    parts = [PAGE.format(neurons=NEURONS, seeds=SEEDS), table(header, lines, 2)]
    if SAMPLED in results:
        rows = [
            [name, part, f"{facts['slow']} of {facts['cycles']}", f"{facts['median_in_s']:.1f} s"]
            for name, by_part in results[SAMPLED].items()
            for part, facts in by_part.items()
        ]
        parts += [SAMPLING.format(slow=SLOW_IN_S), table(["battery", "cycles of", "slow", "median"], rows, 2)]
    return "\n\n".join(parts) + "\n"
