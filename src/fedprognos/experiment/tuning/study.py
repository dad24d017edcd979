"""The study behind a search: an Optuna study in one SQLite file, safe against being killed at any moment.

What is tried next depends on the finished trials and on their number alone, so that a search that was killed and
started again tries what it would have tried anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedprognos.errors import MissingExtraError, OutputError
from fedprognos.experiment.tuning.events import Trial
from fedprognos.experiment.tuning.space import Choice, Space
from fedprognos.federation.seeds import stream
from fedprognos.files import holding

if TYPE_CHECKING:
    import optuna

DATABASE, LOCK = "study.db", "running.lock"
IDENTITY, REASON = "identity", "reason"
STARTUP = 5
"""Completed trials before any is pruned, and none after its first round."""
FEW = 8
"""Completed trials without which importances say nothing."""


def need_extra() -> None:
    """Refuse to begin where what a search needs is not installed."""
    for package in ("optuna", "sklearn"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "tune", "searching hyper-parameters")


class Study:
    """Trials kept on disk; made by :func:`open_study`."""

    def __init__(self, study: optuna.Study, space: Space, own: Mapping[str, Choice], seed: int) -> None:
        self._study, self._space, self._own, self._seed = study, space, own, seed

    @property
    def trials(self) -> list[Trial]:
        """Finished trials in the order they ran, numbered from 1; those that were killed are not among them."""
        return [_trial(number, frozen) for number, frozen in enumerate(self._finished(), start=1)]

    @property
    def best(self) -> Trial | None:
        """The completed trial with the lowest error."""
        return best_of(self.trials)

    def ask(self) -> optuna.Trial:
        """The next trial: the experiment's own values first, then what the sampler thinks."""
        import optuna

        finished = len(self._finished())
        waiting = self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
        if not finished and self._own and not waiting:
            self._study.enqueue_trial(dict(self._own))
        self._study.sampler = optuna.samplers.TPESampler(seed=stream(self._seed, "", finished, "trial") % 2**32)
        return self._study.ask(
            {name: optuna.distributions.CategoricalDistribution(values) for name, values in self._space.items()}
        )

    def same_as(self, trial: optuna.Trial) -> Trial | None:
        """An earlier trial of the very same values, whose result is this one's too."""
        return next((t for t in self.trials if t.values == trial.params), None)

    def finish(self, trial: optuna.Trial, state: str, error: float | None = None, reason: str = "") -> None:
        """Note how a trial ended.

        A failed one counts as worse than all others, a killed one as if it had never been. A pruned one has reported
        its errors already, unless it is the copy of another.
        """
        import optuna

        if state == "complete":
            self._study.tell(trial, error)
            return
        if error is not None:
            trial.report(error, 0)
        if reason:
            trial.set_user_attr(REASON, reason)
        states = optuna.trial.TrialState
        ended = states.FAIL if state == "killed" else states.PRUNED
        self._study.tell(trial, state=ended, skip_if_finished=state == "killed")

    def importances(self) -> dict[str, float]:
        """Share of the errors' variance that each name explains (fANOVA); empty where trials are too few to tell."""
        import optuna

        completed = [trial for trial in self.trials if trial.state == "complete"]
        if len(completed) < FEW or len({trial.error for trial in completed}) == 1:
            return {}
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self._seed)
        names = [name for name, values in self._space.items() if len(values) > 1]
        shares = optuna.importance.get_param_importances(self._study, evaluator=evaluator, params=names)
        return {name: float(share) for name, share in shares.items()}

    def _finished(self) -> list[optuna.trial.FrozenTrial]:
        import optuna

        states = optuna.trial.TrialState
        return self._study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))


def best_of(trials: list[Trial]) -> Trial | None:
    """The completed trial with the lowest error, the earliest of equals."""
    completed = [trial for trial in trials if trial.state == "complete"]
    return min(completed, key=lambda trial: cast(float, trial.error), default=None)


@contextmanager
def open_study(
    folder: Path, identity: Mapping[str, Any], space: Space, own: Mapping[str, Choice], seed: int
) -> Iterator[Study]:
    """Go on with the study of a folder, or begin one; nobody else may while this lasts.

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
    with holding(folder / LOCK, "another search is going on in this folder", "wait for it, or choose --out"):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{folder / DATABASE}")
        except Exception as error:  # whatever the database and its driver may raise
            raise OutputError(
                f"cannot be opened as a study: {str(error).splitlines()[0]}",
                where=str(folder / DATABASE),
                hint="remove the file to begin anew, or choose another --out",
            ) from error
        try:
            pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=2)
            found = optuna.create_study(
                storage=storage, study_name="fedprognos", pruner=pruner, load_if_exists=True, direction="minimize"
            )
            _claim(found, identity, folder)
            for trial in found.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
                found.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # killed, for nobody else is here
            yield Study(found, space, own, seed)
        finally:
            storage.engine.dispose()


def _claim(study: optuna.Study, identity: Mapping[str, Any], folder: Path) -> None:
    """Write down what a new study is about, or check that this one is about the same."""
    plain = json.loads(json.dumps(identity))
    found = study.user_attrs.get(IDENTITY)
    if found is None:
        study.set_user_attr(IDENTITY, plain)
    elif found != plain:
        differs = [key for key in plain if found.get(key) != plain[key]]
        raise OutputError(
            f"this folder holds a search with another {', '.join(differs)}",
            where=str(folder),
            hint="choose another --out, or remove the folder",
        )


def _trial(number: int, frozen: optuna.trial.FrozenTrial) -> Trial:
    values = cast(dict[str, Choice], dict(frozen.params))
    if (reason := frozen.user_attrs.get(REASON)) is not None:
        return Trial(number, values, "failed", None, str(reason))
    if frozen.value is not None and frozen.state.name == "COMPLETE":
        return Trial(number, values, "complete", float(frozen.value))
    known = frozen.intermediate_values
    return Trial(number, values, "pruned", float(known[max(known)]) if known else None)
