"""Processes a deployment starts: each in a group of its own, logged to a file, ended with everything below it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from fedprognos.errors import FedprognosError
from fedprognos.files import write_json

PID, LOCK, STATUS = "running.json", "running.lock", "status.json"
OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
PATIENCE_IN_S = 8.0
LONGEST_LOG_IN_BYTES = 5_000_000
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ProcessError(FedprognosError):
    """A process of the deployment did not start, or ended."""

    code = "process"
    exit_code = 10


class Child:
    """One of Flower's processes, started by our own launcher, which ends it when we are gone."""

    def __init__(self, what: str, arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.what, self.log = what, folder / f"{what}.log"
        home = folder / "flower"
        home.mkdir(mode=0o700, exist_ok=True)
        if self.log.is_file() and self.log.stat().st_size > LONGEST_LOG_IN_BYTES:
            self.log.replace(self.log.with_suffix(".log.old"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - a fixed program, arguments as a list
                [sys.executable, "-m", "fedprognos.deployment.flower.launch", what, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, **OFFLINE, "FLWR_HOME": str(home), **environment},
            )

    def check(self) -> None:
        """Raise where the process has ended, with the last words of its log."""
        if (code := self.process.poll()) is None:
            return
        if "Failed to activate SuperNode" in self._tail():
            raise ProcessError(
                "the coordinator does not let this site's key in: it does not know it, or it is in use already",
                where=str(self.log.parent / "site.key"),
                hint="does the site run elsewhere? Was the key renewed? Then bring the new site.key here and start the "
                "coordinator again",
            )
        if "CERTIFICATE_VERIFY_FAILED" in self._tail():
            raise ProcessError(
                "who answers there has no certificate of this federation's authority, or an expired one",
                where=str(self.log.parent / "ca.crt"),
                hint="is `coordinator` in settings.toml the right address? Else bring ca.crt of its deployment here",
            )
        raise ProcessError(f"{self.what} ended (exit code {code}): {self.last_words()}", where=str(self.log))

    def _tail(self) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 4000))
            return COLOURS.sub("", file.read().decode("utf-8", "replace"))

    def last_words(self) -> str:
        """The last line of the log that says something."""
        lines = [line.strip() for line in self._tail().splitlines() if line.strip()]
        telling = [line for line in lines if any(word in line for word in ("ERROR", "Error", "error", "refused"))]
        return (telling or lines or ["nothing logged"])[-1][-300:]

    def stop(self) -> None:
        """End the whole group, first politely."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_IN_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder: one coordinator or site at a time, its process id noted, both given up at the end."""
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ProcessError(
                "is running already", where=str(folder), hint="`fedprognos deploy stop` ends it"
            ) from None
        try:
            write_json(folder / PID, {"pid": os.getpid()})
            yield
        finally:
            (folder / PID).unlink(missing_ok=True)
            (folder / LOCK).unlink(missing_ok=True)


def running(folder: Path) -> int | None:
    """Process id of who holds a folder, None where nobody does (whatever an old note says)."""
    try:
        with (folder / LOCK).open("a" if (folder / LOCK).exists() else "r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except OSError:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(json.loads((folder / PID).read_text("utf-8"))["pid"])
    return None


def stop_running(folder: Path) -> bool:
    """End who holds a folder, and wait until it has ended; whether there was anybody."""
    pid = running(folder)
    if pid is None:
        _tidy(folder)
        return False
    for sign, patience_in_s in ((signal.SIGTERM, 3 * PATIENCE_IN_S), (signal.SIGKILL, PATIENCE_IN_S)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)
        deadline = time.monotonic() + patience_in_s
        while time.monotonic() < deadline:
            if running(folder) is None and not _alive(pid):
                _tidy(folder)
                return True
            time.sleep(0.1)
    raise ProcessError(f"process {pid} does not end", where=str(folder))


def _alive(pid: int) -> bool:
    """Whether a process is still at work; one that only waits to be counted out by its parent is not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def _tidy(folder: Path) -> None:
    """Remove what one that was killed left behind: take the folder, unless somebody just did, and give it up again."""
    if any((folder / name).exists() for name in (PID, LOCK, STATUS)):
        with contextlib.suppress(ProcessError), alone(folder):
            (folder / STATUS).unlink(missing_ok=True)


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end us as Ctrl-C does, through every `finally`."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
