"""The processes of a deployment: one coordinator or site for each folder, and the child processes it starts."""

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
"""Generous, for a busy machine: a process that ends while it starts is noticed at once anyway."""
PATIENCE_IN_S = 8.0
MAX_LOG_IN_BYTES = 5_000_000
T = TypeVar("T")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ProcessError(FedprognosError):
    """A process of the deployment did not start, or ended."""

    code = "process"
    exit_code = 10


def wait_for(ready: Callable[[], T], patience_in_s: float) -> T:
    """Call `ready` until its result is true or the time is over; return the last result."""
    deadline = time.monotonic() + patience_in_s
    while not (result := ready()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return result


class Child:
    """A child process in its own process group that logs to `NAME.log`."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, folder / f"{name}.log"
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
        """Raise where the process has ended, with the last line of its log."""
        if (code := self.process.poll()) is not None:
            raise ProcessError(f"{self.name} ended (exit code {code}): {self._last_line()}", where=str(self.log))

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
        """End the whole group: first by SIGTERM, then by SIGKILL."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_IN_S)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder, so that only one coordinator or site runs from it."""
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
    """The id of the process that runs from a folder, None where none does."""
    return holder(folder / LOCK)


def stop_running(folder: Path) -> bool:
    """End the process that runs from a folder and wait for its end; return whether there was one."""
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
    """Whether a process runs. A zombie, which has ended and waits for its parent, does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def _tidy(folder: Path) -> None:
    """Remove what a killed process left, unless another process has just locked the folder."""
    if any((folder / name).exists() for name in (STATUS, LOCK)):
        with contextlib.suppress(ProcessError), alone(folder):
            pass


def terminate_as_interrupt() -> None:
    """Treat SIGTERM like Ctrl-C, so that every `finally` runs."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def listening(host: str, port: int) -> bool:
    """Whether a server accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


@contextlib.contextmanager
def bounded_memory(more_in_bytes: int) -> Iterator[None]:
    """Limit how much more memory this process may take: beyond it Python raises `MemoryError`."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(statm.read_text("ascii").split()[0]) * resource.getpagesize()
    limits = [used + more_in_bytes, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
