"""Taking on the tasks that SuperLink and SuperNode hand out, in a process that is already there.

Flower would start a new process for each message and load code from the network into it. Ours keeps the data loaded,
answers in a fraction of the time, and runs nothing but the fedprognos installed on the machine.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
HEARTBEAT_IN_S = 10.0


@dataclass(frozen=True)
class Counter:
    """Where tasks are handed out.

    Parameters
    ----------
    authority
        Certificate of who vouches for the other side; None on this machine's loopback, without TLS.
    secret
        File with the secret that lets this process take tasks on.
    """

    address: str
    secret: Path
    authority: Path | None = None

    def _client(self, name: str, *interceptors: object) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            self.address,
            insecure=self.authority is None,
            root_certificates=None if self.authority is None else self.authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name=name), *interceptors],  # type: ignore[list-item]
        )

    def queue(self) -> RuntimeHttpClient:
        """A connection that may take tasks on."""
        secret = self.secret.read_bytes()
        return self._client(
            "SuperExec", SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={ACQUIRE})
        )

    @contextlib.contextmanager
    def task(self, token: str, name: str) -> Iterator[RuntimeHttpClient]:
        """A connection for one task, with a heart that beats while it is worked on."""
        client = self._client(name, RuntimeTokenHttpInterceptor(token))
        done = threading.Event()
        thread = threading.Thread(target=_beat, args=(client, done), daemon=True)
        thread.start()
        try:
            yield client
        finally:
            done.set()
            thread.join(HEARTBEAT_IN_S)
            client.close()


def acquire(queue: RuntimeHttpClient, kind: TaskType) -> tuple[int, str] | None:
    """The run and the token of a task waiting for us, or None."""
    response = queue.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
    if not response.HasField("task") or not response.token:
        return None
    return int(response.task.run_id), str(response.token)


def _beat(client: RuntimeHttpClient, done: threading.Event) -> None:
    while not done.is_set():
        with contextlib.suppress(httpx.HTTPError):
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        done.wait(HEARTBEAT_IN_S)
