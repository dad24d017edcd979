"""A site's end: its SuperNode as a child process, and the messages that come through it."""

from __future__ import annotations

import contextlib
import queue
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from flwr.app import Context, Message
from flwr.common.constant import (
    HEARTBEAT_DEFAULT_INTERVAL,
    HEARTBEAT_PATIENCE,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_TOLERANCE,
    SubStatus,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime import run_clientapp

from fedprognos.deployment.carrier import Tell
from fedprognos.deployment.flower import patches
from fedprognos.deployment.flower.launch import ClockError, JoinRefusedError, KeyInUseError, start
from fedprognos.deployment.flower.mailbox import content, wrapped
from fedprognos.deployment.flower.tasks import TaskQueue
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.processes import Backoff, Child, ProcessError, free_port, listening

LOOPBACK = "127.0.0.1"
POLL_IN_S = 0.2
RETRY_IN_S = 3.0
LASTED_IN_S = 30.0
"""A SuperNode that ran for this long was connected: it is worth trying again."""
MISSED_IN_S = 1.5 * HEARTBEAT_PATIENCE * HEARTBEAT_DEFAULT_INTERVAL
"""Within this time the SuperLink notices that a killed site is gone, and its key is free again."""


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
        """Send the reply. If the run ended in the meantime, nobody waits for it."""
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
    """Run a SuperNode that connects to the coordinator; it ends with the context, whatever happens."""
    patches.fetch_parts_often()
    with contextlib.closing(SuperNode(folder, options, tell)) as node:
        yield node


class SuperNode:
    """An inbox that fetches messages in the background, because a message whose run has ended never arrives.

    The process starts with the first look for messages, and again when it ended for a temporary reason.
    """

    def __init__(self, folder: Path, options: SiteOptions, tell: Tell) -> None:
        self._folder, self._options, self._tell = folder, options, tell
        self._child: Child | None = None
        self._tasks: TaskQueue | None = None
        self._arrived: queue.SimpleQueue[FlowerTask] = queue.SimpleQueue()
        self._awaited: set[contextlib.ExitStack] = set()
        self._closed, self._backoff = False, Backoff(POLL_IN_S)
        self._started = self._tried = time.monotonic()

    def close(self) -> None:
        """Close every connection, which ends the threads that wait for messages."""
        self._closed = True
        self._end()

    def next(self) -> FlowerTask | None:
        try:
            tasks = self._tasks or self._start()
            if self._child is not None:
                self._child.check()
        except ProcessError as error:
            self._end()
            self._consider(error)
            return None
        with contextlib.suppress(httpx.HTTPError):
            if (token := tasks.acquire()) is not None:
                self._backoff.reset()
                threading.Thread(target=self._fetch, args=(tasks, token), daemon=True).start()
        with contextlib.suppress(queue.Empty):
            return self._arrived.get(timeout=self._backoff.wait_in_s())
        return None

    def _start(self) -> TaskQueue:
        ahead = clock_ahead_in_s(self._options.coordinator, self._folder / "ca.crt")
        if ahead is not None and not -TIMESTAMP_TOLERANCE < ahead < SYSTEM_TIME_TOLERANCE:
            raise _clock_error(ahead)
        port, self._started = free_port(), time.monotonic()
        self._child = start("supernode", _arguments(self._folder, self._options, port), self._folder, {})
        self._child.wait_until(lambda: listening(LOOPBACK, port))
        self._tasks = TaskQueue(f"{LOOPBACK}:{port}", TaskType.CLIENT_APP, self._folder / "tasks.secret")
        return self._tasks

    def _end(self) -> None:
        if self._tasks is not None:
            self._tasks.close()
        for connection in list(self._awaited):
            connection.close()
        if self._child is not None:
            self._child.stop()
        self._child = self._tasks = None

    def _consider(self, error: ProcessError) -> None:
        """Wait before another try if one may help, else raise."""
        lasted = time.monotonic() - self._started
        if isinstance(error, KeyInUseError):
            if lasted > LASTED_IN_S:  # it was connected
                self._tried = time.monotonic()
            if time.monotonic() - self._tried > MISSED_IN_S:
                raise error
            self._tell("the coordinator still sees an earlier connection of this site; trying again until it is gone")
        elif isinstance(error, ClockError):
            raise _clock_error(clock_ahead_in_s(self._options.coordinator, self._folder / "ca.crt")) from error
        elif isinstance(error, JoinRefusedError) or lasted < LASTED_IN_S:
            raise error
        else:
            self._tell(f"lost the connection ({error.what}); joining again")
        time.sleep(RETRY_IN_S)

    def _fetch(self, tasks: TaskQueue, token: str) -> None:
        connection = contextlib.ExitStack()
        self._awaited.add(connection)
        try:
            client = connection.enter_context(tasks.at_work(token, "flwr-clientapp"))
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


def clock_ahead_in_s(coordinator: str, authority: Path) -> float | None:
    """How far this machine's clock is ahead of the coordinator's, None where it cannot be asked."""
    try:
        with httpx.Client(verify=ssl.create_default_context(cafile=str(authority)), timeout=5.0) as client:
            asked = time.time()
            date = client.get(f"https://{coordinator}/health").headers["date"]
        return (asked + time.time()) / 2 - (parsedate_to_datetime(date).timestamp() + 0.5)  # it counts whole seconds
    except (httpx.HTTPError, OSError, KeyError, ValueError):
        return None


def _clock_error(ahead: float | None) -> ClockError:
    how_far = "" if ahead is None else f": it is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    return ClockError(
        f"this machine's clock differs too much from the coordinator's{how_far}",
        where="clock",
        hint=f"Up to {SYSTEM_TIME_TOLERANCE} s ahead are accepted. Set both clocks, with NTP for example.",
    )


def _arguments(folder: Path, options: SiteOptions, port: int) -> list[str]:
    return [
        *("--root-certificates", str(folder / "ca.crt")),
        *("--superlink", options.coordinator),
        *("--auth-supernode-private-key", str(folder / "site.key")),
        *("--isolation", "process"),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--superexec-auth-secret-file", str(folder / "tasks.secret")),
    ]
