"""Doing the study: task by task, the most important ones first; what is done is kept and not done again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.experiment import config
from fedprognos.experiment.scenario import Scenario, scenarios
from fedprognos.files import read_json, write_json
from fedprognos.fleet.partition import partition
from studies.cells import measure_missing
from studies.study import parts
from studies.study.bench import Bench, scope_of
from studies.study.parts import Task

PRESET = "study-clients"
SEEDS = 3
FOLDER = Path("build/study")
MEASURED, TESTS = "measured.json", "tests.json"
KINDS = (200, 350)
"""Edges of lifespan that sort test engines by the kind of client they belong to."""
CHANGES: Mapping[str, tuple[str, ...]] = {
    "as it is": (),
    "no warp": ("train.warp=0",),
    "no noise": ("train.noise=0",),
    "windows of 50 rows": ("recipe.history=50", "recipe.stride=4", "train.warp=0", "train.noise=0"),
    "scaled over all conditions": ("recipe.conditions={}",),
}
"""Part 7: the recipe with one thing left out."""


def tasks(seeds: int = SEEDS) -> Iterator[Task]:
    """All tasks, in the order of importance."""
    every, first = range(seeds), "lifespan-3"
    yield from (_exchange(first, seed) for seed in every)
    yield from (Task("central", first, parts.central, seed) for seed in every)
    yield Task("reservoir", first, parts.reservoir, 0)
    for seed in every:
        yield Task("rounds", first, parts.rounds, seed)
        yield from (Task("recipe", first, parts.recipe, seed, CHANGES[change], change) for change in CHANGES)
        yield Task("newcomers", first, parts.newcomers, seed)
        yield _exchange("random-10", seed)
        yield Task("beside", first, parts.beside, seed)
        yield Task("beside central", first, parts.beside_central, seed)
        yield _exchange("random-3", seed)
    for scenario in (first, "random-3"):
        yield from (Task("different widths", scenario, parts.different_widths, seed) for seed in every)
    for scenario in ("random-30", "lifespan-10"):
        yield from (_exchange(scenario, seed) for seed in every)
    for seed in every:
        yield from (_exchange(scenario, seed) for scenario in ("random-100", "each-alone", "lifespan-30"))


def _exchange(scenario: str, seed: int) -> Task:
    return Task("one exchange", scenario, parts.one_exchange, seed)


def measure(
    data_dir: Path | None = None,
    folder: Path = FOLDER,
    *,
    wanted: Iterable[Task] | None = None,
    tell: Callable[[str], None] = print,
) -> Path:
    """Do what is not done yet and add it to the file of measurements."""
    dealt: dict[tuple[str, int], Scenario] = {}

    def models(task: Task) -> list[dict[str, Any]]:
        _, experiment, _ = config.load(PRESET, task.overrides)
        scenario = _scenario(experiment, task, data_dir, dealt)
        bench = Bench(experiment, scenario, task.seed, folder, scope_of(scenario))
        if not (folder / TESTS).is_file():
            write_json(folder / TESTS, _tests(bench))
        facts = {"part": task.part, "scenario": task.scenario, "seed": task.seed, "change": task.change}
        return [{"task": task.key, **facts, **model.entry()} for model in task.run(bench)]

    measure_missing(folder / MEASURED, wanted or tasks(), models, tell=tell)
    return folder / MEASURED


def read_measured(path: Path) -> list[dict[str, Any]]:
    """All measurements so far."""
    return [entry for entries in read_json(path).values() for entry in entries] if path.is_file() else []


def _scenario(
    experiment: config.Experiment, task: Task, data_dir: Path | None, dealt: dict[tuple[str, int], Scenario]
) -> Scenario:
    """The scenario as this seed deals it; the data is read once for all of them."""
    if not dealt:
        rules = {
            f"{name}~{seed}": rule.model_copy(update={"seed": seed})
            for name, rule in experiment.partition.items()
            for seed in range(SEEDS)
        }
        entries = scenarios(experiment.model_copy(update={"partition": rules}), data_dir, Path())
        for key, scenario in entries.items():
            name, _, seed = key.rpartition("~")
            dealt[name, int(seed)] = Scenario(name, scenario.clients, scenario.tests)
    return dealt[task.scenario, task.seed]


def _tests(bench: Bench) -> dict[str, Any]:
    """Truth and kind of every test engine."""
    fleet = next(iter(bench.scenario.tests.values()))
    kinds = {unit.id: name for name, part in partition(fleet, "lifespan", edges=KINDS).items() for unit in part}
    ids = np.array(bench.tests.unit_ids, dtype=object)[bench.tests.unit]
    return {
        "truth": bench.tests.labels.tolist(),
        "kind": [kinds[unit] for unit in ids],
        "cap": bench.recipe.cap,
        "measure": bench.recipe.target_measure,
    }
