"""The model to use, trained on all units: the evaluation's test units and what its training kept out as well.

The evaluation measures how good such a model is on units that it has not seen. Then the chosen method trains once more,
with the same recipe, on everything its clients have. That model is published with the error and the intervals of the
evaluation: it has learnt from more units, so both are on the safe side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedprognos.arrays import FloatArray
from fedprognos.evaluation import ClientPredictions, ResultRow
from fedprognos.experiment.conclusion import Published
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.engines import Engine
from fedprognos.experiment.evaluator import Errors, FinishedModel
from fedprognos.experiment.job import Job, choice_name
from fedprognos.experiment.local_clients import LocalClients
from fedprognos.experiment.run_events import EpochDone, JobKey, Notice, Observer
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.experiment.scenario import Scenario
from fedprognos.federation import ChoiceReply, MessageCohort, ReplyJournal
from fedprognos.federation.strategies import strategies
from fedprognos.networks import Bundle, Epoch


@dataclass(frozen=True)
class NoTests:
    """Evaluates nothing: every unit is trained on."""

    clients: tuple[str, ...]
    shared_test: bool = True
    probe: NDArray[np.float32] | None = None
    raw_bytes: int = 0

    def errors(self, owners: Sequence[str], network: object) -> Errors:
        return {}

    def rows(self, model: FinishedModel) -> tuple[list[ResultRow], list[ClientPredictions]]:
        return [], []


def refitted(
    name: str,
    experiment: Experiment,
    scenario: Scenario,
    evaluated: Bundle,
    folder: RunFolder,
    engine: Engine | None,
    notify: Observer,
) -> tuple[Bundle, dict[str, Bundle]]:
    """The evaluated model's method, trained on all units of a scenario, and the model that each owner chose.

    Parameters
    ----------
    evaluated
        The model that was evaluated: its method, recipe and ridge strength are used again, its error and its intervals
        are those of the new model.
    """
    method, units = str(evaluated.provenance["method"]), sum(len(fleet) for fleet in scenario.whole.values())
    key, everything = JobKey(scenario.name, method, 0), Scenario(scenario.name, scenario.whole, {})
    again = for_all_units(experiment, evaluated)

    def on_epoch(client: str, epoch: Epoch) -> None:
        notify(EpochDone(key, client.rpartition("/")[2], epoch.epoch, None))

    with contextlib.closing(LocalClients(again, {scenario.name: everything}, folder, engine)) as access:
        pooled = strategies[method].pooled
        trainers = MessageCohort(
            access.transport(scenario.name, on_epoch, pooled=pooled),
            wire=again.federation.wire,
            journal=ReplyJournal(folder.memory),
            scope=f"{scenario.name} all units",
            sums=None if pooled else access.sums,
        )
        clients = tuple(sorted(scenario.whole))
        published, job = trained_again(name, key, again, evaluated, clients, trainers, notify, f"all {units} units")
    published = replace(published, provenance={**published.provenance, "units": units})
    owners = {}
    for client, choice in job.choices.items():
        kept = folder.client(scenario.name, client, again.federation)
        kept_out = kept.load_kept_out(choice_name(key, all_units=False))
        owners[client] = chosen_by_owner(published, client, choice, kept.load_head(job.choice_name), kept_out)
    return published, owners


def trained_again(
    name: str,
    key: JobKey,
    again: Experiment,
    evaluated: Bundle,
    clients: tuple[str, ...],
    trainers: MessageCohort,
    notify: Observer,
    units: str = "all units",
) -> tuple[Bundle, Job]:
    """The model to use, and the job that trained it; `trainers` asks about all units of the clients."""
    method = key.method
    notify(Notice(f"Training {strategies[method].label} once more, on {units}: the model to use."))
    earlier = {c: ChoiceReply(**choice) for c, choice in evaluated.provenance.get("choices", {}).items()}
    job = Job(key, name, again, evaluated.recipe, NoTests(clients), trainers, trainers, notify, earlier=earlier)
    trained = job.run().bundles[None if strategies[method].shared else min(clients)]
    provenance = {**evaluated.provenance, **trained.provenance, "trained_on": "all units"}
    provenance.pop("no_intervals", None)
    if "no_intervals" in evaluated.provenance:
        provenance["no_intervals"] = evaluated.provenance["no_intervals"]
    calibration, metrics = evaluated.calibration, evaluated.metrics
    return replace(trained, provenance=provenance, metrics=metrics, calibration=calibration), job


def chosen_by_owner(
    published: Bundle, client: str, choice: ChoiceReply, head: FloatArray, kept_out: FloatArray | None
) -> Bundle:
    """The published model with the head that a client chose for its own machines.

    Parameters
    ----------
    kept_out : (3, N)
        What that kind of head says of the client's own machines that it was not fitted to; see
        :func:`fedprognos.networks.calibration_of_head`.
    """
    facts = {"head": "choice", "choice": choice.kind, "client": client}
    if choice.kind == "together" and choice.share == 0:
        network, provenance = published.network.with_head(head), {**published.provenance, **facts}
        return replace(published, network=network, provenance=provenance, metrics={})
    return published.with_own_head(head, kept_out, facts)


def with_refit(chosen: Published) -> Published:
    """The published method, whose model is trained on all units at the end."""
    return replace(chosen, reason=f"{chosen.reason}. The model to use was then trained on all units")


def for_all_units(experiment: Experiment, evaluated: Bundle) -> Experiment:
    """The same experiment where training keeps nothing out: what was chosen on units kept out is fixed now."""
    federation: dict[str, object] = {}
    federation["heads"] = tuple(h for h in experiment.federation.heads if h != "personal") or ("exact",)
    if isinstance(ridge := evaluated.provenance.get("ridge"), float):
        federation["ridge"] = ridge
    return experiment.model_copy(
        update={
            "train": experiment.train.model_copy(update={"validation_fraction": 0.0, "patience": None}),
            "federation": experiment.federation.model_copy(update=federation),
        }
    )
