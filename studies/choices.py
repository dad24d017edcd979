"""What the tuned engine experiment was chosen from: one change at a time, judged on training engines kept out.

Every change is trained and judged as the preset is, by the same code as `fedprognos tune`: a fifth of each client's
engines is kept out of training, differently for each seed, and the error on it counts, labels capped. Test files are
not opened. Ridge strengths cost nothing more, so all are tried for every change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedprognos.errors import FederationError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import data_digest
from fedprognos.experiment.scenario import training_scenario
from fedprognos.experiment.tuning import FRACTION, TrialRunner, judged
from fedprognos.experiment.worker_pool import cores
from fedprognos.federation.exchanges.evaluate import evaluate
from fedprognos.federation.reply_journal import ReplyJournal
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.networks.head import mean_squared_error, solve_head
from fedprognos.networks.torch_threads import one_torch_thread
from studies.places import CHOICES, Places

PRESET = "turbofan-tuned"
SEEDS = 2
STRENGTHS = tuple(10.0 ** (k / 2) for k in range(-8, 1))
METHODS = ("concat", "central", "fedavg", "fedprox", "fedma")
AS_IT_IS = "as it is"
ONE = ("concat", "central")
CHANGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    AS_IT_IS: (METHODS, ()),
    "LSTM": (ONE, ("model.cell='lstm'",)),
    "LSTM, learning rate 0.001": (ONE, ("model.cell='lstm'", "train.learning_rate=0.001")),
    "learning rate 0.001": ((*ONE, "fedavg"), ("train.learning_rate=0.001",)),
    "learning rate 0.004": ((*ONE, "fedavg"), ("train.learning_rate=0.004",)),
    "batches of 64": (ONE, ("train.batch_size=64",)),
    "12 epochs": (ONE, ("train.epochs=12",)),
    "36 epochs": (ONE, ("train.epochs=36",)),
    "32 neurons": (ONE, ("model.widths=[32]",)),
    "128 neurons": (ONE, ("model.widths=[128]",)),
    "two layers of 64": (ONE, ("model.widths=[64, 64]",)),
    "dropout 0.2": (ONE, ("train.dropout=0.2",)),
    "weight decay 0.1": (ONE, ("train.weight_decay=0.1",)),
    "operating condition as input": (ONE, ("recipe.condition_inputs=true",)),
    "8 rounds of 3 epochs": (("fedavg",), ("federation.fedavg.rounds=8", "federation.fedavg.epochs=3")),
    "2 rounds of 12 epochs": (("fedavg",), ("federation.fedavg.rounds=2", "federation.fedavg.epochs=12")),
    "mu 0.1": (("fedprox",), ("federation.fedprox.mu=0.1",)),
    "mu 0.01": (("fedprox",), ("federation.fedprox.mu=0.01",)),
    "noise 0.5": (("fedma",), ("federation.fedma.noise=0.5",)),
    "at most twice a client's width": (("fedma",), ("federation.fedma.width_limit=2.0",)),
    "at most 1.5 times": (("fedma",), ("federation.fedma.width_limit=1.5",)),
    "a client's width": (("fedma",), ("federation.fedma.width_limit=1.0",)),
    "a client's width, common start": (
        ("fedma",),
        ("federation.fedma.width_limit=1.0", "federation.fedma.start='common'"),
    ),
    "a client's width, common start, 4 rounds of 6 epochs": (
        ("fedma",),
        (
            "federation.fedma.width_limit=1.0",
            "federation.fedma.start='common'",
            "federation.fedma.rounds=4",
            "federation.fedma.epochs=6",
        ),
    ),
}
"""Who is changed how; the first is the preset itself, which the others are compared with."""
Found = dict[str, dict[str, list[dict[str, Any]]]]
"""By change and method, seed by seed."""


def write_choices(
    where: Places, data_dir: Path | None = None, workers: int | None = None, tell: Callable[[str], None] = print
) -> Path:
    """Measure every change and write the table, which grows as it goes; what is in it already is not trained again."""
    (preset,) = (p for p in where.presets if p.startswith(PRESET))
    _, base, folder = config.load(preset)
    name = next(iter(base.partition))
    path = where.folder / CHOICES
    scenario = training_scenario(base, name, data_dir, folder)
    data = data_digest(scenario)
    head = {
        "preset": preset,
        "scenario": name,
        "data": data,
        "kept_out": FRACTION,
        "strengths": [f"{s:.2e}" for s in STRENGTHS],
        "config": base.dump(),
    }
    found = _earlier(path, head)
    seeds = min(SEEDS, base.evaluation.seeds)
    journal = ReplyJournal(where.runs / "choices" / "answers")
    todo = [(seed, method) for seed in range(seeds) for method in METHODS]
    with one_torch_thread():
        for seed, method in todo:  # seed by seed: what was interrupted compares like with like
            with TrialRunner.open(method, scenario, {}, where.runs / "choices", workers or cores()) as runner:
                for change, (methods, overrides) in CHANGES.items():
                    if method not in methods:
                        continue
                    measured = found.setdefault(change, {}).setdefault(method, [])
                    if len(measured) == seed:
                        changed = judged(config.load(preset, overrides)[1])
                        measured.append(_measure(runner, changed, seed, journal, data))
                        write_json(path, {**head, "errors": found})
                        tell(f"{method}, {change}, seed {seed}: {min(measured[-1]['rmse']):.2f}")
    return path


def _earlier(path: Path, head: Mapping[str, Any]) -> Found:
    """What was measured before, where it was measured with the same preset and data."""
    if not path.is_file():
        return {}
    there = json.loads(path.read_text("utf-8"))
    errors: Found = there.pop("errors")
    return errors if there == head else {}


def _measure(
    runner: TrialRunner, experiment: config.Experiment, seed: int, journal: ReplyJournal, scope: str
) -> dict[str, Any]:
    """RMSE of the model after the last round on what was kept out, for every ridge strength, and its width."""
    cohort, plan = runner.prepared(experiment, seed, lambda failure: None, journal=journal, scope=scope)
    *_, last = strategies[runner.method].run(cohort, plan)
    (network,) = last.models.values()
    fit, held = evaluate(cohort, plan, cohort.clients, network).head_statistics
    if held is None:
        raise FederationError("no client keeps enough out of training to be judged by")
    mean_squares = [mean_squared_error(held, solve_head(fit, strength)) for strength in STRENGTHS]
    errors = [round(float(np.sqrt(m)) * plan.recipe.label_std, 4) for m in mean_squares]
    return {"rmse": errors, "width": sum(network.spec.widths)}
