"""A search for hyper-parameters, from an experiment to the best one found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos.experiment import config
from fedprognos.experiment.events import Notice, warnings_as_notices
from fedprognos.experiment.run import Extras
from fedprognos.experiment.scenario import training_scenario
from fedprognos.experiment.tuning.events import Event, Observer, SearchStarted, Trial
from fedprognos.experiment.tuning.loop import Loop
from fedprognos.experiment.tuning.objective import Objective
from fedprognos.experiment.tuning.space import Space, own_values, space_of
from fedprognos.experiment.tuning.study import need_extra, open_study
from fedprognos.experiment.tuning.trial_runner import FRACTION, TrialRunner
from fedprognos.experiment.workers import cores
from fedprognos.networks.torch_threads import one_torch_thread


@dataclass(frozen=True, eq=False)
class Search:
    """What a search found; `importances` is empty where the trials are too few to tell."""

    folder: Path
    space: Space
    measure: str
    trials: tuple[Trial, ...]
    best: Trial | None
    importances: Mapping[str, float]


def tune(
    source: str | Path | Mapping[str, Any],
    *,
    trials: int,
    method: str | None = None,
    scenario: str | None = None,
    seeds: int = 1,
    seed: int = 0,
    space: Sequence[str] = (),
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    overrides: tuple[str, ...] = (),
    workers: int | None = None,
    observers: Sequence[Observer] = (),
    extras: Extras | None = None,
) -> Search:
    """Search for the hyper-parameters of an experiment; a search that was killed goes on where it was.

    Parameters
    ----------
    source
        Name of a preset, path of a TOML file, or the content of one.
    trials
        Finished trials in all, those of earlier calls included.
    method
        Whose error is to become small; the experiment's first federated method by default, else `central`.
    scenario
        One of the experiment's partitions; the first by default.
    seeds
        Trainings a trial, their mean error counts.
    seed
        Decides what is tried.
    space
        `name=[values]`: other choices than the paper's, as with `--space`.
    out
        Folder to write; `runs/<name>-tune` by default.
    extras
        Things of the caller's own, as in :func:`fedprognos.experiment.run.run`.
    """
    need_extra()
    extras = extras or Extras()
    processes = 1 if extras.in_this_process else workers or cores()

    def tell(event: Event) -> None:
        for observer in observers:
            observer(event)

    with extras.on_shelves(), one_torch_thread(), warnings_as_notices(tell):
        name, experiment, base = config.load(source, overrides)
        objective = Objective.of(name, experiment, base, method, scenario, seeds, seed)
        dealt = training_scenario(experiment, objective.scenario, None if data_dir is None else Path(data_dir), base)
        schema = next(iter(dealt.clients.values())).schema
        choices = space_of(experiment, schema.task, objective.method, space)
        folder = Path(out) if out is not None else Path("runs") / f"{name}-tune"
        own = own_values(experiment, choices, objective.method)
        measure = (
            "of rated" if schema.task == "soh" and experiment.recipe.label == "relative" else schema.target_measure
        )
        with open_study(folder, objective.identity(dealt, choices), choices, own, seed) as study:
            loop = Loop(objective, study, folder, choices, measure, tell)
            tell(SearchStarted(str(folder), objective.in_words(measure), choices, trials, len(study.trials)))
            if objective.experiment.train.validation_fraction == 0:
                tell(Notice(f"the experiment keeps nothing out of training: trials keep out {FRACTION:g} to judge by"))
            loop.write()
            if len(study.trials) < trials:
                with TrialRunner.open(objective.method, dealt, choices, folder, processes) as runner:
                    loop.run(runner, trials)
            return Search(folder, choices, measure, tuple(study.trials), study.best, study.importances())
