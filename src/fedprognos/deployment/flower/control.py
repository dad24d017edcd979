"""The coordinator's own line to its SuperLink: registering the sites' keys, opening and closing runs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import ssl
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
from flwr.common.constant import HEARTBEAT_PATIENCE
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from fedprognos.deployment.flower.launch import HEADER, UNLOCK
from fedprognos.errors import FederationError

FINISHED = "finished"
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


@dataclass(frozen=True)
class Presence:
    """What the SuperLink knows of a site."""

    node_id: int
    online: bool
    last_seen: str | None


class _Secret:
    """Shows the coordinator's secret to the guard."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[HEADER] = self._secret
        return call_next(context)


class Control:
    """A connection to the SuperLink's control interface."""

    def __init__(self, address: str, authority: Path, secret: str) -> None:
        self._address, self._secret = address, secret
        self._context = ssl.create_default_context(cafile=str(authority))
        self._client = ControlHttpClient.from_server_address(
            address,
            insecure=False,
            root_certificates=authority.read_bytes(),
            interceptors=[_Secret(secret), RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def close(self) -> None:
        self._client.close()

    def register(self, public_keys: Mapping[str, bytes]) -> None:
        """Let these keys in, and no others; before that, nobody."""
        there = {bytes(n.public_key): n.node_id for n in self._client.ListNodes(ListNodesRequest()).nodes_info
                 if not n.unregistered_at}  # fmt: skip
        for key, node_id in there.items():
            if key not in public_keys.values():
                self._client.UnregisterNode(UnregisterNodeRequest(node_id=node_id))
        for key in public_keys.values():
            if key not in there:
                self._client.RegisterNode(RegisterNodeRequest(public_key=key))
        with httpx.Client(verify=self._context, headers={HEADER: self._secret}) as client:
            client.post(f"https://{self._address}{UNLOCK}").raise_for_status()

    def presence(self, public_keys: Mapping[str, bytes]) -> dict[str, Presence]:
        """Every registered site by name: a node is who its key says it is."""
        names = {key: name for name, key in public_keys.items()}
        response = self._client.ListNodes(ListNodesRequest())
        found = {}
        for node in response.nodes_info:
            name = names.get(bytes(node.public_key))
            if name is None or node.unregistered_at:
                continue
            seen = None
            if node.HasField("online_until"):
                beat = node.online_until - HEARTBEAT_PATIENCE * node.heartbeat_interval
                seen = datetime.fromtimestamp(beat, UTC).isoformat("T", "seconds")
            found[name] = Presence(node.node_id, node.status == "online", seen)
        return found

    def open_run(self) -> int:
        """A new run; those that a killed coordinator left open are closed."""
        for run_id in self._open_runs():
            self.close_run(run_id)
        app = _app()
        fab = Fab(hash_str=hashlib.sha256(app).hexdigest(), content=app)
        response = self._client.StartRun(StartRunRequest(fab=fab))
        if not response.HasField("run_id"):
            raise FederationError("the SuperLink opened no run", hint="its log says why: superlink.log")
        return int(response.run_id)

    def close_run(self, run_id: int) -> None:
        """End a run, so that sites stop working for it."""
        with contextlib.suppress(httpx.HTTPError):
            self._client.StopRun(StopRunRequest(run_id=run_id))

    def _open_runs(self) -> list[int]:
        runs = self._client.ListRuns(ListRunsRequest()).run_dict
        return [int(run_id) for run_id, run in runs.items() if run.status.status != FINISHED]


def _app() -> bytes:
    """What Flower wants to ship to the sites: a description without code."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("pyproject.toml", (2020, 1, 1, 0, 0, 0)), APP)
    return buffer.getvalue()
