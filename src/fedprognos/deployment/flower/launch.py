"""Starts Flower's SuperLink or SuperNode as a child process. The child ends when its parent process is gone."""

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

from fedprognos.deployment.flower import patches
from fedprognos.deployment.processes import Backoff, Child, ProcessError

SECRET_FILE, LIMIT = "FEDPROGNOS_CONTROL_SECRET_FILE", "FEDPROGNOS_MAX_MESSAGE_IN_BYTES"
REFUSED_FILE = "FEDPROGNOS_REFUSED_FILE"
OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
LOOK_IN_S = 0.5
FRAME_IN_BYTES = 1 << 20
"""The most that Flower adds to a message."""


class Refused(IntEnum):
    """Exit codes of a SuperNode that could not join."""

    KEY = 71
    CERTIFICATE = 72
    IN_USE = 73
    CLOCK = 74


class JoinRefusedError(ProcessError):
    """The coordinator does not let this site in, or the site does not trust the coordinator."""


class ClockError(JoinRefusedError):
    """The clocks of coordinator and site differ too much."""


class KeyInUseError(JoinRefusedError):
    """A connection uses this site's key already: the site's own one before a kill, or another machine's."""


def start(what: str, arguments: list[str], folder: Path, environment: dict[str, str]) -> Child:
    """Start `superlink` or `supernode` with Flower's files below `folder`."""
    flower_folder = folder / "flower"
    flower_folder.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "fedprognos.deployment.flower.launch", what, *arguments]
    return Child(what, command, folder, {**OFFLINE, "FLWR_HOME": str(flower_folder), **environment}, reasons(folder))


def reasons(folder: Path) -> dict[int, ProcessError]:
    """Errors for the exit codes of a SuperNode."""
    return {
        Refused.KEY: JoinRefusedError(
            "the coordinator does not know this site's key, and refuses it",
            where=str(folder / "site.key"),
            hint="If the key was renewed, copy the new site.key here and restart the coordinator.",
        ),
        Refused.IN_USE: KeyInUseError(
            "the coordinator refuses this site's key: it is in use",
            where=str(folder / "site.key"),
            hint="The site runs elsewhere. End it there, or make a new key with `fedprognos deploy renew --site`.",
        ),
        Refused.CLOCK: ClockError("the coordinator refuses this site because of its clock"),
        Refused.CERTIFICATE: JoinRefusedError(
            "the server's certificate has expired, or is not from this federation's authority",
            where=str(folder / "ca.crt"),
            hint="Is `coordinator` in settings.toml the right address, and this machine's clock right? If so, copy the "
            "deployment's ca.crt here.",
        ),
    }


def why_refused(error: BaseException | None) -> Refused | None:
    """Why a SuperNode could not join, as far as the error says."""
    if isinstance(error, httpx.HTTPStatusError):
        flower_error = FlowerError.from_json(error.response.text)
        reasons_by_code = {
            ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED: Refused.KEY,
            ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE: Refused.IN_USE,
        }
        if flower_error is not None and flower_error.code in reasons_by_code:
            return reasons_by_code[ApiErrorCode(flower_error.code)]
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            return Refused.CLOCK
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
        patches.bind_replies(Path(os.environ[REFUSED_FILE]))
        patches.tell_keys_in_use_from_unknown_ones()
        patches.keep_routine_out_of_the_log()
        patches.only_tls_1_3()
        flower_superlink()


if __name__ == "__main__":
    main()
