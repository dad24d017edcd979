"""One job of a run: a method in a setting with a seed, from its first question to its rows.

Of a method's rounds the one with the lowest validation error is kept, the last where training kept nothing out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprognos import __version__, config
from fedprognos.evaluation import HistoryRow, Prediction, Row
from fedprognos.features import Recipe, WindowSet
from fedprognos.federation.assess import Examination, FloatArray, Predictor, assess, errors, network_predictor
from fedprognos.federation.cohort import Cohort
from fedprognos.federation.details import matching_details, round_details
from fedprognos.federation.events import JobKey, LayerMatched, LeftOut, Observer, RoundDone
from fedprognos.federation.heads import Finished, finish, personal_heads
from fedprognos.federation.intervals import calibrate, coverage_of
from fedprognos.federation.memory import RememberingCohort
from fedprognos.federation.messages import Failure
from fedprognos.federation.scenario import EVERYONE
from fedprognos.federation.seeds import stream
from fedprognos.federation.site import Site
from fedprognos.federation.strategies import Model, Plan, Round, strategy
from fedprognos.model import Bundle, Calibration, NetworkSpec, network_with, parameters_of, predict
from fedprognos.model.head import with_head


@dataclass(frozen=True, eq=False)
class Stage:
    """A setting made ready.

    Parameters
    ----------
    sites
        The clients' folders; personal heads are read from them, which only works on one machine.
    raw_bytes
        What central training would have to bring together.
    """

    recipe: Recipe
    exam: Examination
    sites: Mapping[str, Site]
    raw_bytes: int


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
    errors: Mapping[str, tuple[float, float | None]]

    @property
    def test_rmse(self) -> float:
        return self.errors[EVERYONE][0] if EVERYONE in self.errors else next(iter(self.errors.values()))[0]


def run_job(
    key: JobKey,
    name: str,
    experiment: config.Experiment,
    stage: Stage,
    trainers: RememberingCohort,
    clients: Cohort,
    tell: Observer,
    *,
    published: bool = False,
) -> JobResult:
    """Train one way, finish with every head, choose the round, examine.

    Parameters
    ----------
    trainers
        Who the method trains with: the clients, or for central training the one that holds everything.
    clients
        The clients themselves, who make personal heads.
    published
        Whether this method's bundle is the one to use: then it is calibrated where the experiment asks for it.
    """

    def left_out(failure: Failure) -> None:
        tell(LeftOut(key, failure.client, failure.code, failure.text))

    section = experiment.model
    network = NetworkSpec(
        inputs=stage.recipe.channels, widths=section.widths, cell=section.cell, input_width=section.input_width
    )
    seed = stream(key.seed, "", 0, "run")
    plan = Plan(stage.recipe, network, experiment.train, experiment.federation, seed, left_out=left_out)
    job = _Job(key, name, experiment, stage, plan, trainers, clients, tell, published)
    return job.run()


@dataclass(eq=False)
class _Job:
    key: JobKey
    name: str
    experiment: config.Experiment
    stage: Stage
    plan: Plan
    trainers: RememberingCohort
    clients: Cohort
    tell: Observer
    published: bool
    result: JobResult = field(default_factory=JobResult)

    def run(self) -> JobResult:
        candidates: dict[tuple[tuple[str, ...], str], list[_Candidate]] = defaultdict(list)
        best, since = np.inf, 0
        for round_ in strategy(self.key.method)(self.trainers, self.plan):
            self._tell_matched(round_)
            for model in round_.models:
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

    def _owners(self, model: Model) -> tuple[str, ...]:
        """Who a row says it was trained on: central training is everybody's."""
        return model.clients if self.key.method != "central" else self.stage.exam.clients

    def _candidate(self, round_: int, finished: Finished) -> _Candidate:
        owners = self._owners(finished.model)
        predictor = network_predictor(finished.model.network, finished.weights, self.stage.recipe)
        found = errors(self.stage.exam, owners, predictor)
        traffic = self.trainers.traffic
        for test, (raw, capped) in found.items():
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
            if self.experiment.evaluation.best_on_test and len(rounds) > 1:
                self._rows(owners, min(rounds, key=lambda c: c.test_rmse), "test")
        if head == "exact" and "personal" in wanted and not self.stage.exam.shared_test:
            self._personal(owners, chosen, "validation" if validated else "last")
        if first:
            client = owners[0] if self.key.method == "local" else None
            self.result.bundles[client] = self._bundle(owners, chosen, calibration)

    def _facts(self, chosen: _Candidate, head: str, selected_on: str) -> dict[str, object]:
        model = chosen.finished.model
        moved = {"local": 0, "central": self.stage.raw_bytes}.get(self.key.method, chosen.bytes)
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
        finished = chosen.finished
        predictor = network_predictor(finished.model.network, finished.weights, self.stage.recipe)
        self._assess(self.key.method, owners, predictor, self._facts(chosen, finished.head, selected_on), calibration)

    def _personal(self, owners: tuple[str, ...], chosen: _Candidate, selected_on: str) -> None:
        """Every client's own head, examined on its own test units; it is read from the client's folder."""
        keys = personal_heads(self.clients, self.plan, chosen.finished, owners)
        network, shared = chosen.finished.model.network, chosen.finished.weights

        def predictor(windows: WindowSet, test: str) -> FloatArray | None:
            if test not in keys:
                return None
            weights = with_head(shared, self.stage.sites[test].load_head(keys[test]))
            return predict(network_with(network, weights), windows, self.stage.recipe)

        facts = self._facts(chosen, "personal", selected_on)
        self._assess(f"{self.key.method}+personal", owners, predictor, facts)

    def _mean_of_locals(self, candidates: Mapping[tuple[tuple[str, ...], str], Sequence[_Candidate]]) -> None:
        """The mean of the clients' predictions: what federating must at least be worth."""
        everyone = self.stage.exam.clients
        for head in dict.fromkeys(head for _, head in candidates):
            members = [found[-1] for (_, h), found in candidates.items() if h == head]
            if len(members) < 2 or head not in self.plan.federation.heads:
                continue
            voices = [
                network_predictor(m.finished.model.network, m.finished.weights, self.stage.recipe) for m in members
            ]
            first = self._facts(members[0], head, "validation" if members[0].finished.validation_rmse else "last")
            total = sum(parameters_of(m.finished.model.network) for m in members)
            facts = {**first, "parameters": total, "width": None, "collapsed": False, "bytes": 4 * total}
            self._assess("mean-of-locals", everyone, _mean(voices), facts)

    def _assess(
        self,
        method: str,
        owners: tuple[str, ...],
        predictor: Predictor,
        facts: Mapping[str, object],
        calibration: Calibration | None = None,
    ) -> None:
        draw = facts["selected_on"] != "test"
        rows, predictions = assess(self.stage.exam, method, self.key.seed, owners, predictor, facts, draw=draw)
        if calibration is not None:
            rows = [self._with_coverage(row, calibration, predictor) for row in rows]
        self.result.rows += rows
        if draw:
            self.result.predictions += predictions

    def _with_coverage(self, row: Row, calibration: Calibration, predictor: Predictor) -> Row:
        """The row with the share of test labels that intervals hold."""
        tests = self.stage.exam.scored
        names = [row.test_client] if row.test_client in tests else sorted(tests)
        truth = np.concatenate([tests[name].labels for name in names])
        said = np.concatenate([v for name in names if (v := predictor(tests[name], name)) is not None])
        measured = coverage_of(calibration, truth, said, self.experiment.evaluation.coverage)
        return row.model_copy(update=measured)

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
        model = chosen.finished.model
        return Bundle(self.stage.recipe, model.network, chosen.finished.weights, provenance, metrics, calibration)

    def _tell_matched(self, round_: Round) -> None:
        for model in round_.models:
            for client, epochs in model.history.items():
                for e in epochs:
                    self._note(client=client, round=round_.number, **vars(e))
        for matched in round_.matched:
            facts = matching_details(matched)
            self.tell(LayerMatched(self.key, round_.number, **facts))
        if round_.matched and self.key.seed == 0:
            self.result.details.append(round_details(round_, self.stage.exam))

    def _tell_round(
        self, round_: Round, candidates: Mapping[tuple[tuple[str, ...], str], Sequence[_Candidate]]
    ) -> None:
        latest = {head: found[-1] for (_, head), found in candidates.items()}
        validation = {head: c.finished.validation_rmse for head, c in latest.items()}
        rmse = {head: c.test_rmse for head, c in latest.items()}
        traffic = self.trainers.traffic
        self.tell(RoundDone(self.key, round_.number, validation, rmse, traffic.messages, traffic.bytes))


def _validation(candidates: Mapping[tuple[tuple[str, ...], str], Sequence[_Candidate]], round_: int) -> float:
    """Validation error of the first head after a round; infinite where there is none."""
    for found in candidates.values():
        if found[-1].round == round_:
            error = found[-1].finished.validation_rmse
            return np.inf if error is None else error
    return np.inf


def _mean(voices: Sequence[Predictor]) -> Predictor:
    def predictor(windows: WindowSet, test: str) -> FloatArray | None:
        heard = [v for voice in voices if (v := voice(windows, test)) is not None]
        total: FloatArray = np.sum(heard, axis=0)
        return total / len(heard)

    return predictor
