"""Starts Flower's SuperLink or SuperNode as a child process, and ends it when the process that asked for it is gone."""

from __future__ import annotations

import logging
import os
import signal
import ssl
import sys
import threading
import time
from enum import IntEnum
from pathlib import Path

import httpx
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.exit import add_exit_handler

from fedprognos.deployment.backoff import Backoff
from fedprognos.deployment.flower import patches
from fedprognos.deployment.processes import Child, ProcessError

SECRET_FILE, LIMIT = "FEDPROGNOS_CONTROL_SECRET_FILE", "FEDPROGNOS_MAX_MESSAGE_IN_BYTES"
OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
LOOK_IN_S = 0.5
FRAME_IN_BYTES = 1 << 20
"""What Flower adds to a message at most."""


class Refused(IntEnum):
    """Exit codes of a SuperNode that could not join."""

    KEY = 71
    CERTIFICATE = 72


def start(what: str, arguments: list[str], folder: Path, environment: dict[str, str]) -> Child:
    """Start `superlink` or `supernode` with Flower's files below `folder`."""
    home = folder / "flower"
    home.mkdir(mode=0o700, exist_ok=True)
    reasons: dict[int, ProcessError] = {
        Refused.KEY: ProcessError(
            "the coordinator refuses this site's key: it does not know the key, or the key is in use",
            where=str(folder / "site.key"),
            hint="Does the site run elsewhere? If the key was renewed, copy the new site.key here and restart the "
            "coordinator.",
        ),
        Refused.CERTIFICATE: ProcessError(
            "the server's certificate has expired, or is not from this federation's authority",
            where=str(folder / "ca.crt"),
            hint="Is `coordinator` in settings.toml the right address? If it is, copy the deployment's ca.crt here.",
        ),
    }
    command = [sys.executable, "-m", "fedprognos.deployment.flower.launch", what, *arguments]
    return Child(what, command, folder, {**OFFLINE, "FLWR_HOME": str(home), **environment}, reasons)


def why_refused(error: BaseException | None) -> Refused | None:
    """What an error in joining means for the site, where that is known."""
    if isinstance(error, httpx.HTTPStatusError):
        found = FlowerError.from_json(error.response.text)
        if found is not None and found.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
            return Refused.KEY
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return Refused.CERTIFICATE
        error = error.__cause__ or error.__context__
    return None


def _exit_with_reason() -> None:
    """Flower calls this while it handles the error that ends the SuperNode."""
    if (reason := why_refused(sys.exception())) is not None:
        logging.shutdown()
        os._exit(reason)


def _end_with_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Entry point of the child processes."""
    what = sys.argv.pop(1)
    _end_with_parent()
    if what == "supernode":
        from flwr.supernode.cli import flower_supernode

        backoff = Backoff(LOOK_IN_S)
        patches.poll_often(backoff)
        patches.send_waiting_replies(backoff)
        patches.fetch_parts_often()
        add_exit_handler(_exit_with_reason)
        flower_supernode()
    else:
        from flwr.superlink.cli import flower_superlink

        patches.guard_superlink(
            Path(os.environ[SECRET_FILE]).read_text("utf-8"), int(os.environ[LIMIT]) + FRAME_IN_BYTES
        )
        patches.keep_routine_out_of_the_log()
        flower_superlink()


if __name__ == "__main__":
    main()
