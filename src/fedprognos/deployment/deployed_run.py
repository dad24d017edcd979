"""A deployed experiment, from the handshake to the delivery of the model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fedprognos import __version__
from fedprognos.deployment.engine import Tell
from fedprognos.deployment.handshake import admit, members_so_far, wait_for_sites
from fedprognos.deployment.messages import DeliverReply, DeliverRequest
from fedprognos.deployment.site_scores import SiteScores
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.errors import ConfigError
from fedprognos.evaluation import EVERYONE, Results
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.events import Event, JobKey, LayerMatched, LeftOut, RoundDone
from fedprognos.experiment.job import Job, JobResult
from fedprognos.experiment.methods import methods_of
from fedprognos.experiment.publish import published
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.features import Recipe
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.messages import Failure
from fedprognos.federation.recipe_setup import common_recipe
from fedprognos.federation.reply_cache import ReplyCache
from fedprognos.federation.seeds import stream
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json
from fedprognos.networks import Bundle

WriteReport = Callable[[Path], Path]


def deployable(experiment: Experiment, tell: Tell) -> Experiment:
    """The experiment without what needs the data in one place; refused where nothing would be left of it."""
    if len(experiment.partition) > 1:
        raise ConfigError(
            f"{len(experiment.partition)} scenarios: {', '.join(experiment.partition)}",
            where="partition",
            hint="Each site has the data it has; deploy an experiment with one [partition].",
        )
    methods = tuple(m for m in experiment.federation.methods if not strategies[m].pooled)
    if not methods:
        raise ConfigError(
            "central training needs all data in one place", where="federation.methods", hint="choose another method"
        )
    left_out = {
        "central training": methods != experiment.federation.methods,
        "baselines": bool(experiment.evaluation.baselines),
        "the round that is best on the test": experiment.evaluation.best_on_test,
    }
    if any(left_out.values()):
        tell(f"left out, because it needs the data in one place: {', '.join(w for w, so in left_out.items() if so)}")
    federation = experiment.federation.model_copy(update={"methods": methods})
    evaluation = experiment.evaluation.model_copy(update={"baselines": (), "best_on_test": False})
    return experiment.model_copy(update={"federation": federation, "evaluation": evaluation})


@dataclass(eq=False)
class DeployedRun:
    """One experiment with the sites that `transport` reaches; started again after a crash it continues."""

    name: str
    experiment: Experiment
    folder: RunFolder
    transport: SiteTransport
    grace_in_s: float
    tell: Tell
    write_report: WriteReport

    def perform(self) -> None:
        """Find the sites, agree on a recipe, train with every method, publish, deliver."""
        started, path = time.time(), self.folder.path
        federation, seeds = self.experiment.federation, range(self.experiment.evaluation.seeds)
        wanted = tuple(members_so_far(path)) or self.transport.clients
        here = wait_for_sites(self.transport, wanted, federation.min_clients, self.grace_in_s, self.tell)
        members = admit(self.transport, here, self.name, self.experiment, path, self.tell)
        self.tell(f"sites: {', '.join(members)}")
        transport, cache = replace(self.transport, clients=members), ReplyCache(self.folder.memory)
        (scenario,) = self.experiment.partition
        cohort = MessageCohort(transport, cache=cache, scope=scenario)
        recipe = common_recipe(
            cohort, self.experiment.recipe, federation, lambda f: self.tell(f"left out {f.client}: {f.text}")
        )
        found: dict[JobKey, JobResult] = {}

        def work(keys: list[JobKey], *, calibrated: bool = False) -> None:
            for key in keys:
                self.tell(f"{key}: begins")
                found[key] = self._job(key, recipe, transport, cache, calibrated)
                self._keep(key, found[key])

        work([JobKey(scenario, method, seed) for method in federation.methods for seed in seeds])
        chosen = published(self.experiment, found, scenario)
        if self.experiment.evaluation.folds:
            work([key for key in found if key.method == chosen.method], calibrated=True)
        best, results = JobKey(scenario, chosen.method, 0), list(found.values())
        owner = None if strategies[best.method].shared else min(members)
        bundle = Bundle.load(self.folder.publish(self.folder.bundle(best, owner)))
        delivered = self._deliver(transport, bundle)
        rows = tuple(row for result in results for row in result.rows)
        history = tuple(row for result in results for row in result.history)
        about = (methods_of(rows), chosen.method, chosen.reason)
        outcome = Results(self.name, __version__, self.experiment.dump(), rows, history, *about)
        write_json(path / "results.json", outcome.as_dict())
        finished, seconds = datetime.now(UTC).isoformat(timespec="seconds"), round(time.time() - started, 1)
        write_json(path / "provenance.json", {"finished": finished, "seconds": seconds, "delivered": delivered})
        self.write_report(path)
        self.folder.forget()

    def _job(
        self, key: JobKey, recipe: Recipe, transport: SiteTransport, cache: ReplyCache, calibrated: bool
    ) -> JobResult:
        """The same job as in a run in one process, except that the sites evaluate."""
        scorers = MessageCohort(transport, cache=cache, scope=key.scenario)
        evaluator = SiteScores(
            scorers, recipe, self.experiment, lambda f: self._notify(LeftOut(key, f.client, f.code, f.text))
        )
        return Job(
            key,
            self.name,
            self.experiment,
            recipe,
            evaluator,
            MessageCohort(transport, wire=self.experiment.federation.wire, cache=cache, scope=key.scenario),
            MessageCohort(transport),
            self._notify,
            calibrated=calibrated,
        ).run()

    def _keep(self, key: JobKey, result: JobResult) -> None:
        for client, bundle in result.bundles.items():
            bundle.save(self.folder.bundle(key, client))
        if result.details:
            self.folder.save_details(key, result.details)
        for row in result.rows:
            whose = "all sites" if row.test_client == EVERYONE else row.test_client
            score = f"{row.scored_on} RMSE {row.rmse:.4g} {row.measure}"
            self.tell(f"{key}: {row.method}, {row.head} head, {whose}: {score}")

    def _deliver(self, transport: SiteTransport, bundle: Bundle) -> dict[str, bool]:
        """Send the model to every site; one that cannot take it now is reported, not waited for."""
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
            self.experiment.evaluation.coverage,
        )
        self.tell("delivering the model")
        cohort = MessageCohort(replace(transport, wait_for_all=False))
        replies = cohort.ask(dict.fromkeys(cohort.clients, request), (DeliverReply, Failure))
        for site, reply in replies.items():
            if isinstance(reply, Failure):
                self.tell(f"{site} did not receive the model: {reply.text}")
        return {site: isinstance(reply, DeliverReply) for site, reply in replies.items()}

    def _notify(self, event: Event) -> None:
        match event:
            case LayerMatched():
                self.tell(f"{event.job} round {event.round}: {event.layer} matched to {event.width} neurons")
            case RoundDone():
                scores = ", ".join(f"{h} {v:.4g}" for h, v in event.validation_rmse.items() if v is not None)
                traffic = f"{event.messages} messages, {event.bytes / 1e6:.1f} MB so far"
                self.tell(f"{event.job} round {event.round}: validation RMSE {scores or 'none'}; {traffic}")
            case LeftOut():
                self.tell(f"{event.job}: left out {event.client} ({event.code}): {event.text}")
