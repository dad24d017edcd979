"""Searching hyper-parameters with Optuna on what training keeps out: nothing here ever reads a test unit.

What is tried next depends on the finished trials and their number alone. So a search that was killed and started again
tries what it would have tried anyway. Trials live in one SQLite file, which survives being killed at any moment.

Windows of different length are compared at the same points of life: for shorter windows each unit begins so much later
that the first window of all lengths ends at the same row.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedprognos.errors import (
    ConfigError,
    FederationError,
    FedprognosError,
    MissingExtraError,
    OutputError,
    TrainingError,
    unknown_name,
)
from fedprognos.evaluation import EvaluationOptions
from fedprognos.experiment import config
from fedprognos.experiment.engines import Engine, engine_for
from fedprognos.experiment.experiment_run import Extras, data_digest
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.local_clients import LocalClients
from fedprognos.experiment.run_events import (
    Notice,
    SearchEvent,
    SearchObserver,
    SearchStarted,
    Trial,
    TrialDone,
    TrialEpoch,
    TrialRound,
    TrialStarted,
    warnings_as_notices,
)
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.experiment.scenario import Scenario, training_scenario
from fedprognos.experiment.search_space import WINDOW, Choice, Space, applied, own_values, space_of
from fedprognos.experiment.worker_pool import OnEpoch
from fedprognos.federation import MessageCohort, common_recipe, judged_rounds
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.strategies import strategies
from fedprognos.files import holding, write_text
from fedprognos.fleet import Fleet, Schema
from fedprognos.networks import Epoch, one_torch_thread
from fedprognos.privacy import stream

if TYPE_CHECKING:
    import optuna

BEST_FILE, TRIALS_FILE, DATABASE, LOCK = "best.toml", "trials.csv", "study.db", "running.lock"
IDENTITY, REASON = "identity", "reason"
HOPELESS = 3
"""If so many trials failed and none completed, it is not their values that are wrong."""
MOST_ROUNDS = 10_000
"""Tells the rounds of different seeds apart: Optuna compares trials after the same step, here seed and round."""
STARTUP = 5
"""No trial is pruned before so many are complete."""
FEW = 8
"""With fewer completed trials, importances would be chance."""
FRACTION = 0.2
"""Share kept out to judge by where the experiment keeps nothing out."""
NEVER = 10_000
"""A warm-up longer than any training: only the last epoch counts."""
EXPLAINED = ("worker", "message", "collapsed")
"""Codes of failures whose text says what was wrong; others refer to the client's log."""


@dataclass(frozen=True, eq=False)
class Search:
    """The outcome of a search; `importances` is empty where the trials are too few."""

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
    observers: Sequence[SearchObserver] = (),
    extras: Extras | None = None,
) -> Search:
    """Search for the hyper-parameters of an experiment. To resume a killed search, repeat the call.

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
        Things of the caller's own, as in :func:`fedprognos.experiment.experiment_run.run`.
    """
    if find_spec("optuna") is None:
        raise MissingExtraError("optuna", "tune", "searching hyper-parameters")
    extras = extras or Extras()
    engine = engine_for(None, 1 if extras.in_this_process else workers)

    def notify(event: SearchEvent) -> None:
        for observer in observers:
            observer(event)

    with extras.on_shelves(), one_torch_thread(), warnings_as_notices(notify):
        name, experiment, base = config.load(source, overrides)
        method, scenario_name = _checked(experiment, method, scenario)
        searched = training_scenario(experiment, scenario_name, None if data_dir is None else Path(data_dir), base)
        choices = space_of(experiment, _schema(searched).task, method, space)
        question = _Question(name, experiment, base, method, searched, choices, seeds, seed)
        folder = Path(out) if out is not None else Path("runs") / f"{name}-tune"
        with _open_study(folder, question.identity) as study:
            notify(SearchStarted(str(folder), question.goal, choices, trials, len(finished_trials(study))))
            if experiment.train.validation_fraction == 0:
                notify(Notice(f"The experiment keeps nothing out of training, so each trial keeps out {FRACTION:g}."))
            _write_files(folder, question, finished_trials(study))
            with _open_clients(question, folder, engine) as access:
                objective = _Objective(question, access, notify)
                proposed = own_values(experiment, choices, method)
                while len(before := finished_trials(study)) < trials:
                    _seed_sampler(study, seed, len(before), proposed)
                    study.optimize(objective, n_trials=1)
                    *_, last = after = finished_trials(study)
                    _write_files(folder, question, after)  # whatever happens next, they are there
                    notify(TrialDone(last, best=last.state == "complete" and best_of(after) != best_of(before)))
            finished = finished_trials(study)
            shares = _importances(study, finished, choices, seed)
            return Search(folder, choices, question.measure, tuple(finished), best_of(finished), shares)


@dataclass(frozen=True, eq=False)
class _Question:
    """What is searched for: values of a space for a method on a scenario's clients."""

    name: str
    experiment: config.Experiment
    base: Path
    method: str
    scenario: Scenario
    space: Space
    seeds: int
    seed: int

    @property
    def measure(self) -> str:
        """What errors are counted in."""
        schema = _schema(self.scenario)
        relative = schema.task == "soh" and self.experiment.recipe.label == "relative"
        return "of rated" if relative else schema.target_measure

    @property
    def goal(self) -> str:
        """What is to become small, in words."""
        head = judging_head(self.experiment)
        return f"validation RMSE in {self.measure} of {self.method} with the {head} head, scenario {self.scenario.name}"

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides a trial's result."""
        document = {k: v for k, v in self.experiment.dump().items() if k not in ("title", "evaluation")}
        return {
            "experiment": hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest(),
            "data": data_digest(self.scenario),
            "method": self.method,
            "scenario": self.scenario.name,
            "number of seeds": self.seeds,
            "seed": self.seed,
            "space": self.space,
        }


def _schema(scenario: Scenario) -> Schema:
    return next(iter(scenario.clients.values())).schema


def _checked(experiment: config.Experiment, method: str | None, scenario: str | None) -> tuple[str, str]:
    """The method and scenario to search for."""
    federated = [m for m in experiment.federation.methods if strategies[m].federated]
    method = strategies[method or next(iter(federated), "central")].name  # an unknown name is refused here
    scenario = scenario or next(iter(experiment.partition))
    if scenario not in experiment.partition:
        raise unknown_name("scenario", scenario, experiment.partition)
    if experiment.federation.start == "bundles":
        raise ConfigError(
            "federation.start = 'bundles': the models are trained already, nothing is left to search",
            hint="set federation.start = 'train'",
        )
    return method, scenario


@dataclass(frozen=True, eq=False)
class _Objective:
    """The function that Optuna minimises: the validation error with a trial's values, mean over seeds.

    Values that cannot be trained with end as a pruned trial with a reason, so that the sampler takes them for worse
    than all others. Every other error ends the search, and the trial under way counts as if it had never been.
    """

    question: _Question
    access: LocalClients
    notify: SearchObserver

    def __call__(self, trial: optuna.Trial) -> float:
        import optuna

        space = self.question.space
        values = {name: cast(Choice, trial.suggest_categorical(name, space[name])) for name in space}
        earlier = finished_trials(trial.study)
        same = next((t for t in earlier if t.values == values), None)
        if same is not None:  # equal values are trained once
            if same.state == "complete":
                return cast(float, same.error)
            if same.reason:
                trial.set_user_attr(REASON, same.reason)
            raise optuna.TrialPruned
        number = len(earlier) + 1
        self.notify(TrialStarted(number, values))
        try:
            return self._mean_error(trial, number, applied(self.question.experiment, values))
        except OutputError:
            raise
        except FedprognosError as error:
            failed = 1 + sum(t.state == "failed" for t in earlier)
            if best_of(earlier) is None and failed >= HOPELESS:
                raise
            trial.set_user_attr(REASON, str(error).replace("\n", " "))
            raise optuna.TrialPruned from error

    def _mean_error(self, trial: optuna.Trial, number: int, tried: config.Experiment) -> float:
        import optuna

        def on_epoch(client: str, epoch: Epoch) -> None:
            self.notify(TrialEpoch(number, client.rpartition("/")[2], epoch.epoch))

        chooses = tried.train.validation_fraction > 0  # then a run keeps its best round, else its last
        scores: list[float] = []
        for seed in range(self.question.seeds):
            rounds: list[float] = []
            for error in validation_errors(self.access, self.question.method, judged(tried), seed, on_epoch):
                rounds.append(error)
                so_far = float(np.mean([*scores, min(rounds) if chooses else error]))
                trial.report(so_far, seed * MOST_ROUNDS + len(rounds))
                self.notify(TrialRound(number, seed, len(rounds), so_far))
                if trial.should_prune():
                    raise optuna.TrialPruned
            scores.append(min(rounds) if chooses else rounds[-1])
        return float(np.mean(scores))


def _seed_sampler(study: optuna.Study, seed: int, finished: int, proposed: Mapping[str, Choice]) -> None:
    """Let the next values depend on the seed and the number of finished trials; the experiment's own come first."""
    import optuna

    waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    if not finished and proposed and not waiting:
        study.enqueue_trial(dict(proposed))
    study.sampler = optuna.samplers.TPESampler(seed=stream(seed, "", finished, "trial") % 2**32)


def finished_trials(study: optuna.Study) -> list[Trial]:
    """Finished trials in the order they ran, numbered from 1; those that were killed are not among them."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return [_trial(number, frozen) for number, frozen in enumerate(study.get_trials(deepcopy=False, states=states), 1)]


def _trial(number: int, frozen: optuna.trial.FrozenTrial) -> Trial:
    values = cast(dict[str, Choice], dict(frozen.params))
    if (reason := frozen.user_attrs.get(REASON)) is not None:
        return Trial(number, values, "failed", None, str(reason))
    if frozen.value is not None and frozen.state.name == "COMPLETE":
        return Trial(number, values, "complete", float(frozen.value))
    reported = frozen.intermediate_values
    return Trial(number, values, "pruned", float(reported[max(reported)]) if reported else None)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The completed trial with the lowest error, the earliest of equals."""
    completed = [trial for trial in trials if trial.state == "complete"]
    return min(completed, key=lambda trial: cast(float, trial.error), default=None)


def _importances(study: optuna.Study, trials: Sequence[Trial], space: Space, seed: int) -> dict[str, float]:
    """Share of the errors' variance that each name explains (fANOVA); empty where trials are too few to tell."""
    import optuna

    completed = [trial for trial in trials if trial.state == "complete"]
    if len(completed) < FEW or len({trial.error for trial in completed}) == 1:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=seed)
    names = [name for name, values in space.items() if len(values) > 1]
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator, params=names)
    return {name: float(share) for name, share in shares.items()}


@contextlib.contextmanager
def _open_study(folder: Path, identity: Mapping[str, Any]) -> Iterator[optuna.Study]:
    """The study of a folder, or a new one; no other process can open it meanwhile.

    Parameters
    ----------
    identity
        All that decides a trial's result; a study of another is refused.

    Raises
    ------
    OutputError
        Where the folder holds something else, or another process is searching there.
    """
    import optuna

    held = {path.name for path in folder.iterdir()} - {LOCK} if folder.is_dir() else set()
    if (folder.exists() and not folder.is_dir()) or (held and DATABASE not in held):
        raise OutputError("exists and is not a folder of a search", where=str(folder), hint="choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    with holding(folder / LOCK, "another search is running in this folder", "wait for it, or choose --out"):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{folder / DATABASE}")
        except Exception as error:  # whatever the database and its driver may raise
            raise OutputError(
                f"cannot be opened as a study: {str(error).splitlines()[0]}",
                where=str(folder / DATABASE),
                hint="remove the file to start over, or choose another --out",
            ) from error
        try:
            pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=2)
            study = optuna.create_study(
                storage=storage, study_name="fedprognos", pruner=pruner, load_if_exists=True, direction="minimize"
            )
            _claim(study, identity, folder)
            for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
                # It was killed: the lock says that no other process is searching here.
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            yield study
        finally:
            storage.engine.dispose()


def _claim(study: optuna.Study, identity: Mapping[str, Any], folder: Path) -> None:
    """Write down what a new study is about, or check that this one is about the same."""
    plain = json.loads(json.dumps(identity))
    held = study.user_attrs.get(IDENTITY)
    if held is None:
        study.set_user_attr(IDENTITY, plain)
    elif held != plain:
        differs = [key for key in plain if held.get(key) != plain[key]]
        raise OutputError(
            f"this folder holds a search with another {', '.join(differs)}",
            where=str(folder),
            hint="choose another --out, or remove the folder",
        )


def _open_clients(question: _Question, folder: Path, engine: Engine | None) -> contextlib.closing[LocalClients]:
    """Clients ready to train, in a scenario for every length of window that is searched."""
    lengths = [int(length) for length in question.space.get(WINDOW, ())]
    longest, scenario = max(lengths, default=0), question.scenario
    by_length: dict[str, Mapping[str, Fleet]] = {
        _scenario_name(length): {name: _later(fleet, longest - length) for name, fleet in scenario.clients.items()}
        for length in lengths
    } or {_scenario_name(None): scenario.clients}
    federation = question.experiment.federation.model_copy(update={"methods": (question.method,)})
    # A search goes on with another title or evaluation, so its clients' folder may not depend on them.
    changes = {"title": "", "evaluation": EvaluationOptions(), "federation": federation}
    searched = question.experiment.model_copy(update=changes)
    place = RunFolder(folder / "clients", scenario.name, searched, data_digest(scenario))
    scenarios = {name: Scenario(name, clients, {}) for name, clients in by_length.items()}
    return contextlib.closing(LocalClients(searched, scenarios, place, engine))


def _scenario_name(window: int | None) -> str:
    return "all rows" if window is None else f"window {window}"


def validation_errors(
    access: LocalClients, method: str, experiment: config.Experiment, seed: int, on_epoch: OnEpoch | None = None
) -> Iterator[float]:
    """Train as the experiment says and give the validation error after every round.

    Raises
    ------
    FedprognosError
        Where these values cannot be trained with.
    """
    by_length = _scenario_name(experiment.recipe.length)
    scenario = by_length if by_length in access.clients else _scenario_name(None)
    federation, declared = experiment.federation, dict[str, int]()
    cohort = MessageCohort(access.transport(scenario), declared=declared, sums=access.sums)
    recipe = common_recipe(cohort, experiment.recipe, federation, lambda failure: access.left_out(scenario, failure))
    pooled = strategies[method].pooled
    trainers = MessageCohort(
        access.transport(scenario, on_epoch, pooled=pooled),
        wire=federation.wire,
        declared=None if pooled else declared,
        sums=None if pooled else access.sums,
    )
    failures: list[Failure] = []
    plan = plan_of(experiment, recipe, seed)
    plan = replace(plan, left_out=failures.append, clients=len(access.clients[scenario]))
    try:
        for round_ in judged_rounds(strategies[method], trainers, plan):
            yield _usable(round_.validation_rmse)
    except FederationError as error:
        logged = [failure for failure in failures if failure.code not in EXPLAINED]
        reason = access.client_folder(scenario, logged[-1].client, pooled=pooled).last_error() if logged else None
        if reason is None:
            raise
        raise FederationError(reason, where=f"client {logged[-1].client}") from error


def _usable(error: float | None) -> float:
    if error is None:
        raise ConfigError(
            "fewer than 20 windows are kept out of training: too few to judge by",
            hint="raise train.validation_fraction, or lower recipe.stride",
        )
    if not np.isfinite(error):
        raise TrainingError("the validation error is not a number", hint="lower train.learning_rate")
    return error


def judged(experiment: config.Experiment) -> config.Experiment:
    """The experiment as trials run it: with a part kept out, and with the one head they are judged by.

    Where the experiment keeps nothing out, it uses its last epoch. Then the last epoch is judged too, not the one that
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


def _later(fleet: Fleet, rows: int) -> Fleet:
    """The fleet whose units begin so many rows later; at least two rows are left, so that each remains a unit."""
    units = []
    for unit in fleet:
        left = slice(min(rows, unit.rows - 2), None)
        target = None if unit.target is None else unit.target[left]
        sensors, settings = unit.sensors[left], unit.settings[left]
        units.append(replace(unit, time=unit.time[left], sensors=sensors, settings=settings, target=target))
    return fleet.select(units) if rows else fleet


def _write_files(folder: Path, question: _Question, finished: list[Trial]) -> None:
    """The files for people: the best experiment, once there is one, and all trials."""
    if (best := best_of(finished)) is not None:
        remarks = [
            f"{question.name} with the best values of {len(finished)} trials, search seed {question.seed}.",
            f"Trial {best.number}: {question.goal}, mean of {question.seeds} training(s): {best.error:.6g}",
            "This was measured on what training keeps out, labels capped; no test unit took part in it.",
        ]
        config.write(folder / BEST_FILE, applied(question.experiment, best.values), remarks, question.base)
    _write_trials(folder / TRIALS_FILE, finished, question.space)


def _write_trials(path: Path, trials: list[Trial], space: Space) -> None:
    """One row a trial, in the order they ran."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "validation_rmse", *space, "reason"])
    for trial in trials:
        error = "" if trial.error is None else repr(trial.error)
        writer.writerow([trial.number, trial.state, error, *(trial.values[name] for name in space), trial.reason])
    write_text(path, text.getvalue())
