"""Processes of a deployment: one holder a folder, and children that end with everything below them."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from fedprognos.errors import FedprognosError
from fedprognos.files import HeldError, holder, holding

LOCK, STATUS = "running.lock", "status.json"
START_IN_S = 180.0
"""On a machine with other work to do; a process that ends while it starts is noticed at once."""
PATIENCE_IN_S = 8.0
MAX_LOG_IN_BYTES = 5_000_000
T = TypeVar("T")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ProcessError(FedprognosError):
    """A process of the deployment did not start, or ended."""

    code = "process"
    exit_code = 10


def wait_for(ready: Callable[[], T], patience_in_s: float) -> T:
    """What `ready` gives, asked again until it is something or the time is over."""
    deadline = time.monotonic() + patience_in_s
    while not (found := ready()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


class Child:
    """A process in a group of its own that logs to `NAME.log`; `reasons` are errors to raise for its exit codes."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        reasons: Mapping[int, ProcessError] | None = None,
    ) -> None:
        self.name, self.log, self.reasons = name, folder / f"{name}.log", reasons or {}
        if self.log.is_file() and self.log.stat().st_size > MAX_LOG_IN_BYTES:
            self.log.replace(self.log.with_suffix(".log.old"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - a fixed program, arguments as a list
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, **environment},
            )

    def check(self) -> None:
        """Raise where the process has ended, with the reason or the last line of its log."""
        if (code := self.process.poll()) is not None:
            unknown = ProcessError(f"{self.name} ended (exit code {code}): {self._last_line()}", where=str(self.log))
            raise self.reasons.get(code, unknown)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until the process has started."""

        def started() -> bool:
            self.check()
            return ready()

        if not wait_for(started, START_IN_S):
            raise ProcessError(f"{self.name} did not start within {START_IN_S:g} s", where=str(self.log))

    def _last_line(self) -> str:
        """The last error in the log, or else its last line."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 4000))
            text = COLOURS.sub("", file.read().decode("utf-8", "replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ([line for line in lines if "error" in line.lower()] or lines or ["nothing logged"])[-1][-300:]

    def stop(self) -> None:
        """End the whole group, politely at first."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_IN_S)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder: one coordinator or site at a time, with its process id in the lock."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(holding(folder / LOCK))
        except HeldError:
            hint = "`fedprognos deploy stop` ends it"
            raise ProcessError("is already running", where=str(folder), hint=hint) from None
        try:
            yield
        finally:
            (folder / STATUS).unlink(missing_ok=True)


def running(folder: Path) -> int | None:
    """Process id of whoever holds a folder, None where nobody does."""
    return holder(folder / LOCK)


def stop_running(folder: Path) -> bool:
    """End whoever holds a folder, and wait for the end; whether there was anybody."""
    pid = running(folder)
    if pid is None:
        _tidy(folder)
        return False
    for sign, patience_in_s in ((signal.SIGTERM, 3 * PATIENCE_IN_S), (signal.SIGKILL, PATIENCE_IN_S)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)
        if wait_for(lambda: running(folder) is None and not _alive(pid), patience_in_s):
            _tidy(folder)
            return True
    raise ProcessError(f"process {pid} does not end", where=str(folder))


def _alive(pid: int) -> bool:
    """Whether a process is at work; one that has ended and waits for its parent to notice is not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def _tidy(folder: Path) -> None:
    """Remove the notes of a process that was killed, unless somebody has just taken the folder."""
    if any((folder / name).exists() for name in (STATUS, LOCK)):
        with contextlib.suppress(ProcessError), alone(folder):
            pass


def terminate_as_interrupt() -> None:
    """Let SIGTERM end this process as Ctrl-C does, through every `finally`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


@contextlib.contextmanager
def bounded_memory(more_in_bytes: int) -> Iterator[None]:
    """Let this process take so much more memory and no more: what asks for it gets a `MemoryError`, not the machine."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(statm.read_text("ascii").split()[0]) * resource.getpagesize()
    most = used + more_in_bytes
    limits = [most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


SHORTEST_IN_S = 0.02
SHARE = 0.1
"""News waits at most for this share of the time since the last news."""


class Backoff:
    """The wait before looking again: a share of the time since something last happened, within bounds.

    >>> backoff = Backoff(longest_in_s=0.5)
    >>> backoff.wait_in_s(backoff.since + 1.0), backoff.wait_in_s(backoff.since + 60.0)
    (0.1, 0.5)
    """

    def __init__(self, longest_in_s: float) -> None:
        self.longest_in_s = longest_in_s
        self.reset()

    def reset(self) -> None:
        """Something happened: look often again."""
        self.since = time.monotonic()

    def wait_in_s(self, now: float | None = None) -> float:
        """How long to wait before looking again."""
        passed = (time.monotonic() if now is None else now) - self.since
        return round(min(max(SHARE * passed, SHORTEST_IN_S), self.longest_in_s), 3)
