"""One job of a run: a method in a setting with a seed, from its first question to its rows.

Of a method's rounds the one with the lowest validation error is kept, the last where training kept nothing out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedprognos import __version__
from fedprognos.evaluation import HistoryRow, Prediction, Row
from fedprognos.experiment import config
from fedprognos.experiment.evaluator import Errors, Examiner, Subject
from fedprognos.experiment.events import JobKey, LayerMatched, LeftOut, Observer, RoundDone
from fedprognos.experiment.match_records import matching_details, round_details
from fedprognos.experiment.scenario import EVERYONE
from fedprognos.features import Recipe
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.heads import Finished, finish, personal_heads
from fedprognos.federation.intervals import calibrate
from fedprognos.federation.memory import RememberingCohort
from fedprognos.federation.messages import Failure
from fedprognos.federation.precision import as_travelled
from fedprognos.federation.seeds import stream
from fedprognos.federation.strategies import Model, Plan, Round, strategy
from fedprognos.networks import Bundle, Calibration, NetworkSpec, parameters_of


@dataclass(eq=False)
class JobResult:
    """What a job found; `bundles` by client, or by None for a model that is everybody's."""

    rows: list[Row] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    history: list[HistoryRow] = field(default_factory=list)
    bundles: dict[str | None, Bundle] = field(default_factory=dict)
    details: list[dict[str, object]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model after a round, with one kind of head."""

    round: int
    finished: Finished
    bytes: int
    messages: int
    errors: Errors

    @property
    def test_rmse(self) -> float:
        return self.errors[EVERYONE][0] if EVERYONE in self.errors else next(iter(self.errors.values()))[0]


def run_job(
    key: JobKey,
    name: str,
    experiment: config.Experiment,
    recipe: Recipe,
    examiner: Examiner,
    trainers: RememberingCohort,
    clients: Cohort,
    tell: Observer,
    *,
    raw_bytes: int = 0,
    published: bool = False,
) -> JobResult:
    """Train one way, finish with every head, choose the round, examine.

    Parameters
    ----------
    trainers
        Who the method trains with: the clients, or for central training the one that holds everything.
    clients
        The clients themselves, who make personal heads.
    raw_bytes
        What central training would have to bring together.
    published
        Whether this method's bundle is the one to use: then it is calibrated where the experiment asks for it.
    """

    def left_out(failure: Failure) -> None:
        tell(LeftOut(key, failure.client, failure.code, failure.text))

    section = experiment.model
    network = NetworkSpec(
        inputs=recipe.channels, widths=section.widths, cell=section.cell, input_width=section.input_width
    )
    seed = stream(key.seed, "", 0, "run")
    plan = Plan(recipe, network, experiment.train, experiment.federation, seed, left_out=left_out)
    job = _Job(key, name, experiment, plan, examiner, trainers, clients, tell, raw_bytes, published)
    return job.run()


@dataclass(eq=False)
class _Job:
    key: JobKey
    name: str
    experiment: config.Experiment
    plan: Plan
    examiner: Examiner
    trainers: RememberingCohort
    clients: Cohort
    tell: Observer
    raw_bytes: int
    published: bool
    result: JobResult = field(default_factory=JobResult)

    def run(self) -> JobResult:
        candidates: dict[tuple[tuple[str, ...], str], list[_Candidate]] = defaultdict(list)
        best, since = np.inf, 0
        for round_ in strategy(self.key.method)(self.trainers, self.plan):
            self._tell_matched(round_)
            for model in (self._as_travelled(m) for m in round_.models):
                for head, finished in finish(self.trainers, self.plan, model).items():
                    one = self._candidate(round_.number, finished)
                    candidates[self._owners(model), head].append(one)
            self._tell_round(round_, candidates)
            score = _validation(candidates, round_.number)
            best, since = (score, 0) if score < best else (best, since + 1)
            patience = self.plan.federation.patience
            if patience is not None and np.isfinite(best) and since >= patience:
                break
        for (owners, head), rounds in candidates.items():
            self._conclude(owners, head, rounds)
        if self.key.method == "local":
            self._mean_of_locals(candidates)
        return self.result

    def _as_travelled(self, model: Model) -> Model:
        """What is published is what clients had and examined, to the last bit."""
        return replace(model, weights=as_travelled(model.weights, self.plan.federation.wire))

    def _owners(self, model: Model) -> tuple[str, ...]:
        """Who a row says it was trained on: central training is everybody's."""
        return model.clients if self.key.method != "central" else self.examiner.clients

    def _candidate(self, round_: int, finished: Finished) -> _Candidate:
        owners = self._owners(finished.model)
        found = self.examiner.errors(owners, finished)
        traffic = self.trainers.traffic
        unknown = {owners[0] if len(owners) == 1 else EVERYONE: (None, None)}
        for test, (raw, capped) in (found or unknown).items():
            self._note(
                client=test,
                round=round_,
                validation_rmse=finished.validation_rmse,
                head=finished.head,
                rmse=raw,
                rmse_capped=capped,
                width=finished.model.network.widths,
                bytes=traffic.bytes,
                messages=traffic.messages,
            )
        return _Candidate(round_, finished, traffic.bytes, traffic.messages, found)

    def _note(self, **fields: object) -> None:
        keys = {"setting": self.key.setting, "method": self.key.method, "seed": self.key.seed}
        self.result.history.append(HistoryRow.model_validate({**keys, **fields}))

    def _conclude(self, owners: tuple[str, ...], head: str, rounds: Sequence[_Candidate]) -> None:
        """Choose a round and write its rows; the bundle is that of the first head asked for."""
        scores = [c.finished.validation_rmse for c in rounds]
        validated = all(s is not None for s in scores)
        chosen = rounds[int(np.argmin(np.array(scores, dtype=float)))] if validated else rounds[-1]
        wanted = self.plan.federation.heads
        first = head == ("exact" if wanted[0] == "personal" else wanted[0])
        folds = self.experiment.evaluation.folds if first and self.published else 0
        calibration = None
        if folds:
            cohort = self.trainers
            calibration = calibrate(cohort, self.plan, self.key.method, head, chosen.round, folds)
        if head in wanted:
            self._rows(owners, chosen, "validation" if validated else "last", calibration)
            if self.experiment.evaluation.best_on_test and len(rounds) > 1 and chosen.errors:
                self._rows(owners, min(rounds, key=lambda c: c.test_rmse), "test")
        if head == "exact" and "personal" in wanted and not self.examiner.shared_test:
            self._personal(owners, chosen, "validation" if validated else "last")
        if first:
            client = owners[0] if self.key.method == "local" else None
            self.result.bundles[client] = self._bundle(owners, chosen, calibration)

    def _facts(self, chosen: _Candidate, head: str, selected_on: str) -> dict[str, object]:
        model = chosen.finished.model
        moved = {"local": 0, "central": self.raw_bytes}.get(self.key.method, chosen.bytes)
        return {
            "head": head,
            "round": chosen.round,
            "selected_on": selected_on,
            "width": model.network.widths,
            "parameters": parameters_of(model.network),
            "local_epochs": model.epochs,
            "bytes": moved,
            "collapsed": model.collapsed,
        }

    def _rows(
        self, owners: tuple[str, ...], chosen: _Candidate, selected_on: str, calibration: Calibration | None = None
    ) -> None:
        facts = self._facts(chosen, chosen.finished.head, selected_on)
        self._assess(self.key.method, owners, Subject((chosen.finished,)), facts, calibration)

    def _personal(self, owners: tuple[str, ...], chosen: _Candidate, selected_on: str) -> None:
        """Every client's own head, examined on its own test units."""
        keys = personal_heads(self.clients, self.plan, chosen.finished, owners)
        facts = self._facts(chosen, "personal", selected_on)
        self._assess(f"{self.key.method}+personal", owners, Subject((chosen.finished,), keys), facts)

    def _mean_of_locals(self, candidates: Mapping[tuple[tuple[str, ...], str], Sequence[_Candidate]]) -> None:
        """The mean of the clients' predictions: what federating must at least be worth."""
        everyone = self.examiner.clients
        for head in dict.fromkeys(head for _, head in candidates):
            members = [found[-1] for (_, h), found in candidates.items() if h == head]
            if len(members) < 2 or head not in self.plan.federation.heads:
                continue
            voices = Subject(tuple(m.finished for m in members))
            first = self._facts(members[0], head, "validation" if members[0].finished.validation_rmse else "last")
            total = sum(parameters_of(m.finished.model.network) for m in members)
            facts = {**first, "parameters": total, "width": None, "collapsed": False, "bytes": 4 * total}
            self._assess("mean-of-locals", everyone, voices, facts)

    def _assess(
        self,
        method: str,
        owners: tuple[str, ...],
        subject: Subject,
        facts: Mapping[str, object],
        calibration: Calibration | None = None,
    ) -> None:
        rows, predictions = self.examiner.rows(self.key, method, owners, subject, facts, calibration)
        self.result.rows += rows
        self.result.predictions += predictions

    def _bundle(self, owners: tuple[str, ...], chosen: _Candidate, calibration: Calibration | None = None) -> Bundle:
        provenance = {
            "experiment": self.name,
            "fedprognos": __version__,
            "setting": self.key.setting,
            "method": self.key.method,
            "head": chosen.finished.head,
            "seed": self.key.seed,
            "round": chosen.round,
            "train_clients": list(owners),
        }
        metrics = {test: {"rmse": raw, "rmse_capped": capped} for test, (raw, capped) in chosen.errors.items()}
        if not metrics:
            metrics = {"validation": {"rmse": None, "rmse_capped": chosen.finished.validation_rmse}}
        model = chosen.finished.model
        return Bundle(self.plan.recipe, model.network, chosen.finished.weights, provenance, metrics, calibration)

    def _tell_matched(self, round_: Round) -> None:
        for model in round_.models:
            for client, epochs in model.history.items():
                for e in epochs:
                    self._note(client=client, round=round_.number, **vars(e))
        for matched in round_.matched:
            facts = matching_details(matched)
            self.tell(LayerMatched(self.key, round_.number, **facts))
        if round_.matched and self.key.seed == 0:
            self.result.details.append(round_details(round_, self.examiner.probe))

    def _tell_round(
        self, round_: Round, candidates: Mapping[tuple[tuple[str, ...], str], Sequence[_Candidate]]
    ) -> None:
        latest = {head: found[-1] for (_, head), found in candidates.items()}
        validation = {head: c.finished.validation_rmse for head, c in latest.items()}
        rmse = {head: c.test_rmse for head, c in latest.items() if c.errors}
        traffic = self.trainers.traffic
        self.tell(RoundDone(self.key, round_.number, validation, rmse, traffic.messages, traffic.bytes))


def _validation(candidates: Mapping[tuple[tuple[str, ...], str], Sequence[_Candidate]], round_: int) -> float:
    """Validation error of the first head after a round; infinite where there is none."""
    for found in candidates.values():
        if found[-1].round == round_:
            error = found[-1].finished.validation_rmse
            return np.inf if error is None else error
    return np.inf
