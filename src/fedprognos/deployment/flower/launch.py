"""Starts Flower's SuperLink or SuperNode, and ends it when the process that asked for it is gone.

The SuperLink gets a guard in front: Flower serves the interface that starts runs and registers nodes on the same port
as the one for the sites, and leaves it open. Here it needs a secret of the coordinator's, and no message may be larger
than agreed.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

from fedprognos.deployment.flower.pace import RETRY, SHORTEST_IN_S, Pace

SECRET_FILE, LIMIT = "FEDPROGNOS_CONTROL_SECRET_FILE", "FEDPROGNOS_MAX_MESSAGE_IN_BYTES"
HEADER = "x-fedprognos-control"
OPEN = ("/v1/fleet/", "/v1/runtime/", "/health")
"""Paths with locks of their own: node keys, and tokens. Everything else needs the secret."""
LOOK_IN_S = 0.5
LOOKING = ("ListNodes", "/v1/control/list-nodes")
FLEET, UNLOCK = "/v1/fleet/", "/fedprognos/unlock"
"""Sites are asked to come again until the coordinator has registered their keys and unlocks the door."""
FRAME_IN_BYTES = 1 << 20
"""What Flower adds to a message at most."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class TooLargeError(Exception):
    """A request body beyond the limit."""


class Guard:
    """ASGI middleware: closes what Flower leaves open, and refuses bodies beyond the limit while they arrive."""

    def __init__(self, app: App, secret: str, limit_in_bytes: int) -> None:
        self.app, self.secret, self.limit = app, secret, limit_in_bytes
        self.unlocked = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {bytes(k).lower(): bytes(v) for k, v in scope["headers"]}
        shown = headers.get(HEADER.encode(), b"")
        if not str(scope["path"]).startswith(OPEN) and not hmac.compare_digest(shown, self.secret.encode()):
            await _refuse(send, 403, b"not open to you")
            return
        if scope["path"] == UNLOCK:
            self.unlocked = True
            await _refuse(send, 204, b"")
            return
        if not self.unlocked and str(scope["path"]).startswith(FLEET):
            await _refuse(send, 503, b"come again")
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limit:
            await _refuse(send, 413, b"larger than agreed")
            return
        seen, answered = 0, False

        async def counted() -> MutableMapping[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit:
                raise TooLargeError
            return message

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal answered
            if seen <= self.limit or answered:  # what the app makes of being cut off is not the answer
                answered = True
                await send(message)

        with contextlib.suppress(TooLargeError):
            await self.app(scope, counted, noted)
        if seen > self.limit and not answered:
            await _refuse(send, 413, b"larger than agreed")


async def _refuse(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Impatient:
    """Stands in for the clock of the SuperNode's loop, which would look for messages every three seconds only.

    Shorter sleeps are waits for the site's own process on this machine, where looking costs nothing.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, SHORTEST_IN_S if seconds < 1 else self._pace.wait_in_s()))


def send_what_is_left(pull: Callable[..., int | None], pace: Pace) -> Callable[..., int | None]:
    """Let the SuperNode send an answer that waits even when no new message came, and look out for more after each.

    It sends one batch of answers for each message it fetched. When a run ends while a message is on its way, the
    answer to that one takes the turn of the next, which would then wait for a message that never comes.
    """

    def pulled(*, state: Any, **more: Any) -> int | None:
        run_id = pull(state=state, **more)
        if run_id is not None:
            pace.news()
        else:
            with state.lock_msg_store:
                entries = list(state.msg_store.values())
            if any(not e.is_retrieved and e.message.metadata.reply_to_message_id for e in entries):
                return 0  # any number: only None means that there is nothing to send
        return run_id

    return pulled


def _end_with_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def quiet_about_looking_around() -> None:
    """Keep the coordinator's own looking who is there, every few seconds for months, out of the SuperLink's log."""
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).addFilter(lambda record: not any(word in record.getMessage() for word in LOOKING))


def main() -> None:
    """Entry point of the child processes."""
    what = sys.argv.pop(1)
    _end_with_parent()
    if what == "supernode":
        from flwr.supercore.inflatable.inflatable_utils import pull_objects
        from flwr.supernode import start_client_internal
        from flwr.supernode.cli import flower_supernode

        pace = Pace(LOOK_IN_S)
        changed = {
            "_pull_and_store_message": send_what_is_left(start_client_internal._pull_and_store_message, pace),
            "pull_objects": partial(pull_objects, **RETRY),
            "time": Impatient(pace),
        }
        for name, value in changed.items():
            setattr(start_client_internal, name, value)
        flower_supernode()
        return
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    secret = Path(os.environ[SECRET_FILE]).read_text("utf-8")
    limit = int(os.environ[LIMIT]) + FRAME_IN_BYTES
    quiet_about_looking_around()
    extensions.get_middleware = lambda: (Middleware(Guard, secret=secret, limit_in_bytes=limit),)
    flower_superlink()


if __name__ == "__main__":
    main()
