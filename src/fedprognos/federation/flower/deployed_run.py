"""An experiment over the network, from the first greeting to the model in everybody's hands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprognos import __version__
from fedprognos.config import Experiment
from fedprognos.errors import FederationError
from fedprognos.features import Recipe, make_recipe
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import gather
from fedprognos.federation.events import Event, JobKey, LayerMatched, LeftOut, RoundDone
from fedprognos.federation.flower.cohort import FlowerCohort
from fedprognos.federation.flower.deployed_job import Outcome, RoundRow, ValidationRow, run_deployed_job
from fedprognos.federation.flower.doorstep import DOOR_ANSWERS, DeliverReply, DeliverRequest
from fedprognos.federation.flower.gathering import wait_for_sites, welcome
from fedprognos.federation.flower.page import write_page
from fedprognos.federation.folder import RunFolder
from fedprognos.federation.memory import Memory, RememberingCohort
from fedprognos.federation.messages import ANSWERS, BringReply, BringRequest, Failure, SurveyReply, SurveyRequest
from fedprognos.federation.run import PREFERRED
from fedprognos.federation.seeds import stream
from fedprognos.files import write_json, write_text
from fedprognos.model import Bundle

STATE, RECEIVED = "state.json", "received.jsonl"
Say = Callable[[str], None]
MakeCohort = Callable[[tuple[str, ...]], FlowerCohort]
"""A cohort of these members."""


@dataclass(eq=False)
class DeployedRun:
    """One experiment on its way; started again after a crash it goes on where it was."""

    name: str
    experiment: Experiment
    folder: RunFolder
    make_cohort: MakeCohort
    sites: tuple[str, ...]
    grace_in_s: float
    say: Say

    @property
    def path(self) -> Path:
        return self.folder.path

    def perform(self) -> None:
        """Gather, learn the recipe, train every way there is, publish, deliver."""
        started = time.time()
        section = self.experiment.federation
        everybody = self.make_cohort(self.sites)
        here = wait_for_sites(everybody, self._wanted(), section.min_clients, self.grace_in_s, self.say)
        members = welcome(everybody, here, self.name, self.experiment, self.path, self.say)
        self.say(f"sites: {', '.join(members)}")
        cohort = self.make_cohort(members)
        memory = Memory(self.folder.memory)
        setting = next(iter(self.experiment.partition))
        recipe = self._recipe(RememberingCohort(cohort, memory, setting))
        rows: list[ValidationRow] = []
        rounds: list[RoundRow] = []
        for key in self._jobs(setting):
            self.say(f"{key}: begins")
            trainers = RememberingCohort(cohort, memory, setting)
            outcome = run_deployed_job(
                key, self.name, self.experiment, recipe, trainers, self._tell, published=key.method == self._published
            )
            self._keep(key, outcome)
            rows += outcome.rows
            rounds += outcome.rounds
        bundle = Bundle.load(self.folder.publish(self._best(setting, members)))
        delivered = self._deliver(cohort, bundle)
        document = {
            "experiment": self.name,
            "version": __version__,
            "scored_on": "validation",
            "config": self.experiment.dump(),
            "sites": list(members),
            "rows": [row.model_dump(mode="json") for row in rows],
            "rounds": [row.model_dump(mode="json") for row in rounds],
        }
        write_json(self.path / "results.json", document)
        received = read_received(self.path / RECEIVED)
        write_json(self.path / "ledger.json", received)
        write_text(self.path / "report.html", write_page(document, received, delivered))
        write_json(self.path / "provenance.json", {"seconds": round(time.time() - started, 1)})
        self.folder.forget()

    def _wanted(self) -> tuple[str, ...]:
        known = self.path / "sites.json"
        return tuple(sorted(json.loads(known.read_text("utf-8")))) if known.is_file() else self.sites

    def _jobs(self, setting: str) -> list[JobKey]:
        seeds = range(self.experiment.evaluation.seeds)
        return [JobKey(setting, method, seed) for method in self.experiment.federation.methods for seed in seeds]

    def _recipe(self, cohort: RememberingCohort) -> Recipe:
        """Made from the sites' moments, or that of the models they bring."""
        section = self.experiment.federation

        def left_out(failure: Failure) -> None:
            self.say(f"left out {failure.client}: {failure.text}")

        if section.start == "bundles":
            asked = dict.fromkeys(cohort.clients, BringRequest())
            brought = gather(cohort, asked, BringReply, section.min_clients, left_out)
            recipe = brought[min(brought)].recipe
            if any(reply.recipe != recipe for reply in brought.values()):
                raise FederationError("the sites' models were made with different recipes")
            return recipe
        requests = dict.fromkeys(cohort.clients, SurveyRequest(self.experiment.recipe))
        surveys = gather(cohort, requests, SurveyReply, section.min_clients, left_out)
        return make_recipe(self.experiment.recipe, {name: reply.survey for name, reply in surveys.items()})

    def _keep(self, key: JobKey, outcome: Outcome) -> None:
        for client, bundle in outcome.bundles.items():
            bundle.save(self.folder.bundle(key, client))
        if outcome.details:
            self.folder.save_details(key, list(outcome.details))
        for row in outcome.rows:
            if row.test_client == "all":
                self.say(f"{key}: {row.head} head, validation RMSE {row.rmse_capped:.4g} {row.unit}")

    @property
    def _published(self) -> str:
        return next(m for m in PREFERRED if m in self.experiment.federation.methods)

    def _best(self, setting: str, members: tuple[str, ...]) -> Path:
        method = self._published
        return self.folder.bundle(JobKey(setting, method, 0), min(members) if method == "local" else None)

    def _deliver(self, cohort: FlowerCohort, bundle: Bundle) -> dict[str, bool]:
        """Hand the model to every site; one that cannot take it now is told about, not waited for."""
        request = DeliverRequest(
            self.name,
            bundle.recipe,
            bundle.network,
            bundle.weights,
            json.dumps(dict(bundle.provenance)),
            json.dumps(dict(bundle.metrics)),
            bundle.calibration,
            stream(int(bundle.provenance["seed"]), "", 0, "run"),
            self.experiment.train.validation_fraction,
            self.experiment.evaluation.bootstrap,
        )
        self.say(f"delivering the model ({len(encode(request)) / 1e6:.2f} MB)")
        replies = cohort.converse(dict.fromkeys(cohort.clients, request), (*ANSWERS, *DOOR_ANSWERS))
        for site, reply in replies.items():
            if not isinstance(reply, DeliverReply):
                text = reply.text if isinstance(reply, Failure) else "answered something else"
                self.say(f"{site} has not got the model: {text}")
        return {site: isinstance(reply, DeliverReply) for site, reply in replies.items()}

    def _tell(self, event: Event) -> None:
        match event:
            case LayerMatched():
                self.say(f"{event.job} round {event.round}: {event.layer} matched to {event.width} neurons")
            case RoundDone():
                scores = ", ".join(f"{h} {v:.4g}" for h, v in event.validation_rmse.items() if v is not None)
                traffic = f"{event.messages} messages, {event.bytes / 1e6:.1f} MB so far"
                self.say(f"{event.job} round {event.round}: validation RMSE {scores or 'none'}; {traffic}")
            case LeftOut():
                self.say(f"{event.job}: left out {event.client} ({event.code}): {event.text}")
            case _:
                pass


def read_received(path: Path) -> dict[str, dict[str, dict[str, int]]]:
    """Messages and bytes that came from each site, by kind."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for text in path.read_text("utf-8").splitlines() if path.is_file() else []:
        line: Mapping[str, Any] = json.loads(text)
        entry = found.setdefault(line["site"], {}).setdefault(line["kind"], {"messages": 0, "bytes": 0})
        entry["messages"] += 1
        entry["bytes"] += line["bytes"]
    return {site: dict(sorted(kinds.items())) for site, kinds in sorted(found.items())}
