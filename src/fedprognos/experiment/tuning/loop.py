"""Trial after trial, each judged on what training keeps out and given up where others were better by then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprognos.errors import FedprognosError, OutputError
from fedprognos.experiment.tuning.events import Observer, TrialDone, TrialEpoch, TrialRound, TrialStarted
from fedprognos.experiment.tuning.objective import Objective
from fedprognos.experiment.tuning.outputs import BEST_FILE, TRIALS_FILE, write_best, write_trials
from fedprognos.experiment.tuning.space import Choice, Space, applied
from fedprognos.experiment.tuning.study import Study
from fedprognos.experiment.tuning.trial_runner import TrialRunner, judged
from fedprognos.networks import Epoch

if TYPE_CHECKING:
    import optuna

HOPELESS = 3
"""After so many failed trials and none completed, the error is not one of the values tried."""
MOST_ROUNDS = 10_000
"""Tells the rounds of different seeds apart, for trials are compared after the same round of the same seed."""


@dataclass(eq=False)
class Loop:
    """Asks the study what to try, tries it, writes down what came out."""

    objective: Objective
    study: Study
    folder: Path
    space: Space
    measure: str
    tell: Observer

    def run(self, runner: TrialRunner, wanted: int) -> None:
        """Trials until there are as many as wanted."""
        while (done := len(self.study.trials)) < wanted:
            trial = self.study.ask()
            best = self.study.best
            try:
                self._try(runner, trial, done + 1)
            except BaseException:
                self.study.finish(trial, "killed")
                raise
            self.write()
            last = self.study.trials[-1]
            self.tell(TrialDone(last, best=last.state == "complete" and self.study.best != best))

    def _try(self, runner: TrialRunner, trial: optuna.Trial, number: int) -> None:
        """Train with these values, seed by seed, and stop early where others were better by then."""
        if (same := self.study.same_as(trial)) is not None:
            self.study.finish(trial, same.state, same.error, same.reason)
            return
        values: dict[str, Choice] = dict(trial.params)
        self.tell(TrialStarted(number, values))

        def on_epoch(client: str, epoch: Epoch) -> None:
            self.tell(TrialEpoch(number, client.rpartition("/")[2], epoch.epoch))

        try:
            experiment = applied(self.objective.experiment, values)
            chooses = experiment.train.validation_fraction > 0
            scores: list[float] = []
            for seed in range(self.objective.seeds):
                rounds: list[float] = []
                for error in runner.errors(judged(experiment), seed, on_epoch):
                    rounds.append(error)
                    so_far = float(np.mean([*scores, min(rounds) if chooses else error]))
                    trial.report(so_far, seed * MOST_ROUNDS + len(rounds))
                    self.tell(TrialRound(number, seed, len(rounds), so_far))
                    if trial.should_prune():
                        self.study.finish(trial, "pruned")
                        return
                scores.append(min(rounds) if chooses else rounds[-1])
            self.study.finish(trial, "complete", float(np.mean(scores)))
        except OutputError:
            raise
        except FedprognosError as error:
            failed = [t for t in self.study.trials if t.state == "failed"]
            if self.study.best is None and len(failed) + 1 >= HOPELESS:
                raise
            self.study.finish(trial, "failed", reason=str(error).replace("\n", " "))

    def write(self) -> None:
        """The files for people, after every trial: whatever happens next, they are there."""
        objective, trials, best = self.objective, self.study.trials, self.study.best
        if best is not None:
            remarks = [
                f"{objective.name} with the best values of {len(trials)} trials, search seed {objective.seed}.",
                f"Trial {best.number}: {objective.in_words(self.measure)}, "
                f"mean of {objective.seeds} training(s): {best.error:.6g}",
                "This was measured on what training keeps out, labels capped; no test unit took part in the choice.",
            ]
            write_best(self.folder / BEST_FILE, applied(objective.experiment, best.values), remarks, objective.base)
        write_trials(self.folder / TRIALS_FILE, trials, self.space)
