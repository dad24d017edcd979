"""One job of a run: a method in a scenario with a seed, from its first question to its rows.

The round with the lowest validation error is kept, or the last round if training kept nothing out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedprognos import __version__
from fedprognos.evaluation import EVERYONE, ClientPredictions, HistoryRow, MatchRound, ResultRow
from fedprognos.experiment import config
from fedprognos.experiment.evaluator import Errors, Evaluator, FinishedModel
from fedprognos.experiment.match_summary import layer_match, match_round
from fedprognos.experiment.run_events import (
    MEAN_OF_LOCALS,
    JobKey,
    LayerMatched,
    LeftOut,
    NeuronsAbsorbed,
    Observer,
    RoundDone,
)
from fedprognos.features import Recipe
from fedprognos.federation import (
    ChoiceReply,
    Cohort,
    Intervals,
    Judged,
    MessageCohort,
    Plan,
    Round,
    Uncalibrated,
    Unmeasured,
    chosen_heads,
    head_name,
    judged_rounds,
    measured_novelty,
    personal_heads,
)
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.strategies import Strategy, strategies
from fedprognos.fleet import layout_of
from fedprognos.networks import Bundle, Calibration, Network, NetworkSpec
from fedprognos.privacy import stream


@dataclass(eq=False)
class JobResult:
    """The results of a job; `bundles` by client, or by None for a model that is everybody's."""

    rows: list[ResultRow] = field(default_factory=list)
    predictions: list[ClientPredictions] = field(default_factory=list)
    history: list[HistoryRow] = field(default_factory=list)
    bundles: dict[str | None, Bundle] = field(default_factory=dict)
    match_rounds: list[MatchRound] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model after a round, with one kind of head, and what had been sent by then."""

    round: Round
    clients: tuple[str, ...]
    head: str
    bytes: int
    errors: Errors

    @property
    def judged(self) -> Judged:
        return self.round.judged[self.clients][self.head]

    @property
    def network(self) -> Network:
        return self.judged.network

    @property
    def test_rmse(self) -> float:
        return self.errors[EVERYONE][0] if EVERYONE in self.errors else next(iter(self.errors.values()))[0]

    @property
    def deciding_rmse(self) -> float:
        """The test error that methods are compared by: on capped labels where labels are capped."""
        raw, capped = self.errors[EVERYONE] if EVERYONE in self.errors else next(iter(self.errors.values()))
        return raw if capped is None else capped


Candidates = dict[tuple[tuple[str, ...], str], list[_Candidate]]
"""By the clients whose model it is and the kind of head, round after round."""


def plan_of(experiment: config.Experiment, recipe: Recipe, seed: int) -> Plan:
    """What the clients agree on for one seed of an experiment."""
    model = experiment.model
    spec = NetworkSpec(
        inputs=recipe.channels,
        widths=model.widths,
        cell=model.cell,
        input_width=model.input_width,
        reservoir=model.reservoir,
        direct=model.direct,
    )
    run = stream(seed, "", 0, "run")
    return Plan(recipe, spec, experiment.train, experiment.federation, run, releases=experiment.releases)


def choice_name(key: JobKey, *, all_units: bool) -> str:
    """Name of the heads that clients choose in a job, or make again for all units."""
    return head_name("choice for all units" if all_units else "choice", key)


@dataclass(eq=False)
class Job:
    """Trains one way, gives every head, chooses the round, evaluates.

    Parameters
    ----------
    trainers
        Who the method trains with: the clients, or for central training the one that holds everything.
    clients
        The clients themselves, who make personal heads.
    earlier
        What clients chose for their own machines before: they do not choose again.
    calibrated
        Whether to calibrate prediction intervals for this method's model.
    """

    key: JobKey
    name: str
    experiment: config.Experiment
    recipe: Recipe
    evaluator: Evaluator
    trainers: MessageCohort
    clients: Cohort
    notify: Observer
    calibrated: bool = False
    result: JobResult = field(default_factory=JobResult)
    harmful: set[str] = field(default_factory=set)
    earlier: Mapping[str, ChoiceReply] | None = None
    choices: Mapping[str, ChoiceReply] = field(default_factory=dict)

    @property
    def choice_name(self) -> str:
        """Name of the heads that clients choose; those made for all units do not replace the evaluated ones."""
        return choice_name(self.key, all_units=self.earlier is not None)

    @property
    def strategy(self) -> Strategy:
        return strategies[self.key.method]

    def run(self) -> JobResult:
        def left_out(failure: Failure) -> None:
            self.notify(LeftOut(self.key, failure.client, failure.code, failure.text))
            if failure.code == "harmful":
                self.harmful.add(failure.client)

        plan = plan_of(self.experiment, self.recipe, self.key.seed)
        self.plan = replace(plan, left_out=left_out, clients=len(self.evaluator.clients))
        candidates: Candidates = defaultdict(list)
        for round_ in judged_rounds(self.strategy, self.trainers, self.plan):
            self._note_training(round_)
            for clients, heads in round_.judged.items():
                for head in heads:
                    owners = self._owners(clients)
                    candidates[owners, head].append(self._candidate(round_, clients, owners, head))
            self._notify_round(round_, candidates)
        for (owners, head), rounds in candidates.items():
            self._conclude(owners, head, rounds)
        if self.strategy.trains and not self.strategy.shared:
            self._mean_of_locals(candidates)
        return self.result

    def _owners(self, clients: tuple[str, ...]) -> tuple[str, ...]:
        """Who a row says it was trained on: central training is everybody's."""
        return self.evaluator.clients if self.strategy.pooled else clients

    def _candidate(self, round_: Round, clients: tuple[str, ...], owners: tuple[str, ...], head: str) -> _Candidate:
        judged = round_.judged[clients][head]
        evaluation = self.experiment.evaluation
        # Testing every round costs a pass over all test units each time, so it is done only where it was asked for.
        wanted = evaluation.curves or evaluation.best_on_test
        errors = self.evaluator.errors(owners, judged.network) if wanted else {}
        traffic = self.trainers.traffic
        unknown = {owners[0] if len(owners) == 1 else EVERYONE: (None, None)}
        for test, (raw, capped) in (errors or unknown).items():
            self._note(
                client=test,
                round=round_.number,
                validation_rmse=judged.validation_rmse,
                head=head,
                rmse=raw,
                rmse_capped=capped,
                width=judged.network.spec.widths,
                bytes=traffic.bytes,
                messages=traffic.messages,
            )
        return _Candidate(round_, clients, head, traffic.bytes, errors)

    def _note(self, **fields: object) -> None:
        keys = {"scenario": self.key.scenario, "method": self.key.method, "seed": self.key.seed}
        self.result.history.append(HistoryRow.model_validate({**keys, **fields}))

    def _conclude(self, owners: tuple[str, ...], head: str, rounds: Sequence[_Candidate]) -> None:
        """Choose a round and write its rows; the bundle is that of the first head asked for."""
        scores = [c.judged.validation_rmse for c in rounds]
        validated = all(s is not None for s in scores)
        chosen = rounds[int(np.argmin(np.array(scores, dtype=float)))] if validated else rounds[-1]
        selected_on = "validation" if validated else "last"
        wanted = self.plan.federation.heads
        first = head == ("exact" if wanted[0] == "personal" else wanted[0])
        calibration: Calibration | Uncalibrated = Uncalibrated("this model was not calibrated")
        if first and self.calibrated:
            intervals = Intervals(self.trainers, self.plan, self.strategy, chosen.clients, chosen.round.number)
            calibration = intervals.calibrate(chosen.judged)
        if head in wanted:
            self._rows(owners, chosen, selected_on, calibration if isinstance(calibration, Calibration) else None)
            if self.experiment.evaluation.best_on_test and len(rounds) > 1 and chosen.errors:
                self._rows(owners, min(rounds, key=lambda c: c.test_rmse), "test")
        if head == "exact" and "personal" in wanted and not self.evaluator.shared_test:
            name = head_name(self.key, chosen.round.number, *owners)
            heads = personal_heads(self.clients, self.plan, chosen.network, owners, name)
            facts = self._facts(chosen, "personal", selected_on)
            method = f"{self.key.method}+personal"
            self._evaluate(FinishedModel(self.key, method, owners, [chosen.network], facts, heads))
        if head == "exact" and "choice" in wanted and self.strategy.shared and not self.strategy.pooled:
            self._choose(owners, chosen, selected_on)
        if first:
            self.result.bundles[None if self.strategy.shared else owners[0]] = self._bundle(owners, chosen, calibration)

    def _choose(self, owners: tuple[str, ...], chosen: _Candidate, selected_on: str) -> None:
        """Let every client choose the head for its own machines, and evaluate what the clients end up with."""
        name = self.choice_name
        fitted = chosen.judged.fitted
        self.choices = chosen_heads(self.clients, self.plan, chosen.network, owners, fitted, name, self.earlier)
        if not self.evaluator.shared_test:
            facts, method = self._facts(chosen, "choice", selected_on), f"{self.key.method}+choice"
            heads = dict.fromkeys(self.choices, name)
            self._evaluate(FinishedModel(self.key, method, owners, [chosen.network], facts, heads))

    def _rows(
        self, owners: tuple[str, ...], chosen: _Candidate, selected_on: str, calibration: Calibration | None = None
    ) -> None:
        facts = self._facts(chosen, chosen.head, selected_on)
        network = [chosen.network]
        self._evaluate(FinishedModel(self.key, self.key.method, owners, network, facts, calibration=calibration))

    def _facts(self, chosen: _Candidate, head: str, selected_on: str) -> dict[str, object]:
        moved = self.evaluator.raw_bytes if self.strategy.pooled else chosen.bytes if self.strategy.shared else 0
        return {
            "head": head,
            "round": chosen.round.number,
            "selected_on": selected_on,
            "width": chosen.network.spec.widths,
            "parameters": chosen.network.spec.parameters,
            "local_epochs": chosen.round.epochs_of(chosen.clients),
            "bytes": moved,
            "collapsed": chosen.clients[0] in chosen.round.collapsed,
            "left_out": tuple(sorted(self.harmful)),
        }

    def _mean_of_locals(self, candidates: Candidates) -> None:
        """The mean of the clients' predictions: what federating must at least be worth."""
        for head in dict.fromkeys(head for _, head in candidates):
            members = [rounds[-1] for (_, h), rounds in candidates.items() if h == head]
            if len(members) < 2 or head not in self.plan.federation.heads:
                continue
            first = self._facts(members[0], head, "validation" if members[0].judged.validation_rmse else "last")
            total = sum(m.network.spec.parameters for m in members)
            facts = {**first, "parameters": total, "width": None, "collapsed": False, "bytes": 4 * total}
            networks, owners = [m.network for m in members], self.evaluator.clients
            self._evaluate(FinishedModel(self.key, MEAN_OF_LOCALS, owners, networks, facts))

    def _evaluate(self, model: FinishedModel) -> None:
        rows, predictions = self.evaluator.rows(model)
        self.result.rows += rows
        self.result.predictions += predictions

    def _bundle(self, owners: tuple[str, ...], chosen: _Candidate, calibration: Calibration | Uncalibrated) -> Bundle:
        provenance = {
            "experiment": self.name,
            "fedprognos": __version__,
            "scenario": self.key.scenario,
            "method": self.key.method,
            "head": chosen.head,
            "seed": self.key.seed,
            "round": chosen.round.number,
            "train_clients": list(owners),
        }
        if chosen.judged.sums is not None:
            provenance["ridge"] = chosen.judged.sums.strength
        if self.choices and self.strategy.shared:
            provenance["choices"] = {client: vars(choice) for client, choice in sorted(self.choices.items())}
        if (options := self.plan.federation.privacy) is not None:
            account = options.account(self.plan.releases, self.trainers.sums is not None)
            provenance["privacy"] = {**vars(account), "text": account.in_words()}
        if isinstance(calibration, Uncalibrated):
            provenance["no_intervals"] = calibration.reason
        usable = calibration if isinstance(calibration, Calibration) else None
        errors = chosen.errors or self.evaluator.errors(owners, chosen.network)
        metrics = {test: {"rmse": raw, "rmse_capped": capped} for test, (raw, capped) in errors.items()}
        if not metrics:
            metrics = {"validation": {"rmse": None, "rmse_capped": chosen.judged.validation_rmse}}
        layout = layout_of(self.experiment.data)
        measured = measured_novelty(self.trainers, self.plan, chosen.clients, chosen.judged)
        if isinstance(measured, Unmeasured):
            provenance["no_novelty"] = measured.reason
        novelty = None if isinstance(measured, Unmeasured) else measured
        return Bundle(self.recipe, chosen.network, provenance, metrics, usable, layout, novelty)

    def _note_training(self, round_: Round) -> None:
        for client, epochs in round_.history.items():
            for e in epochs:
                self._note(client=client, round=round_.number, **vars(e))
        for matched in round_.matched:
            m = layer_match(matched)
            facts = (m.layer, m.width, m.shared_by_all, m.singletons, m.absorbing)
            self.notify(LayerMatched(self.key, round_.number, *facts))
        if (record := round_.absorbed) is not None:
            neurons = record.before.spec.hidden
            self.notify(NeuronsAbsorbed(self.key, round_.number, neurons, record.kept))
        if (round_.matched or round_.absorbed) and self.key.seed == 0:
            self.result.match_rounds.append(match_round(round_, self.evaluator.probe))

    def _notify_round(self, round_: Round, candidates: Candidates) -> None:
        latest = {head: rounds[-1] for (_, head), rounds in candidates.items()}
        validation = {head: c.judged.validation_rmse for head, c in latest.items()}
        rmse = {head: c.deciding_rmse for head, c in latest.items() if c.errors}
        traffic = self.trainers.traffic
        self.notify(
            RoundDone(self.key, round_.number, validation, rmse, traffic.messages, traffic.bytes, self.recipe.cap)
        )
