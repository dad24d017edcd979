"""The recipe search: candidates race on training units kept out, within a budget of training steps.

Every candidate is a small change of the experiment. Clients train its networks for a quarter of the steps and send the
sums that the head is solved from, of the units they trained on and of the units they kept out; the error of the head on
the latter, over all clients together, decides. The best one then races the experiment as it is written with all steps,
and wins where it gains one per cent. Nothing is chosen on test units.

A budget in minutes becomes a budget in steps: the first candidate shows how long a step takes. That number is kept in
the run folder, so that a resumed run makes the same choices; an experiment that names it gives the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedprognos.errors import FedprognosError
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.local_clients import LocalClients
from fedprognos.experiment.run_events import EpochDone, JobKey, Notice, Observer
from fedprognos.federation import MessageCohort, ReplyJournal, common_recipe, judged_rounds
from fedprognos.federation.strategies import strategies
from fedprognos.files import read_json, write_json
from fedprognos.networks import Epoch

FILE = "search.json"
FIRST_SHARE = 4
"""Candidates first train for this part of the steps."""
LEAST_GAIN = 0.01
"""A change must lower the error by this share; smaller differences are chance."""
LATER_TRAININGS = 3.5
"""Trainings of all clients that follow the search: central training, intervals, and the model to use."""
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
METHOD = "concat"
"""The method that candidates are compared by: every client's network counts in it, and it has one round."""

Changes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """A change of the experiment, in words and by section, and what a step of it takes beside one of the experiment."""

    label: str
    changes: Changes
    weight: float = 1.0


@dataclass(frozen=True)
class Trial:
    """A candidate that was trained: for how many steps a client, and its error on units kept out (None: it failed)."""

    label: str
    steps: int
    error: float | None


@dataclass(frozen=True)
class SearchRecord:
    """What was tried and what was chosen, as `search.json` holds it and the report shows it."""

    budget_in_steps: int
    measure: str
    trials: tuple[Trial, ...]
    chosen: str
    changes: Changes
    steps: int

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "trials": [vars(trial) for trial in self.trials]}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> SearchRecord:
        return SearchRecord(**{**raw, "trials": tuple(Trial(**trial) for trial in raw["trials"])})


def candidates(experiment: Experiment, running: bool = False) -> list[Candidate]:
    """What is tried, in the order of what usually gains most; the experiment as it is written comes first.

    Parameters
    ----------
    running
        Whether there are units that still run.
    """
    recipe, model, train = experiment.recipe, experiment.model, experiment.train
    tried = [Candidate("as proposed", {})]
    if recipe.columns == "wear":
        tried.append(Candidate("all columns", {"recipe": {"columns": "all"}}))
    if recipe.history == "life":
        tried.append(Candidate("less noise and warp", {"train": {"noise": 0.1, "warp": 0.3}}))
        late = {"train": {"random_start": 0.5}}
        tried.append(Candidate("half of the lives shown from a random row on", late))
        window = {"recipe": {"history": 30, "stride": 2, "short": "pad"}}
        tried.append(Candidate("the last 30 rows instead of whole lives", window, weight=2.0))
    elif isinstance(recipe.history, int):
        tried.append(Candidate("a window twice as long", {"recipe": {"history": 2 * recipe.history}}, weight=2.0))
        tried.append(Candidate("a window half as long", {"recipe": {"history": max(recipe.history // 2, 2)}}, 0.5))
        whole: Changes = {"recipe": {"history": "life"}, "train": {"noise": 0.3, "warp": 0.3, "random_start": 0.5}}
        tried.append(Candidate("all rows of a record instead of a window", whole))
    tried.append(Candidate("half as many neurons", {"model": {"widths": [max(w // 2, 4) for w in model.widths]}}, 0.6))
    tried.append(Candidate("the latest row beside the network", {"model": {"direct": 1}}))
    if running and not train.running and recipe.cap is not None:
        tried.append(Candidate("rows of machines that still run", {"train": {"running": True}}))
    if model.cell == "lstm":
        tried.append(Candidate("GRU instead of LSTM", {"model": {"cell": "gru"}, "train": {"forget_bias": 0.0}}, 2.0))
    if train.learning_rate > 0.002:
        tried.append(Candidate("half the learning rate", {"train": {"learning_rate": train.learning_rate / 2}}))
    return tried


def changed(experiment: Experiment, changes: Changes, steps: int) -> Experiment:
    """The experiment with a candidate's changes, trained for so many steps."""
    document = experiment.dump()
    for section, keys in changes.items():
        document[section] = {**document[section], **keys}
    document["train"]["steps"] = steps
    return type(experiment).model_validate(document)


@dataclass(eq=False)
class Race:
    """Trains candidates and spends the budget.

    Parameters
    ----------
    seconds_per_step
        Measured with the first candidate; a resumed run has measured it before.
    """

    access: LocalClients
    notify: Observer
    scenario: str
    spent: float = 0.0
    budget: float = float("inf")
    seconds_per_step: float | None = None

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self.measure = ""
        self.journal = ReplyJournal(self.access.folder.memory)

    def fits(self, candidate: Candidate, steps: int) -> bool:
        """Whether a training is within the budget."""
        return self.spent + self._cost(candidate, steps) <= self.budget

    def error(self, candidate: Candidate, steps: int) -> float:
        """The error on units kept out; infinite where the candidate cannot be trained."""
        self.spent += self._cost(candidate, steps)
        error: float | None = None
        try:
            error = self._kept_out(changed(self.access.experiment, candidate.changes, steps))
        except (FedprognosError, ValueError) as problem:
            self.notify(Notice(f"Search: {candidate.label}: cannot be trained here ({problem})."))
        self.trials.append(Trial(candidate.label, steps, error))
        if error is None:
            return float("inf")
        left = ""
        if self.seconds_per_step is not None and self.budget < float("inf"):
            left = f"; at most {max(self.budget - self.spent, 0) * self.seconds_per_step / 60:.0f} min of search left"
        self.notify(
            Notice(f"Search: {candidate.label}, {steps} steps: {error:.4g} {self.measure} off on units kept out{left}")
        )
        return error

    def _cost(self, candidate: Candidate, steps: int) -> float:
        return candidate.weight * steps * len(self.access.clients[self.scenario])

    def _kept_out(self, experiment: Experiment) -> float | None:
        """Error of the exact head, fitted to units trained on, on the units that all clients kept out."""
        key = JobKey(self.scenario, METHOD, 0)

        def on_epoch(client: str, epoch: Epoch) -> None:
            self.notify(EpochDone(key, client.rpartition("/")[2], epoch.epoch, epoch.validation_rmse))

        federation, declared = experiment.federation, dict[str, int]()
        cohort = MessageCohort(
            self.access.transport(self.scenario, on_epoch),
            wire=federation.wire,
            journal=self.journal,
            scope=self.scenario,
            declared=declared,
            sums=self.access.sums,
        )
        recipe = common_recipe(
            cohort, experiment.recipe, federation, lambda failure: self.access.left_out(self.scenario, failure)
        )
        self.measure = recipe.target_measure
        plan = plan_of(experiment, recipe, 0)
        for round_ in judged_rounds(strategies[METHOD], cohort, plan):
            heads = next(iter(round_.judged.values()))
        return heads["exact"].validation_rmse


def search_recipe(access: LocalClients, notify: Observer) -> tuple[Experiment, SearchRecord]:
    """The experiment with the recipe that won on units kept out, and what was tried."""
    experiment, path = access.experiment, access.folder.path / FILE
    kept = read_json(path) if path.is_file() else {}
    if "trials" in kept:
        record = SearchRecord.from_dict(kept)
        return _settled(experiment, record), record
    race = Race(access, notify, next(iter(access.clients)))
    steps = experiment.train.steps or 1000
    first = max(steps // FIRST_SHARE, 1)
    fleets = access.scenarios[race.scenario].clients.values()
    base, *others = candidates(experiment, any(unit.labels() is None for fleet in fleets for unit in fleet))
    began = time.monotonic()
    errors = {base.label: race.error(base, first)}
    budget = kept.get("budget_in_steps") or _budget(experiment.search, time.monotonic() - began, race.spent)
    write_json(path, {"budget_in_steps": budget})
    race.seconds_per_step = (time.monotonic() - began) / race.spent
    race.budget = budget - LATER_TRAININGS * race._cost(base, steps)
    final = race._cost(base, steps)  # the experiment as it is written always runs to the end: it is evaluated anyway
    for candidate in others:
        if race.fits(candidate, first + round(final / len(access.clients[race.scenario]))):
            errors[candidate.label] = race.error(candidate, first)
    ranked = sorted((c for c in others if c.label in errors), key=lambda c: errors[c.label])
    winner, best = base, race.error(base, steps)
    for candidate in ranked[:2]:
        if errors[candidate.label] < errors[base.label] and race.fits(candidate, steps):
            error = race.error(candidate, steps)
            if error < best * (1 - LEAST_GAIN):
                winner, best = candidate, error
    for longer in (steps // 2, 2 * steps):
        if race.fits(winner, longer) and (error := race.error(winner, longer)) < best * (1 - LEAST_GAIN):
            steps, best = longer, error
    record = SearchRecord(budget, race.measure, tuple(race.trials), winner.label, winner.changes, steps)
    write_json(path, record.as_dict())
    return _settled(experiment, record), record


def _settled(experiment: Experiment, record: SearchRecord) -> Experiment:
    """The experiment with what was chosen; it names the steps of the budget, so that it can be repeated."""
    chosen = changed(experiment, record.changes, record.steps)
    return chosen.model_copy(update={"search": record.budget_in_steps})


def _budget(search: int | str, seconds: float, steps: float) -> int:
    """The budget in steps of all clients together, from how long some steps took."""
    if isinstance(search, int):
        return search
    return max(round(float(search[:-1]) * SECONDS[search[-1]] / max(seconds, 1e-3) * steps), 1)
