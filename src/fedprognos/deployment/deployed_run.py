"""A deployed experiment, from the handshake to the report."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from fedprognos.deployment.agreed_run import AgreedRun
from fedprognos.deployment.engine import Tell, WriteReport
from fedprognos.deployment.handshake import CONTRACT, contract_so_far, make_contract, wait_for_approval, wait_for_sites
from fedprognos.deployment.identity import Identity
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.deployment.step_transport import StepTransport
from fedprognos.deployment.steps import Transcript
from fedprognos.errors import ConfigError
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.events import Event, JobDone, JobKey, LayerMatched, LeftOut, Notice, RoundDone
from fedprognos.experiment.job import JobResult
from fedprognos.experiment.publish import conclude
from fedprognos.experiment.run_folder import JobRecord, RunFolder
from fedprognos.federation.strategies import strategies
from fedprognos.files import write_json

UNSCORED = (
    "no report here: sums of so few test points do not leave a site, and training kept too little out; the sites' own "
    "reports have scores (evaluation.score_at = 'all' scores more points, train.validation_fraction keeps more out)"
)


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
    identity: Identity
    grace_in_s: float
    tell: Tell
    write_report: WriteReport

    def perform(self) -> None:
        """Find the sites, agree on a contract, run it, and write what it came to."""
        started, path = time.time(), self.folder.path
        least, contract = self.experiment.federation.min_clients, contract_so_far(path)
        wanted = self.transport.clients if contract is None else tuple(contract.members)
        here = wait_for_sites(self.transport, wanted, least, self.grace_in_s, self.tell)
        if contract is None:
            contract = make_contract(self.transport, here, self.name, self.experiment, self.identity, path, self.tell)
        wait_for_approval(self.transport, contract, least, self.grace_in_s, self.tell)
        steps = StepTransport(self.transport, contract, self.identity, Transcript(path / "steps"))

        def keep(key: JobKey, result: JobResult, _: JobRecord) -> None:
            self.folder.keep_outputs(key, result)

        def before_delivery() -> None:  # a site that cannot take the model now is reported, not waited for
            steps.way.wait_for_all = False

        found = AgreedRun(contract, steps, self._notify, keep, before_delivery).perform()
        clients = {contract.scenario: found.members}
        results, _ = conclude(self.folder, self.name, self.experiment, found.records, found.chosen, clients)
        finished, seconds = datetime.now(UTC).isoformat(timespec="seconds"), round(time.time() - started, 1)
        about = {"finished": finished, "seconds": seconds, "delivered": dict(found.delivered)}
        write_json(path / "provenance.json", {**about, "contract": contract.digest})
        self.tell(f"report {self.write_report(path)}" if results.rows else UNSCORED)
        (path / CONTRACT).replace(path / "contract-done.json")
        shutil.rmtree(path / "steps", ignore_errors=True)

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
