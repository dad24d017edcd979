"""A site's end: its SuperNode as a child process, and the messages that it hands out."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from flwr.app import Context, Message
from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime import run_clientapp

from fedprognos.deployment.backoff import Backoff
from fedprognos.deployment.engine import Tell
from fedprognos.deployment.flower import patches
from fedprognos.deployment.flower.launch import start
from fedprognos.deployment.flower.mailbox import content, wrapped
from fedprognos.deployment.flower.tasks import TaskQueue
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.processes import Child, free_port, listening

LOOPBACK = "127.0.0.1"
POLL_IN_S = 0.2


@dataclass(frozen=True, eq=False)
class FlowerTask:
    """A message that has arrived in full, and the connection to answer it by."""

    message: Message
    data: bytes
    context: Context
    client: RuntimeHttpClient
    connection: contextlib.ExitStack
    tell: Tell

    def reply(self, data: bytes) -> None:
        """Send the reply; where the run ended in the meantime nobody waits for it."""
        with self.connection:
            try:
                TaskIdentity.run_id, TaskIdentity.node_id = self.context.run_id, self.context.node_id
                answer = Message(wrapped(data), reply_to=self.message)
                run_clientapp.push_message(self.client, answer, self.context)
                run_clientapp.push_task_output(self.client, self.context, SubStatus.COMPLETED, "")
            except (httpx.HTTPError, RuntimeError) as error:
                self.tell(f"an answer was lost on the way: {error}")


@contextlib.contextmanager
def join(folder: Path, options: SiteOptions, tell: Tell) -> Iterator[SuperNode]:
    """A SuperNode that connects to the coordinator; down again whatever happens."""
    patches.fetch_parts_often()
    port = free_port()
    child = start("supernode", _arguments(folder, options, port), folder, {})
    try:
        child.wait_until(lambda: listening(LOOPBACK, port))
        tasks = TaskQueue(f"{LOOPBACK}:{port}", TaskType.CLIENT_APP, folder / "tasks.secret")
        with contextlib.closing(SuperNode(child, tasks, tell)) as node:
            yield node
    finally:
        child.stop()


class SuperNode:
    """An inbox: messages are fetched in the background, because one whose run has ended never arrives."""

    def __init__(self, child: Child, tasks: TaskQueue, tell: Tell) -> None:
        self._child, self._tasks, self._tell = child, tasks, tell
        self._arrived: queue.SimpleQueue[FlowerTask] = queue.SimpleQueue()
        self._awaited: set[contextlib.ExitStack] = set()
        self._closed, self._backoff = False, Backoff(POLL_IN_S)

    def close(self) -> None:
        """Stop waiting for messages that may never arrive: a closed connection ends the threads that fetch them."""
        self._closed = True
        self._tasks.close()
        for connection in list(self._awaited):
            connection.close()

    def next(self) -> FlowerTask | None:
        self._child.check()
        with contextlib.suppress(httpx.HTTPError):
            if (token := self._tasks.acquire()) is not None:
                self._backoff.reset()
                threading.Thread(target=self._fetch, args=(token,), daemon=True).start()
        with contextlib.suppress(queue.Empty):
            return self._arrived.get(timeout=self._backoff.wait_in_s())
        return None

    def _fetch(self, token: str) -> None:
        connection = contextlib.ExitStack()
        self._awaited.add(connection)
        try:
            client = connection.enter_context(self._tasks.at_work(token, "flwr-clientapp"))
            message, context, *_ = run_clientapp.pull_task_input(client)  # the rest is code: not looked at
            task = FlowerTask(message, content(message), context, client, connection, self._tell)
        except Exception as error:
            connection.close()
            if not self._closed:
                self._tell(f"a message was lost on the way: {error}")
            return
        finally:
            self._awaited.discard(connection)
        self._arrived.put(task)


def _arguments(folder: Path, options: SiteOptions, port: int) -> list[str]:
    return [
        *("--root-certificates", str(folder / "ca.crt")),
        *("--superlink", options.coordinator),
        *("--auth-supernode-private-key", str(folder / "site.key")),
        *("--isolation", "process"),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--superexec-auth-secret-file", str(folder / "tasks.secret")),
    ]
