"""A job of a deployed federation: the same rounds and choices as in one process, scored on what training kept out.

The coordinator has no test units. Scores are sums that the sites tell of their validation parts, labels capped as in
training; what the model is worth on test units each site finds out for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fedprognos import config
from fedprognos.features import Recipe
from fedprognos.federation.assess import Examination
from fedprognos.federation.cohort import gather
from fedprognos.federation.details import matching_details
from fedprognos.federation.events import JobKey, LayerMatched, LeftOut, Observer
from fedprognos.federation.heads import Finished
from fedprognos.federation.job import JobResult, Stage, _Candidate, _Job
from fedprognos.federation.memory import RememberingCohort
from fedprognos.federation.messages import ErrorSums, ExamineReply, ExamineRequest, Failure
from fedprognos.federation.scenario import EVERYONE
from fedprognos.federation.seeds import stream
from fedprognos.federation.strategies import Plan, Round
from fedprognos.model import Bundle, NetworkSpec, parameters_of
from fedprognos.model.calibration import Calibration


class ValidationRow(BaseModel):
    """One final result, on the sites' validation parts; `test_client` is a site, or "all" for everybody's sums."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    setting: str
    method: str
    head: str
    train_clients: tuple[str, ...]
    test_client: str
    seed: int
    round: int
    selected_on: Literal["validation", "last"]
    scored_on: Literal["validation"] = "validation"
    rmse_capped: float
    mae_capped: float
    bias_capped: float
    n_test: int
    unit: str
    width: tuple[int, ...]
    parameters: int
    local_epochs: int
    bytes: int
    messages: int
    collapsed: bool


class RoundRow(BaseModel):
    """The model after a round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    setting: str
    method: str
    seed: int
    round: int
    head: str
    validation_rmse: float | None
    width: tuple[int, ...]
    bytes: int
    messages: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a deployed job found."""

    rows: tuple[ValidationRow, ...]
    rounds: tuple[RoundRow, ...]
    bundles: Mapping[str | None, Bundle]
    details: Sequence[dict[str, object]]


def run_deployed_job(
    key: JobKey,
    name: str,
    experiment: config.Experiment,
    recipe: Recipe,
    cohort: RememberingCohort,
    tell: Observer,
    *,
    published: bool = False,
) -> Outcome:
    """Train one way over the network, finish with every head, choose the round; calibrate the published method."""

    def left_out(failure: Failure) -> None:
        tell(LeftOut(key, failure.client, failure.code, failure.text))

    section = experiment.model
    network = NetworkSpec(
        inputs=recipe.channels, widths=section.widths, cell=section.cell, input_width=section.input_width
    )
    seed = stream(key.seed, "", 0, "run")
    plan = Plan(recipe, network, experiment.train, experiment.federation, seed, left_out=left_out)
    exam = Examination(key.setting, recipe, {}, {}, cohort.clients, shared_test=True, bootstrap=0)
    stage = Stage(recipe, exam, {}, raw_bytes=0)
    job = _DeployedJob(key, name, experiment, stage, plan, cohort, cohort, tell, published)
    result = job.run()
    return Outcome(tuple(job.validation), tuple(job.rounds), result.bundles, result.details)


@dataclass(eq=False)
class _DeployedJob(_Job):
    """Differs from a job in one process in how models are scored, not in how they are made or chosen."""

    result: JobResult = field(default_factory=JobResult)
    validation: list[ValidationRow] = field(default_factory=list)
    rounds: list[RoundRow] = field(default_factory=list)

    def _keys(self) -> dict[str, Any]:
        return {"setting": self.key.setting, "method": self.key.method, "seed": self.key.seed}

    def _candidate(self, round_: int, finished: Finished) -> _Candidate:
        traffic = self.trainers.traffic
        score = finished.validation_rmse
        self.rounds.append(
            RoundRow(
                **self._keys(),
                round=round_,
                head=finished.head,
                validation_rmse=score,
                width=finished.model.network.widths,
                bytes=traffic.bytes,
                messages=traffic.messages,
            )
        )
        errors = {EVERYONE: (float("nan") if score is None else score, score)}
        return _Candidate(round_, finished, traffic.bytes, traffic.messages, errors)

    def _rows(
        self, owners: tuple[str, ...], chosen: _Candidate, selected_on: str, calibration: Calibration | None = None
    ) -> None:
        if selected_on == "test":
            return
        sums = self._sums(owners, chosen.finished)
        if not sums:
            return
        model = chosen.finished.model
        for name, found in {**sums, EVERYONE: reduce(ErrorSums.add, sums.values())}.items():
            self.validation.append(
                ValidationRow(
                    **self._keys(),
                    head=chosen.finished.head,
                    train_clients=owners,
                    test_client=name,
                    round=chosen.round,
                    selected_on="validation" if selected_on == "validation" else "last",
                    rmse_capped=found.rmse,
                    mae_capped=found.absolute / found.n,
                    bias_capped=found.error / found.n,
                    n_test=found.n,
                    unit=self.stage.recipe.target_unit,
                    width=model.network.widths,
                    parameters=parameters_of(model.network),
                    local_epochs=model.epochs,
                    bytes=chosen.bytes,
                    messages=chosen.messages,
                    collapsed=model.collapsed,
                )
            )

    def _sums(self, owners: tuple[str, ...], finished: Finished) -> dict[str, ErrorSums]:
        """Every site's sums; of a head as trained they were told already, and the answers are remembered."""
        fraction = self.plan.train.validation_fraction
        if fraction == 0:
            return {}
        told = finished.head == "mean" and any(head != "mean" for head in self.plan.federation.heads)
        request = ExamineRequest(
            self.plan.recipe, finished.model.network, finished.weights, self.plan.seed, fraction, told
        )
        asked = {name: request for name in self.trainers.clients if name in owners}
        replies = gather(self.trainers, asked, ExamineReply, self.plan.federation.min_clients, self.plan.left_out)
        return {name: reply.validation for name, reply in replies.items() if reply.validation is not None}

    def _personal(self, owners: tuple[str, ...], chosen: _Candidate, selected_on: str) -> None:
        """Sites make their own heads when the model is delivered."""

    def _mean_of_locals(self, candidates: Mapping[tuple[tuple[str, ...], str], Sequence[_Candidate]]) -> None:
        """Nothing to examine an ensemble on."""

    def _bundle(self, owners: tuple[str, ...], chosen: _Candidate, calibration: Calibration | None = None) -> Bundle:
        bundle = super()._bundle(owners, chosen, calibration)
        return replace(bundle, metrics={"validation": {"rmse_capped": chosen.finished.validation_rmse}})

    def _tell_matched(self, round_: Round) -> None:
        for matched in round_.matched:
            self.tell(LayerMatched(self.key, round_.number, **matching_details(matched)))
        if round_.matched and self.key.seed == 0:
            layers = [
                {**matching_details(m), "assignments": {n: a.tolist() for n, a in m.matching.assignments.items()}}
                for m in round_.matched
            ]
            self.result.details.append({"round": round_.number, "layers": layers})
