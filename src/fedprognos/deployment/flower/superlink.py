"""The coordinator's end: its SuperLink as a child process, and its control interface.

The SuperLink keeps its notes in memory: which keys are let in, which messages wait. Whatever a run needs to continue is
in the run's folder, and a site that a new SuperLink does not know connects again. A database on disk took most of the
time of a message.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import ssl
import sys
import zipfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from flwr.common.constant import SUPERLINK_NODE_ID, Status, SubStatus
from flwr.proto import control_pb2 as control
from flwr.proto.fab_pb2 import Fab
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from fedprognos.deployment.carrier import CarrierError, Presence
from fedprognos.deployment.flower.guard import HEADER, NEWS, UNLOCK
from fedprognos.deployment.flower.mailbox import FlowerMailbox, carrier_errors, presence_of
from fedprognos.deployment.flower.messages import heartbeat
from fedprognos.deployment.flower.patched_superlink import LIMIT, REFUSED_FILE, SECRET_FILE
from fedprognos.deployment.folders import CoordinatorOptions
from fedprognos.deployment.keys import certificates
from fedprognos.deployment.processes import START_IN_S, Child, ProcessError, listening, wait_for

ANY_ADDRESS = ("0.0.0.0", "::", "localhost")  # noqa: S104 - addresses one cannot connect to, or has a better name for
OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
PROGRAM = "fedprognos.deployment.flower.patched_superlink"
BEAT_IN_S = 10.0
"""The SuperLink gives up a run when it has missed this process for a minute."""
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
RELEASE_IN_S = 10.0
"""A SuperLink that lost its coordinator ends within a second or two."""
APP = """
[project]
name = "federation"
version = "1.0.0"
description = "No code: coordinator and sites run the fedprognos they have installed"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedprognos"

[tool.flwr.app.components]
serverapp = "none:app"
clientapp = "none:app"
"""


class _ShowSecret:
    """Shows the coordinator's secret to the guard."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: Any, call_next: Any) -> Any:
        context.request.headers[HEADER] = self._secret
        return call_next(context)


@contextlib.contextmanager
def host(folder: Path, options: CoordinatorOptions, keys: Mapping[str, bytes]) -> Iterator[SuperLink]:
    """Run a SuperLink that lets in these sites; it ends with the context, whatever happens."""
    address = "127.0.0.1" if options.bind in ANY_ADDRESS else options.bind
    if not wait_for(lambda: not listening(address, options.port), RELEASE_IN_S):
        raise ProcessError(f"port {options.port} is in use", where=options.bind, hint="Does another coordinator run?")
    refused = folder / "refused.jsonl"
    refused.unlink(missing_ok=True)
    (flower_home := folder / "flower").mkdir(mode=0o700, exist_ok=True)
    environment = {
        **OFFLINE,
        "FLWR_HOME": str(flower_home),
        SECRET_FILE: str(folder / "control.secret"),
        LIMIT: str(options.max_message_in_mb << 20),
        REFUSED_FILE: str(refused),
    }
    child = Child("superlink", [sys.executable, "-m", PROGRAM, *_arguments(folder, options)], folder, environment)
    try:
        with contextlib.closing(SuperLink(child, folder, f"{address}:{options.port}", keys, refused)) as link:
            child.wait_until(link.register)
            yield link
    finally:
        child.stop()


class SuperLink:
    """A hub: reaches the control interface of the coordinator's SuperLink."""

    def __init__(self, child: Child, folder: Path, address: str, keys: Mapping[str, bytes], refused: Path) -> None:
        self._child, self._address, self._keys = child, address, keys
        self._refused, self._seen = refused, 0
        self._tasks_secret, authority = folder / "tasks.secret", folder / "ca.crt"
        self._authority, secret = certificates(authority), (folder / "control.secret").read_text("utf-8")
        self._control = ControlHttpClient.from_server_address(
            address,
            insecure=False,
            root_certificates=self._authority,
            interceptors=[_ShowSecret(secret), RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        context = ssl.create_default_context(cafile=str(authority))
        self._guard = httpx.Client(verify=context, base_url=f"https://{address}", headers={HEADER: secret})

    def close(self) -> None:
        self._control.close()
        self._guard.close()

    def check(self) -> None:
        self._child.check()

    def nodes(self) -> dict[str, NodeInfo]:
        """Every registered site by name: a node is who its key says it is."""
        names = {key: name for name, key in self._keys.items()}
        with carrier_errors("the SuperLink does not say who is there"):
            nodes = self._control.ListNodes(control.ListNodesRequest()).nodes_info
        registered = [node for node in nodes if bytes(node.public_key) in names and not node.unregistered_at]
        return {names[bytes(node.public_key)]: node for node in registered}

    def presence(self) -> dict[str, Presence]:
        return {name: presence_of(node) for name, node in self.nodes().items()}

    def news(self) -> list[int]:
        """The nodes that sent a reply since this was last asked; waits a moment for one."""
        nodes: list[int] = self._guard.get(NEWS).raise_for_status().json()
        return nodes

    def refusals(self) -> list[str]:
        if not self._refused.is_file():
            return []
        lines = self._refused.read_text("utf-8").splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        names = {node.node_id: name for name, node in self.nodes().items()} if new else {}
        names[SUPERLINK_NODE_ID] = "the coordinator"
        notes = [json.loads(line) for line in new]
        return [
            f"{names.get(n['sender'], 'a stranger')} sent a message in the name of "
            f"{names.get(n['claimed'], 'a stranger')}; it was refused"
            for n in notes
        ]

    @contextlib.contextmanager
    def open_run(self, arrival_in_s: float) -> Iterator[FlowerMailbox]:
        """A run of the SuperLink's and the task that goes with it, taken on by this very process."""
        with carrier_errors("the SuperLink opened no run"):
            run_id = self._start_run()
        token = wait_for(lambda: acquire(self._address, self._tasks_secret, self._authority, run_id), START_IN_S)
        if token is None:
            raise CarrierError("the SuperLink handed out no task", hint="superlink.log says more")
        client = runtime_client(self._address, self._authority, RuntimeTokenHttpInterceptor(token))

        stop_beating = heartbeat(partial(client.SendTaskHeartbeat, SendTaskHeartbeatRequest()), BEAT_IN_S)
        try:
            given = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
            TaskIdentity.node_id = given.context.node_id
            yield FlowerMailbox(client, arrival_in_s, self.nodes, self.news, lambda: self._is_open(run_id))
        finally:
            stop_beating()
            with contextlib.suppress(httpx.HTTPError):
                client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details=""))
            self._stop_run(run_id)
            client.close()

    def register(self) -> bool:
        """Let these keys in and no others; before that nobody is let in. False where the SuperLink is not up yet."""
        try:
            nodes = self._control.ListNodes(control.ListNodesRequest()).nodes_info
            there = {bytes(node.public_key): node.node_id for node in nodes if not node.unregistered_at}
            wanted = set(self._keys.values())
            for key in there.keys() - wanted:
                self._control.UnregisterNode(control.UnregisterNodeRequest(node_id=there[key]))
            for key in sorted(wanted - there.keys()):
                self._control.RegisterNode(control.RegisterNodeRequest(public_key=key))
            self._guard.post(UNLOCK, json=[b64encode(key).decode("ascii") for key in sorted(wanted)]).raise_for_status()
        except httpx.TransportError:
            return False
        return True

    def _start_run(self) -> int:
        """A new run; those that a killed coordinator left open are closed."""
        for run_id, run in self._control.ListRuns(control.ListRunsRequest()).run_dict.items():
            if run.status.status != Status.FINISHED:
                self._stop_run(int(run_id))
        app = _app()
        fab = Fab(hash_str=hashlib.sha256(app).hexdigest(), content=app)
        response = self._control.StartRun(control.StartRunRequest(fab=fab))
        if not response.HasField("run_id"):
            raise ValueError("no reason given")
        return int(response.run_id)

    def _is_open(self, run_id: int) -> bool:
        """Whether the SuperLink still carries a run: it ends one whose coordinator it misses for a minute."""
        with carrier_errors("the SuperLink does not say whether the run is open"):
            runs = self._control.ListRuns(control.ListRunsRequest(run_id=run_id)).run_dict
        return any(run.status.status != Status.FINISHED for run in runs.values())

    def _stop_run(self, run_id: int) -> None:
        """End a run, so that sites stop working for it."""
        with contextlib.suppress(httpx.HTTPError):
            self._control.StopRun(control.StopRunRequest(run_id=run_id))


def runtime_client(address: str, authority: bytes, proof: Any) -> RuntimeHttpClient:
    """A connection to the SuperLink's interface for those who run its tasks."""
    version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
    return RuntimeHttpClient.from_server_address(
        address, insecure=False, root_certificates=authority, interceptors=[version, proof]
    )


def acquire(address: str, secret: Path, authority: bytes, run_id: int) -> str | None:
    """The token of a run's waiting task, or None: Flower would start a new process for it, this one takes it on."""
    proof = SuperExecAuthHttpInterceptor(master_secret=secret.read_bytes(), protected_methods={ACQUIRE})
    with contextlib.closing(runtime_client(address, authority, proof)) as client:
        response = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
    return str(response.token) if response.token and response.task.run_id == run_id else None


def _arguments(folder: Path, options: CoordinatorOptions) -> list[str]:
    return [
        *("--ssl-certfile", str(folder / "server.crt")),
        *("--ssl-keyfile", str(folder / "server.key")),
        *("--ssl-ca-certfile", str(folder / "ca.crt")),
        "--enable-supernode-auth",
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(folder / "tasks.secret")),
        "--disable-runtime-dependency-installation",
        *("--host", options.bind, "--port", str(options.port)),
    ]


def _app() -> bytes:
    """What Flower ships to the sites: a description without code."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("pyproject.toml", (2020, 1, 1, 0, 0, 0)), APP)
    return buffer.getvalue()
