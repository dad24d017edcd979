"""An experiment over the network, from the first greeting to the model in everybody's hands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedprognos import __version__
from fedprognos.deployment.flower.cohort import FlowerCohort
from fedprognos.deployment.flower.doorstep import DOOR_ANSWERS, DeliverReply, DeliverRequest
from fedprognos.deployment.flower.gathering import wait_for_sites, welcome
from fedprognos.deployment.flower.site_scores import SiteScores
from fedprognos.evaluation import HistoryRow, Results, Row
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.events import Event, JobKey, LayerMatched, LeftOut, RoundDone
from fedprognos.experiment.job import Job, JobResult
from fedprognos.experiment.methods import methods_of
from fedprognos.experiment.publish import default_method
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.experiment.scenario import EVERYONE
from fedprognos.features import Recipe
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.messages import ANSWERS, Failure
from fedprognos.federation.recipe_setup import common_recipe
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.federation.seeds import stream
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.networks import Bundle

STATE = "state.json"
Say = Callable[[str], None]
MakeCohort = Callable[[tuple[str, ...]], FlowerCohort]
"""A cohort of these members."""
WriteReport = Callable[[Path], Path]


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
    write_report: WriteReport

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
        cache = ReplyCache(self.folder.memory)
        (scenario,) = self.experiment.partition
        recipe = self._recipe(MessageCohort(cohort, cache=cache, scope=scenario))
        rows: list[Row] = []
        history: list[HistoryRow] = []
        for key in self._jobs(scenario):
            self.say(f"{key}: begins")
            result = self._job(key, recipe, cohort, cache)
            self._keep(key, result)
            rows += result.rows
            history += result.history
        bundle = Bundle.load(self.folder.publish(self._best(scenario, members)))
        delivered = self._deliver(cohort, bundle)
        results = Results(self.name, __version__, self.experiment.dump(), tuple(rows), tuple(history), methods_of(rows))
        write_json(self.path / "results.json", results.as_dict())
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        took = round(time.time() - started, 1)
        write_json(self.path / "provenance.json", {"finished": finished, "seconds": took, "delivered": delivered})
        self.write_report(self.path)
        self.folder.forget()

    def _wanted(self) -> tuple[str, ...]:
        known = self.path / "sites.json"
        return tuple(sorted(json.loads(known.read_text("utf-8")))) if known.is_file() else self.sites

    def _jobs(self, scenario: str) -> list[JobKey]:
        seeds = range(self.experiment.evaluation.seeds)
        return [JobKey(scenario, method, seed) for method in self.experiment.federation.methods for seed in seeds]

    def _job(self, key: JobKey, recipe: Recipe, cohort: FlowerCohort, cache: ReplyCache) -> JobResult:
        """The very job of a run in one process, but for who evaluates."""
        trainers = MessageCohort(cohort, wire=self.experiment.federation.wire, cache=cache, scope=key.scenario)

        def left_out(failure: Failure) -> None:
            self._tell(LeftOut(key, failure.client, failure.code, failure.text))

        sites = MessageCohort(cohort, cache=cache, scope=key.scenario)
        evaluator = SiteScores(sites, recipe, self.experiment, left_out)
        calibrated = key.method == default_method(self.experiment.federation.methods)
        everyone = MessageCohort(cohort)
        return Job(
            key, self.name, self.experiment, recipe, evaluator, trainers, everyone, self._tell, calibrated=calibrated
        ).run()

    def _recipe(self, cohort: MessageCohort) -> Recipe:
        def left_out(failure: Failure) -> None:
            self.say(f"left out {failure.client}: {failure.text}")

        return common_recipe(cohort, self.experiment.recipe, self.experiment.federation, left_out)

    def _keep(self, key: JobKey, result: JobResult) -> None:
        for client, bundle in result.bundles.items():
            bundle.save(self.folder.bundle(key, client))
        if result.details:
            self.folder.save_details(key, result.details)
        for row in result.rows:
            whose = "all sites" if row.test_client == EVERYONE else row.test_client
            self.say(
                f"{key}: {row.method}, {row.head} head, {whose}: {row.scored_on} RMSE {row.rmse:.4g} {row.measure}"
            )

    def _best(self, scenario: str, members: tuple[str, ...]) -> Path:
        method = default_method(self.experiment.federation.methods)
        return self.folder.bundle(JobKey(scenario, method, 0), None if strategies[method].shared else min(members))

    def _deliver(self, cohort: FlowerCohort, bundle: Bundle) -> dict[str, bool]:
        """Hand the model to every site; one that cannot take it now is told about, not waited for."""
        request = DeliverRequest(
            self.name,
            bundle.recipe,
            bundle.network,
            json.dumps(dict(bundle.provenance)),
            json.dumps(dict(bundle.metrics)),
            bundle.calibration,
            stream(int(bundle.provenance["seed"]), "", 0, "run"),
            self.experiment.train.validation_fraction,
            self.experiment.evaluation.bootstrap,
        )
        self.say(f"delivering the model ({len(encode(request)) / 1e6:.2f} MB)")
        kinds = (*ANSWERS, *DOOR_ANSWERS)
        replies = cohort.converse(dict.fromkeys(cohort.clients, request), kinds, all_needed=False)
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
