"""The recipe search: candidates race on training units kept out, within a budget of training steps.

Every candidate is a small change of the experiment. Clients train its networks for a quarter of the steps and send the
sums that the head is solved from, of the units they trained on and of the units they kept out; the error of the head on
the latter, over all clients together, decides. The best ones then race the experiment as it is written with all steps.
A change wins if it lowers the error of all clients together, and that of at least half of them: each votes with the
error on its own units kept out. Nothing is chosen on test units.

A budget in minutes becomes a budget in steps: the first candidate shows how much processor time a step takes, so that
a busy machine searches as much as an idle one, only for longer. That number is kept in the run folder, so that a
resumed run makes the same choices; an experiment that names it gives the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedprognos.errors import ConfigError, FedprognosError
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.local_clients import LocalClients
from fedprognos.experiment.run_events import EpochDone, JobKey, Notice, Observer, RecipeTried
from fedprognos.federation import (
    EvaluateReply,
    EvaluateRequest,
    MessageCohort,
    ReplyJournal,
    common_recipe,
    gather,
    judged_rounds,
)
from fedprognos.federation.strategies import strategies
from fedprognos.files import read_json, write_json
from fedprognos.networks import Epoch

FILE, CHOSEN_FILE = "search.json", "chosen.toml"
"""What was tried, and the experiment with what was chosen, without a search: sites of a deployment take it as it is."""
FIRST_SHARE = 4
"""Candidates first train for this part of the steps."""
LEAST_GAIN = 0.03
"""A change must lower the error by this share; smaller differences are chance."""
FINALS = 3
"""About so many candidates are trained with all steps."""
LATER_TRAININGS = 3.5
"""Trainings of all clients that follow the search: central training, intervals, and the model to use."""
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
METHOD = "concat"
"""The method that candidates are compared by: every client's network counts in it, and it has one round."""

Changes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A change of the experiment, in words and by section, and what a step of it takes beside one of the experiment."""

    label: str
    changes: Changes
    weight: float = 1.0


@dataclass(frozen=True)
class Trial:
    """A candidate that was trained: for how many steps a client, and its error on units kept out (None: it failed).

    Parameters
    ----------
    votes
        The error on each client's own units kept out; empty where replies are masked.
    """

    label: str
    steps: int
    error: float | None
    votes: Mapping[str, float] = field(default_factory=dict)

    def beats(self, other: Trial) -> bool:
        """Whether the error is clearly lower for all clients together, and lower for at least half of them."""
        if self.error is None or other.error is None:
            return other.error is None and self.error is not None
        gains = [self.votes[name] < other.votes[name] for name in self.votes.keys() & other.votes.keys()]
        return self.error < (1 - LEAST_GAIN) * other.error and 2 * sum(gains) >= len(gains)


@dataclass(frozen=True)
class SearchRecord:
    """What was tried and what was chosen, as `search.json` holds it and the report shows it."""

    budget_in_steps: int
    measure: str
    trials: tuple[Trial, ...]
    chosen: str
    changes: Changes
    steps: int

    def remarks(self, name: str) -> list[str]:
        """What the file of the chosen experiment says at its head."""
        tried = len({trial.label for trial in self.trials})
        return [
            f"{name} with the recipe that a search chose: {self.chosen}, {self.steps} steps.",
            f"{tried} recipes were tried on training units kept out; no test unit took part.",
        ]

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
    if running and recipe.cap is not None:
        label = "without machines that still run" if train.running else "rows of machines that still run"
        tried.append(Candidate(label, {"train": {"running": not train.running}}))
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
    budget, planned
        Steps of all clients together: what may be spent, and what all trials would take.
    """

    access: LocalClients
    notify: Observer
    scenario: str
    spent: float = 0.0
    budget: float = float("inf")
    planned: float = float("inf")

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self.measure = ""
        self.journal = ReplyJournal(self.access.folder.memory)

    def fits(self, candidate: Candidate, steps: int) -> bool:
        """Whether a training is within the budget."""
        return self.spent + self.cost(candidate, steps) <= self.budget

    def run(self, candidate: Candidate, steps: int) -> Trial:
        """Train a candidate and judge it on units kept out."""
        self.spent += self.cost(candidate, steps)
        trial = Trial(candidate.label, steps, None)
        try:
            error, votes = self._kept_out(changed(self.access.experiment, candidate.changes, steps))
            trial = Trial(candidate.label, steps, error, votes)
            words = f"{error:.4g} {self.measure} off on units kept out"
        except (FedprognosError, ValueError) as problem:
            words = f"cannot be trained here ({problem})"
        self.trials.append(trial)
        total = round(min(max(self.budget, self.spent), self.planned))
        self.notify(RecipeTried(f"{candidate.label}, {steps} steps: {words}", round(self.spent), total))
        return trial

    def cost(self, candidate: Candidate, steps: int) -> float:
        return candidate.weight * steps * len(self.access.clients[self.scenario])

    def _kept_out(self, experiment: Experiment) -> tuple[float, dict[str, float]]:
        """Error of the exact head, fitted to units trained on, on units kept out: of all clients, and of each."""
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
            clients, heads = next(iter(round_.judged.items()))
        judged = heads["exact"]
        if judged.validation_rmse is None or judged.fitted is None:
            raise ConfigError("no client keeps units out to choose by", hint="set search = 0")
        if cohort.sums is not None:
            return judged.validation_rmse, {}
        network, fraction = judged.network.with_head(judged.fitted), experiment.train.validation_fraction
        request = EvaluateRequest(recipe, network, plan.seed, fraction)
        replies = gather(cohort, dict.fromkeys(clients, request), EvaluateReply, federation.min_clients, plan.left_out)
        votes = {name: r.validation.rmse for name, r in sorted(replies.items()) if r.validation is not None}
        return judged.validation_rmse, votes


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
    each, full = race.cost(base, first), race.cost(base, steps)
    race.planned = each * (1 + sum(candidate.weight for candidate in others)) + FINALS * full
    began = time.monotonic()
    proposed = race.run(base, first)
    seconds = time.monotonic() - began
    if_idle = access.workers.seconds_if_idle()
    budget = kept.get("budget_in_steps") or _budget(experiment.search, if_idle, race.spent)
    write_json(path, {"budget_in_steps": budget})
    race.budget = budget - LATER_TRAININGS * full
    if "budget_in_steps" not in kept:  # a resumed run is answered from memory: it cannot tell how long a step takes
        minutes = (min(race.planned, max(race.budget, full)) + LATER_TRAININGS * full) / race.spent * seconds / 60
        notify(Notice(f"The search and the run take about {max(minutes, 1):.0f} min on this machine."))
    tried = {
        candidate: race.run(candidate, first)
        for candidate in others
        if race.fits(candidate, first + round(full / len(access.clients[race.scenario])))
    }
    better = [c for c, trial in tried.items() if trial.beats(proposed)]
    winner, best = base, race.run(base, steps)  # the experiment as it is written always runs to the end
    for candidate in sorted(better, key=lambda c: tried[c].error or 0.0)[:2]:
        if race.fits(candidate, steps) and (trial := race.run(candidate, steps)).beats(best):
            winner, best = candidate, trial
    for longer in (steps // 2, 2 * steps):
        if race.fits(winner, longer) and (trial := race.run(winner, longer)).beats(best):
            steps, best = longer, trial
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
