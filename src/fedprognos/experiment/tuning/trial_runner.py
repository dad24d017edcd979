"""Where trials are judged: the clients' training fleets, and errors on the part of them that training keeps out.

Windows of different length are compared at the same points of life: for shorter ones each unit begins so much later
that the first window of all ends at the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedprognos.errors import ConfigError, FederationError, TrainingError
from fedprognos.experiment import config
from fedprognos.experiment.in_process import POOLED, InProcess, in_full
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.run_folder import folder_name
from fedprognos.experiment.scenario import Scenario
from fedprognos.experiment.tuning.space import WINDOW, Space
from fedprognos.experiment.workers import OnEpoch, Workers
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import Cohort, MessageCohort
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.survey import recipe_from_survey
from fedprognos.federation.plan import Plan
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.federation.rounds import judged_rounds
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Fleet, Unit, pool

FRACTION = 0.2
"""Share kept out to judge by where the experiment keeps nothing out."""
NEVER = 10_000
"""A warm-up longer than any training: only the last epoch counts."""
OUTSPOKEN = ("worker", "message", "collapsed")
"""Failures that say themselves what was wrong; others refer to the client's log."""


@dataclass(frozen=True, eq=False)
class TrialRunner:
    """Clients ready to train, once for every length of window; a context manager that ends its workers.

    Parameters
    ----------
    sites, trainers
        Folders of the clients, and of those who train: the clients too, or for central training the one that holds
        everything.
    lengths
        Windows that are searched; none for cyclic units.
    """

    method: str
    sites: Mapping[str, ClientFolder]
    trainers: Mapping[str, ClientFolder]
    lengths: tuple[int, ...]
    staff: Workers

    @classmethod
    def open(cls, method: str, scenario: Scenario, space: Space, folder: Path, workers: int) -> TrialRunner:
        """Start the workers; nothing is trained yet."""
        sites = {name: ClientFolder(folder / "sites" / folder_name(name)) for name in scenario.clients}
        central = strategies[method].pooled
        trainers = {POOLED: ClientFolder(folder / "sites" / "(pooled)")} if central else sites
        lengths = [int(length) for length in space.get(WINDOW, ())]
        fleets: dict[str, tuple[str, Fleet, ClientFolder]] = {}
        for length in lengths or [0]:
            missing = max(lengths, default=0) - length
            clients = {name: _later(fleet, missing) for name, fleet in scenario.clients.items()}
            fleets |= {f"{length}/{name}": (name, fleet, sites[name]) for name, fleet in clients.items()}
            if central:
                pooled = pool([clients[name] for name in sorted(clients)])
                fleets[f"{length}//{POOLED}"] = (POOLED, pooled, trainers[POOLED])
        return cls(method, sites, trainers, tuple(lengths), Workers(fleets, workers))

    def __enter__(self) -> TrialRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.staff.close()

    def errors(self, experiment: config.Experiment, seed: int, on_epoch: OnEpoch | None = None) -> Iterator[float]:
        """Train as the experiment says and give the validation error after every round.

        Raises
        ------
        FedprognosError
            Where these values cannot be trained with.
        """
        failures: list[Failure] = []
        cohort, plan = self.prepared(experiment, seed, failures.append, on_epoch)
        try:
            yield from _rounds(cohort, plan, self.method)
        except FederationError as error:
            logged = [f for f in failures if f.code not in OUTSPOKEN]
            reason = self.trainers[logged[-1].client].last_error() if logged else None
            if reason is None:
                raise
            raise FederationError(reason, where=f"client {logged[-1].client}") from error

    def prepared(
        self,
        experiment: config.Experiment,
        seed: int,
        left_out: Callable[[Failure], None],
        on_epoch: OnEpoch | None = None,
        *,
        cache: ReplyCache | None = None,
        scope: str = "",
    ) -> tuple[Cohort, Plan]:
        """Those who train, and how, with a recipe from everybody's moments."""
        length = experiment.recipe.length if self.lengths else 0
        everyone = MessageCohort(InProcess(self.staff, {name: f"{length}/{name}" for name in self.sites}))
        recipe = recipe_from_survey(everyone, experiment.recipe, in_full(self.sites))
        slash = "//" if strategies[self.method].pooled else "/"
        keys = {name: f"{length}{slash}{name}" for name in self.trainers}
        trainers = InProcess(self.staff, keys, on_epoch, experiment.federation.timeout_in_s)
        cohort = MessageCohort(trainers, cache=cache, scope=scope)
        return cohort, replace(plan_of(experiment, recipe, seed), left_out=left_out)


def judged(experiment: config.Experiment) -> config.Experiment:
    """The experiment as trials run it: with a part kept out, and with the one head they are judged by.

    Where the experiment keeps nothing out, its last epoch counts; then the last epoch is judged too, not the one that
    happens to be best on the part kept out for judging.
    """
    train, head = experiment.train, judging_head(experiment)
    if train.validation_fraction == 0:
        train = train.model_copy(update={"validation_fraction": FRACTION, "warmup": NEVER})
    federation = experiment.federation.model_copy(update={"heads": (head,)})
    return experiment.model_copy(update={"train": train, "federation": federation})


def judging_head(experiment: config.Experiment) -> str:
    """The experiment's first head; for personal ones, which nobody else sees, the exact one they stay near."""
    first = experiment.federation.heads[0]
    return "exact" if first == "personal" else first


def _rounds(cohort: Cohort, plan: Plan, method: str) -> Iterator[float]:
    for round_ in judged_rounds(strategies[method], cohort, plan):
        error = round_.validation_rmse
        if error is None:
            raise ConfigError(
                "too little is kept out of training to judge by: fewer than 20 windows",
                hint="raise train.validation_fraction, or lower recipe.stride",
            )
        if not np.isfinite(error):
            raise TrainingError("the validation error is not a number", hint="lower train.learning_rate")
        yield error


def _later(fleet: Fleet, rows: int) -> Fleet:
    """The fleet whose units begin so many rows later, each with two rows at least, for it to remain a unit."""
    return fleet.select([_from_row(unit, min(rows, unit.rows - 2)) for unit in fleet]) if rows else fleet


def _from_row(unit: Unit, start: int) -> Unit:
    return replace(
        unit,
        time=unit.time[start:],
        sensors=unit.sensors[start:],
        settings=unit.settings[start:],
        target=None if unit.target is None else unit.target[start:],
    )
