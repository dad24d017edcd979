"""A deployed experiment, from the handshake to the delivery of the model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from fedprognos.deployment.engine import Tell
from fedprognos.deployment.handshake import admit, members_so_far, wait_for_sites
from fedprognos.deployment.messages import DeliverReply, DeliverRequest
from fedprognos.deployment.site_scores import Sites
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.errors import ConfigError
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.events import Event, JobDone, JobKey, LayerMatched, LeftOut, Notice, RoundDone
from fedprognos.experiment.job import JobResult
from fedprognos.experiment.publish import conclude
from fedprognos.experiment.run_folder import JobRecord, RunFolder
from fedprognos.experiment.schedule import Schedule
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.messages import Failure
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


def delivery_request(name: str, experiment: Experiment, bundle: Bundle) -> DeliverRequest:
    """The message that brings a finished model to the sites."""
    return DeliverRequest(
        name,
        bundle.recipe,
        bundle.network,
        json.dumps(dict(bundle.provenance)),
        json.dumps(dict(bundle.metrics)),
        bundle.calibration,
        stream(int(bundle.provenance["seed"]), "", 0, "run"),
        experiment.train.validation_fraction,
        experiment.evaluation.bootstrap,
        experiment.evaluation.coverage,
    )


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
        wanted = tuple(members_so_far(path)) or self.transport.clients
        least = self.experiment.federation.min_clients
        here = wait_for_sites(self.transport, wanted, least, self.grace_in_s, self.tell)
        members = admit(self.transport, here, self.name, self.experiment, path, self.tell)
        self.tell(f"sites: {', '.join(members)}")
        transport, cache = replace(self.transport, clients=members), ReplyCache(self.folder.memory)
        venue = Sites(self.experiment, transport, cache, self._notify)

        def keep(key: JobKey, result: JobResult, _: JobRecord) -> None:
            self.folder.keep_outputs(key, result)

        records, chosen = Schedule(self.name, self.experiment, venue, cache, keep, self._notify).work()
        _, bundle = conclude(self.folder, self.name, self.experiment, records, chosen, venue.clients)
        delivered = self._deliver(transport, bundle)
        finished, seconds = datetime.now(UTC).isoformat(timespec="seconds"), round(time.time() - started, 1)
        write_json(path / "provenance.json", {"finished": finished, "seconds": seconds, "delivered": delivered})
        self.write_report(path)
        self.folder.forget()

    def _deliver(self, transport: SiteTransport, bundle: Bundle) -> dict[str, bool]:
        """Send the model to every site; one that cannot take it now is reported, not waited for."""
        request = delivery_request(self.name, self.experiment, bundle)
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
            case Notice():
                self.tell(event.text)
            case JobDone():
                for row in event.rows:
                    whose = "all sites" if row.test_client == EVERYONE else row.test_client
                    score = f"{row.scored_on} RMSE {row.rmse:.4g} {row.measure}"
                    self.tell(f"{event.job}: {row.method}, {row.head} head, {whose}: {score}")
