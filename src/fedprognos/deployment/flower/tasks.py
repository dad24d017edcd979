"""Does the tasks of SuperLink and SuperNode in the process that is already running.

Flower would start a new process for each message and load code from the network into it. This process has its data
loaded, answers in a fraction of the time, and runs only the fedprognos installed on the machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class TaskQueue:
    """Hands out tasks of one kind to processes that have the secret; on loopback without TLS (`authority` is None)."""

    def __init__(self, address: str, kind: TaskType, secret: Path, authority: Path | None = None) -> None:
        self._address, self._kind, self._authority = address, kind, authority
        signed = SuperExecAuthHttpInterceptor(master_secret=secret.read_bytes(), protected_methods={ACQUIRE})
        self._queue = self._client("SuperExec", signed)

    def _client(self, name: str, *interceptors: object) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            self._address,
            insecure=self._authority is None,
            root_certificates=None if self._authority is None else self._authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name=name), *interceptors],  # type: ignore[list-item]
        )

    def acquire(self, run_id: int | None = None) -> str | None:
        """The token of a waiting task, or None; with `run_id`, of that run only."""
        response = self._queue.AcquireTask(AcquireTaskRequest(supported_task_types=[self._kind]))
        return str(response.token) if response.token and run_id in (None, response.task.run_id) else None

    def close(self) -> None:
        self._queue.close()

    @contextlib.contextmanager
    def at_work(self, token: str, name: str) -> Iterator[RuntimeHttpClient]:
        """A connection for one task, with a heartbeat while the task is worked on."""
        client = self._client(name, RuntimeTokenHttpInterceptor(token))

        def beat() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
                return True
            return False

        heart = HeartbeatSender(beat)
        heart.start()
        try:
            yield client
        finally:
            heart.stop()
            client.close()
