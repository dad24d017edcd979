"""The coordinator at work: it takes experiments from its queue, one after another, and runs them with the sites."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import traceback
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fedprognos.deployment import keys
from fedprognos.deployment.carrier import CarrierError, Host, Hub, RunClosedError, Tell, WriteReport
from fedprognos.deployment.coordinator.handshake import (
    CONTRACT,
    contract_so_far,
    make_contract,
    wait_for_approval,
    wait_for_sites,
)
from fedprognos.deployment.coordinator.site_transport import ABSENT_IN_S, MAX_WAIT_IN_S, SiteTransport, StepTransport
from fedprognos.deployment.coordinator.status_page import EVENTS, ROUNDS, RUNS, STATE, CurrentStep, StatusPage
from fedprognos.deployment.folders import CoordinatorOptions, public_key_file, read_options
from fedprognos.deployment.processes import STATUS, ProcessError, alone
from fedprognos.deployment.steps.agreed_run import AgreedRun
from fedprognos.errors import ConfigError, FedprognosError, OutputError
from fedprognos.evaluation import EVERYONE
from fedprognos.experiment import (
    Event,
    Experiment,
    JobDone,
    JobKey,
    JobRecord,
    JobResult,
    LayerMatched,
    LeftOut,
    Notice,
    RoundDone,
    RunFolder,
    conclude,
    config,
    event_words,
    folder_name,
)
from fedprognos.federation import ClientFolder, ReplyJournal
from fedprognos.federation.strategies import strategies
from fedprognos.files import read_json, write_json
from fedprognos.identity import Identity, identity_of
from fedprognos.networks import one_torch_thread, sign_bundle, write_trust

QUEUE, JOURNALS = "queue", "journals"
STATUS_IN_S = 2.0
ARRIVAL_IN_S = 60.0
"""How long an announced reply may take to arrive."""
DATA = "deployed"
"""Takes the place of the data's digest in a run's identity: the coordinator has no data."""
UNSCORED = (
    "no report here: the sites have too few test points, and too few points kept out of training, to send scores. "
    "Their own reports have scores. To get scores here, set evaluation.score_at = 'all' or raise "
    "train.validation_fraction."
)
CANCELLED = {"state": "cancelled", "error": "the run was cancelled"}


def submit(folder: Path, name: str, experiment: config.Experiment) -> Path:
    """Queue an experiment, also one that finished, failed or was stopped; return the folder of its results."""
    place = folder / RUNS / folder_name(name)
    try:
        RunFolder(place, name, experiment, DATA)
    except OutputError as error:
        raise OutputError(error.what, where=error.where, hint="Choose another --name, or remove the folder.") from None
    write_json(folder / QUEUE / f"{folder_name(name)}.json", {"name": name, "experiment": experiment.dump()})
    (place / STATE).unlink(missing_ok=True)
    return place


def cancel(folder: Path, name: str) -> None:
    """Take an experiment out of the queue. If it runs, the coordinator ends it within seconds."""
    queued, place = folder / QUEUE / f"{folder_name(name)}.json", folder / RUNS / folder_name(name)
    if not queued.is_file():
        names = sorted(unquote(path.stem) for path in (folder / QUEUE).glob("*.json"))
        raise ConfigError(f"'{name}' is not in the queue", where=str(folder), hint=f"queued: {', '.join(names) or '-'}")
    queued.unlink(missing_ok=True)
    write_json(place / STATE, CANCELLED)


class RunCancelledError(FedprognosError):
    """The experiment was taken out of the queue while it ran."""

    code = "cancelled"


def serve_coordinator(folder: Path, host: Host, tell: Tell, write_report: WriteReport) -> None:
    """Run the queued experiments one after another, until interrupted."""
    folder = folder.resolve()
    options = read_options(folder, CoordinatorOptions)
    _check_certificate(folder, tell)
    public = {name: keys.read_public_key(public_key_file(folder, name)) for name in options.sites}
    with one_torch_thread(), alone(folder), host(folder, options, public) as hub:
        tell(f"listening on {options.bind}:{options.port}; Ctrl-C stops")
        coordinator = Coordinator(folder, options, hub, tell, write_report)
        try:
            while True:
                coordinator.note("waiting for an experiment", ())
                waiting = sorted((folder / QUEUE).glob("*.json"), key=lambda path: path.stat().st_mtime)
                if waiting:
                    coordinator.run(waiting[0])
                time.sleep(0.5)
        finally:
            coordinator.write_last_page()


def _check_certificate(folder: Path, tell: Tell) -> None:
    path, hint = folder / "server.crt", "`fedprognos deploy renew` makes a new one"
    days = keys.days_left(keys.read_certificate(path))
    if days < 0:
        raise ConfigError("the coordinator's certificate has expired", where=str(path), hint=hint)
    if days < 30:
        tell(f"the coordinator's certificate expires in {days} days; {hint}")


@dataclass(eq=False)
class Coordinator:
    """Runs experiments with the sites of one hub, and keeps `status.json` and `status.html` up to date."""

    folder: Path
    options: CoordinatorOptions
    hub: Hub
    tell: Tell
    write_report: WriteReport
    experiment: str | None = None
    queued: Path | None = None
    _noted_at: float = -STATUS_IN_S
    _sites: dict[str, Any] = field(default_factory=dict)
    _step: CurrentStep = field(default_factory=CurrentStep)

    def __post_init__(self) -> None:
        self._page = StatusPage(self.folder)

    def run(self, queued: Path) -> None:
        """Run an experiment and remove it from the queue, whether it succeeds or fails."""
        try:
            document = read_json(queued)
            self.experiment = name = str(document["name"])
            content = document["experiment"]
        except FileNotFoundError:  # cancelled just now
            return
        except (ValueError, KeyError, TypeError):
            self.tell(f"{queued} is not an entry of the queue; it is renamed to *.damaged")
            queued.replace(queued.with_suffix(".damaged"))
            return
        self.queued = queued
        place = self.folder / RUNS / folder_name(name)

        def tell(text: str) -> None:
            self.tell(f"{name}: {text}")
            with contextlib.suppress(FileNotFoundError), (place / EVENTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": time.strftime("%H:%M:%S"), "text": text}) + "\n")

        state = {"state": "done"}
        try:
            experiment = config.parse(content, str(queued))
            while True:
                try:
                    self._perform(name, experiment, place, tell)
                    break
                except RunClosedError as error:  # settled steps are on disk
                    tell(f"{error.what}; going on where it was")
            tell(f"done; model {place / 'bundle'}")
        except ProcessError:
            raise
        except RunCancelledError:
            state = CANCELLED
            tell("cancelled")
        except Exception as error:  # a broken experiment must not end the coordinator, now or at every restart
            expected = isinstance(error, FedprognosError)
            state = {"state": "failed", "error": str(error) if expected else f"{type(error).__name__}: {error}"}
            tell(f"failed: {state['error']}")
            if not expected:
                self.tell("".join(traceback.format_exception(error)))
        self.experiment = self.queued = None
        write_json(place / STATE, state)
        queued.unlink(missing_ok=True)

    def _perform(self, name: str, experiment: config.Experiment, place: Path, tell: Tell) -> None:
        folder = RunFolder(place, name, experiment, DATA)
        (scenario,) = experiment.partition
        min_clients, timeout_in_s = experiment.federation.min_clients, experiment.federation.timeout_in_s
        timeout_in_s = timeout_in_s or MAX_WAIT_IN_S
        ledgers = place / "sites" / folder_name(scenario)
        missed = "is not connected; waiting for it (set federation.min_clients to continue without it)"
        with self.hub.open_run(min(ARRIVAL_IN_S, timeout_in_s)) as mailbox:
            transport = SiteTransport(
                mailbox,
                tuple(sorted(self.options.sites)),
                self.options.max_message_in_mb << 20,
                timeout_in_s,
                wait_for_all=min_clients is None,
                waiting=self.note,
                missed=lambda site: tell(f"{site} {missed}"),
                received=lambda site, line: ClientFolder(ledgers / folder_name(site)).record(line),
                absent_in_s=max(ABSENT_IN_S, self.options.grace_in_s),
            )
            identity, grace_in_s = identity_of(self.folder), self.options.grace_in_s
            DeployedRun(name, experiment, folder, transport, identity, grace_in_s, tell, self.write_report).perform()
        tell(f"sent {transport.sent_bytes / 1e6:.2f} MB to the sites")

    def note(self, activity: str, waiting_for: tuple[str, ...]) -> None:
        """Write the status, at most every two seconds; raise where the carrier has ended or the run is cancelled."""
        self._step.follow(activity, waiting_for, time.time())
        if time.monotonic() - self._noted_at < STATUS_IN_S:
            return
        self._noted_at = time.monotonic()
        self.hub.check()
        if self.queued is not None and not self.queued.is_file():
            raise RunCancelledError("the run was cancelled")
        with contextlib.suppress(CarrierError):
            for text in self.hub.refusals():
                self.tell(text)
            self._sites = {name: asdict(presence) for name, presence in sorted(self.hub.presence().items())}
        status = self._status()
        write_json(self.folder / STATUS, status)
        self._page.write(status)

    def write_last_page(self) -> None:
        """Say on the page that the coordinator has ended; the status itself is removed."""
        self._step.follow("not running", (), time.time())
        self._sites = {name: {**presence, "online": False} for name, presence in self._sites.items()}
        with contextlib.suppress(OutputError):  # a full disk must not hide why the coordinator ends
            self._page.write(self._status())

    def _status(self) -> dict[str, Any]:
        """What is known now, for `status.json` and the page."""
        step, online = self._step, {name for name, presence in self._sites.items() if presence["online"]}
        return {
            **({"experiment": self.experiment} if self.experiment else {}),
            "phase": step.activity,
            "since": step.asked_at,
            "waiting_for": sorted(step.waiting_for),
            "late": step.late(online, time.time()),
            "pid": os.getpid(),
            "sites": self._sites,
        }


def deployable(experiment: Experiment, tell: Tell) -> Experiment:
    """The experiment without what needs the data in one place; raise where nothing would be left of it."""
    if len(experiment.partition) > 1:
        raise ConfigError(
            f"{len(experiment.partition)} scenarios: {', '.join(experiment.partition)}",
            where="partition",
            hint="A deployed site has one set of data: deploy an experiment with one [partition].",
        )
    methods = tuple(m for m in experiment.federation.methods if not strategies[m].pooled)
    if not methods:
        raise ConfigError(
            "central training needs all data in one place", where="federation.methods", hint="Choose another method."
        )
    wanted = {
        "central training": methods != experiment.federation.methods,
        "baselines": bool(experiment.evaluation.baselines),
        "evaluation.best_on_test": experiment.evaluation.best_on_test,
    }
    if left_out := [what for what, is_wanted in wanted.items() if is_wanted]:
        tell(f"left out, because it needs the data in one place: {', '.join(left_out)}")
    # The results must not claim what sites are not asked for: no step of a contract searches.
    if experiment.search:
        tell(
            "search is left out: the sites train with the recipe as it is written. `fedprognos run` on one machine"
            " searches, and writes what it chose into chosen.toml of its run folder: deploy that file"
        )
    federation = experiment.federation.model_copy(update={"methods": methods})
    evaluation = experiment.evaluation.model_copy(update={"baselines": (), "best_on_test": False})
    return experiment.model_copy(update={"federation": federation, "evaluation": evaluation, "search": 0})


@dataclass(eq=False)
class DeployedRun:
    """One experiment with the sites that `transport` reaches. Started again after a crash, it continues."""

    name: str
    experiment: Experiment
    folder: RunFolder
    transport: SiteTransport
    identity: Identity
    grace_in_s: float
    tell: Tell
    write_report: WriteReport

    def perform(self) -> None:
        """Wait for the sites, agree on a contract, run it, and write the results."""
        started, path = time.time(), self.folder.path
        min_clients, contract = self.experiment.federation.min_clients, contract_so_far(path)
        wanted = self.transport.clients if contract is None else tuple(contract.members)
        sites = wait_for_sites(self.transport, wanted, min_clients, self.grace_in_s, self.tell)
        if contract is None:
            contract = make_contract(self.transport, sites, self.name, self.experiment, self.identity, path, self.tell)
        wait_for_approval(self.transport, contract, min_clients, self.grace_in_s, self.tell)
        # A journal belongs to one contract: a crash after its last step must not leave outcomes for the next one.
        journal = ReplyJournal(path / JOURNALS / contract.digest)
        steps = StepTransport(self.transport, contract, self.identity, journal)

        def keep(key: JobKey, result: JobResult, _: JobRecord) -> None:
            self.folder.keep_outputs(key, result)

        def before_delivery() -> None:  # nobody waits for a site that cannot take the model now
            steps.sites.wait_for_all = False

        outcome = AgreedRun(contract, steps, self._notify, keep, before_delivery).perform()
        clients = {contract.scenario: outcome.members}
        results, _ = conclude(self.folder, self.name, self.experiment, outcome.records, outcome.chosen, clients)
        if outcome.refitted is not None:
            outcome.refitted.save(path / "bundle")
        sign_bundle(path / "bundle", self.identity)
        write_trust(path / "trust.toml", [("coordinator", self.identity.public)])
        finished, seconds = datetime.now(UTC).isoformat(timespec="seconds"), round(time.time() - started, 1)
        delivered = dict(outcome.delivered)
        provenance = {"finished": finished, "seconds": seconds, "delivered": delivered, "contract": contract.digest}
        write_json(path / "provenance.json", provenance)
        self.tell(f"report {self.write_report(path)}" if results.rows else UNSCORED)
        (path / CONTRACT).replace(path / "contract-done.json")
        shutil.rmtree(path / JOURNALS, ignore_errors=True)

    def _notify(self, event: Event) -> None:
        match event:
            case RoundDone():
                self.tell(event_words(event))
                self._keep_round(event)
            case LayerMatched() | Notice():
                self.tell(event_words(event))
            case LeftOut():
                self.tell(f"left out {event_words(event)}")
            case JobDone():
                for row in event.rows:
                    whose = "all sites" if row.test_client == EVERYONE else row.test_client
                    score = f"{row.scored_on} RMSE {row.rmse:.4g} {row.measure}"
                    self.tell(f"{event.job}: {row.method}, {row.head} head, {whose}: {score}")

    def _keep_round(self, event: RoundDone) -> None:
        """Add a round to the run's file of rounds, for the page."""
        line = {
            **{"job": str(event.job), "round": event.round, "cap": event.cap, "bytes": event.bytes},
            "scored_on": "test" if event.rmse else "validation",
            "errors": event.rmse or event.validation_rmse,
        }
        with (self.folder.path / ROUNDS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
