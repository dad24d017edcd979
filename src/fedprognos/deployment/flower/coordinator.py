"""The coordinator at work: its SuperLink as a child process, experiments taken from its queue one after another."""

from __future__ import annotations

import contextlib
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.task_identity import TaskIdentity

from fedprognos.deployment.flower import keys
from fedprognos.deployment.flower.children import STATUS, Child, ProcessError, alone, listening
from fedprognos.deployment.flower.cohort import FlowerCohort, Received
from fedprognos.deployment.flower.control import Control
from fedprognos.deployment.flower.deployed_run import STATE, DeployedRun, WriteReport
from fedprognos.deployment.flower.doorstep import PHASES
from fedprognos.deployment.flower.folders import CoordinatorSettings, public_key_file, read_settings
from fedprognos.deployment.flower.grid import ARRIVAL_IN_S, BoundedGrid
from fedprognos.deployment.flower.launch import LIMIT, SECRET_FILE
from fedprognos.deployment.flower.parcels import Sent
from fedprognos.deployment.flower.tasks import Counter, acquire
from fedprognos.errors import ConfigError, FederationError, FedprognosError, OutputError
from fedprognos.experiment.config import Experiment
from fedprognos.experiment.run_folder import RunFolder, folder_name
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.messages import LedgerLine
from fedprognos.files import write_json

START_IN_S, LOOK_IN_S, COUNT_IN_S = 60.0, 1.0, 5.0
DATA = "deployed"
"""What stands for the data in a run's identity: it is not here."""
GO_ON = "federation.min_clients lets a run go on without"
Tell = Callable[[str], None]


def submit(folder: Path, name: str, experiment: Experiment) -> Path:
    """Queue an experiment, or a finished, failed or stopped one again; the folder of its results.

    Raises
    ------
    OutputError
        Where another experiment has results of that name.
    """
    place = folder / "runs" / folder_name(name)
    try:
        RunFolder(place, name, experiment, DATA)
    except OutputError as error:
        raise OutputError(error.what, where=error.where, hint="choose another --name, or remove the folder") from None
    write_json(folder / "queue" / f"{folder_name(name)}.json", {"name": name, "experiment": experiment.dump()})
    (place / STATE).unlink(missing_ok=True)
    return place


def serve(folder: Path, tell: Tell, write_report: WriteReport) -> None:
    """Run the SuperLink and whatever is queued, until told to stop."""
    import torch

    folder = folder.resolve()
    torch.set_num_threads(1)
    desk = Desk(folder, read_settings(folder, CoordinatorSettings), tell, write_report)
    with alone(folder), desk.superlink():
        tell(f"listening on {desk.settings.bind}:{desk.settings.port}; Ctrl-C stops")
        while True:
            desk.look_around("waiting for an experiment", ())
            if (waiting := desk.next_experiment()) is not None:
                desk.run(*waiting)
            time.sleep(0.5)


@dataclass(eq=False)
class Desk:
    """Everything the coordinator holds while it works."""

    folder: Path
    settings: CoordinatorSettings
    tell: Tell
    write_report: WriteReport

    def __post_init__(self) -> None:
        names = self.settings.sites
        self.keys = {name: keys.read_public_key(public_key_file(self.folder, name)) for name in names}
        left = keys.days_left(keys.read_certificate(self.folder / "server.crt"))
        if left < 0:
            raise ConfigError("the server's certificate has expired", hint="`fedprognos deploy renew` makes a new one")
        if left < 30:
            self.tell(f"the server's certificate expires in {left} days; `fedprognos deploy renew` makes a new one")
        host = "127.0.0.1" if self.settings.bind in ("0.0.0.0", "::", "localhost") else self.settings.bind  # noqa: S104
        self.address = f"{host}:{self.settings.port}"
        self.limit = self.settings.max_message_in_mb << 20
        self.doing: dict[str, Any] = {}
        self._looked = self._counted = -COUNT_IN_S
        self._presence: dict[str, Any] = {}

    @contextlib.contextmanager
    def superlink(self) -> Iterator[None]:
        """The SuperLink, up, with the sites' keys known to it; down again whatever happens."""
        host, port = self.address.rsplit(":", 1)
        deadline = time.monotonic() + START_IN_S
        while listening(host, int(port)):  # one that lost its coordinator ends within a second or two
            if time.monotonic() > deadline - START_IN_S + 10:
                raise ProcessError(f"port {port} is taken", where=self.settings.bind, hint="another coordinator?")
            time.sleep(0.3)
        environment = {SECRET_FILE: str(self.folder / "control.secret"), LIMIT: str(self.limit)}
        self.child = Child("superlink", self._arguments(), self.folder, environment)
        secret = (self.folder / "control.secret").read_text("utf-8")
        self.control = Control(self.address, self.folder / "ca.crt", secret)
        try:
            while True:
                self.child.check()
                with contextlib.suppress(httpx.TransportError):
                    self.control.register(self.keys)
                    break
                if time.monotonic() > deadline:
                    raise ProcessError(f"superlink did not start within {START_IN_S:g} s", where=str(self.child.log))
                time.sleep(0.2)
            yield
        finally:
            self.control.close()
            self.child.stop()
            (self.folder / STATUS).unlink(missing_ok=True)

    def _arguments(self) -> list[str]:
        at = self.folder
        return [
            *("--ssl-certfile", str(at / "server.crt")),
            *("--ssl-keyfile", str(at / "server.key")),
            *("--ssl-ca-certfile", str(at / "ca.crt")),
            "--enable-supernode-auth",
            *("--database", str(at / "superlink.db")),
            *("--isolation", "process"),
            *("--superexec-auth-secret-file", str(at / "tasks.secret")),
            "--disable-runtime-dependency-installation",
            *("--host", self.settings.bind, "--port", str(self.settings.port)),
        ]

    def next_experiment(self) -> tuple[str, Experiment, Path] | None:
        """The one queued first."""
        waiting = sorted((self.folder / "queue").glob("*.json"), key=lambda p: p.stat().st_mtime)
        for path in waiting:
            document = json.loads(path.read_text("utf-8"))
            return document["name"], Experiment.model_validate(document["experiment"]), path
        return None

    def run(self, name: str, experiment: Experiment, queued: Path) -> None:
        """Perform an experiment; its entry in the queue goes when it has ended, well or badly."""
        place = self.folder / "runs" / folder_name(name)
        events = place / "events.jsonl"

        def say(text: str) -> None:
            self.tell(f"{name}: {text}")
            with contextlib.suppress(FileNotFoundError), events.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": time.strftime("%H:%M:%S"), "text": text}) + "\n")

        self.doing = {"experiment": name}
        state: dict[str, str] = {"state": "failed", "error": "stopped"}
        try:
            folder = RunFolder(place, name, experiment, DATA)
            sent = Sent()
            with self._grid(experiment.federation.timeout_in_s) as grid:

                def make_cohort(members: tuple[str, ...]) -> FlowerCohort:
                    return FlowerCohort(
                        grid,
                        self.keys,
                        members,
                        limit_in_bytes=self.limit,
                        timeout_in_s=experiment.federation.timeout_in_s,
                        all_needed=experiment.federation.min_clients is None,
                        missed=lambda site: say(f"{site} is not connected; waiting for it ({GO_ON})"),
                        watch=self.look_around,
                        sent=sent,
                        received=_noting(place / "sites" / folder_name(next(iter(experiment.partition)))),
                    )

                sites, grace_in_s = self.settings.sites, self.settings.grace_in_s
                run = DeployedRun(name, experiment, folder, make_cohort, sites, grace_in_s, say, self.write_report)
                run.perform()
            say(f"sent {sent.bytes / 1e6:.2f} MB; {sent.saved / 1e6:.2f} MB were at the sites already")
            state = {"state": "done"}
            say(f"done; report {place / 'report.html'}, model {place / 'bundle'}")
        except ProcessError:
            raise
        except Exception as error:  # a broken experiment must not take the coordinator with it, now or on every restart
            known = isinstance(error, FedprognosError | httpx.HTTPError)
            state["error"] = str(error) if known else f"{type(error).__name__}: {error}"
            say(f"failed: {state['error']}")
            if not known:
                self.tell("".join(traceback.format_exception(error)))
        self.doing = {}
        write_json(place / STATE, state)
        queued.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _grid(self, timeout_in_s: float | None = None) -> Iterator[BoundedGrid]:
        """A run of the SuperLink's and the task that goes with it, taken on by this very process."""
        run_id = self.control.open_run()
        counter = Counter(self.address, self.folder / "tasks.secret", self.folder / "ca.crt")
        queue = counter.queue()
        deadline = time.monotonic() + START_IN_S
        try:
            while (found := acquire(queue, TaskType.SERVER_APP)) is None or found[0] != run_id:
                if time.monotonic() > deadline:
                    raise FederationError("the SuperLink handed out no task", hint="its log says why: superlink.log")
                time.sleep(0.2)
        finally:
            queue.close()
        with counter.task(found[1], "flwr-serverapp") as client:
            given = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
            TaskIdentity.node_id = given.context.node_id
            authority = (self.folder / "ca.crt").read_bytes()
            grid = BoundedGrid(self.address, authority, found[1], min(ARRIVAL_IN_S, timeout_in_s or ARRIVAL_IN_S))
            grid.set_run(run_from_proto(given.run))
            try:
                yield grid
            finally:
                with contextlib.suppress(httpx.HTTPError):
                    client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details=""))
                self.control.close_run(run_id)
                grid.close()

    def look_around(self, what: str, pending: tuple[str, ...]) -> None:
        """Note how things stand, now and then; end the work when the SuperLink has ended."""
        if time.monotonic() - self._looked < LOOK_IN_S:
            return
        self._looked = time.monotonic()
        self.child.check()
        if self._looked - self._counted > COUNT_IN_S:
            self._counted = self._looked
            with contextlib.suppress(httpx.HTTPError):
                self._presence = {name: asdict(p) for name, p in sorted(self.control.presence(self.keys).items())}
        doing = {**self.doing, "phase": PHASES.get(what, what), "waiting_for": list(pending), "pid": os.getpid()}
        write_json(self.folder / STATUS, {**doing, "sites": self._presence})


def _noting(place: Path) -> Received:
    """Note every message that came, as the site that sent it does in its own ledger."""

    def received(site: str, line: LedgerLine) -> None:
        ClientFolder(place / folder_name(site)).record(line)

    return received
