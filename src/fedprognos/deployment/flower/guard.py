"""Protects the SuperLink's port.

Flower serves the interface that starts runs and registers nodes on the same port as the sites use, open to everybody.
Here that interface needs the coordinator's secret, and messages have a size limit.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

HEADER = "x-fedprognos-control"
UNLOCK = "/fedprognos/unlock"
FLEET = "/v1/fleet/"
"""Sites get 503 here until the coordinator has registered their keys and unlocks the path."""
OPEN = (FLEET, "/v1/runtime/", "/health")
"""Paths that Flower protects by node keys and tokens. All others need the secret."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class BodyTooLargeError(Exception):
    """A request body beyond the limit."""


class Guard:
    """ASGI middleware that closes what Flower leaves open, and refuses bodies beyond the limit while they arrive."""

    def __init__(self, app: App, secret: str, limit_in_bytes: int) -> None:
        self.app, self.secret, self.limit = app, secret.encode(), limit_in_bytes
        self.unlocked = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {bytes(k).lower(): bytes(v) for k, v in scope["headers"]}
        if (answer := self._answer(str(scope["path"]), headers)) is not None:
            await _respond(send, *answer)
            return
        seen, answered = 0, False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit:
                raise BodyTooLargeError
            return message

        async def passed_on(message: Message) -> None:
            nonlocal answered
            if seen <= self.limit or answered:  # the app's complaint about the cut-off body is not the answer
                answered = True
                await send(message)

        with contextlib.suppress(BodyTooLargeError):
            await self.app(scope, counted, passed_on)
        if seen > self.limit and not answered:
            await _respond(send, 413, b"larger than agreed")

    def _answer(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, bytes] | None:
        """The guard's answer to a request, or None where the app may handle it."""
        shown, length = headers.get(HEADER.encode(), b""), headers.get(b"content-length", b"0")
        if not path.startswith(OPEN) and not hmac.compare_digest(shown, self.secret):
            return 403, b"not open to you"
        if path == UNLOCK:
            self.unlocked = True
            return 204, b""
        if path.startswith(FLEET) and not self.unlocked:
            return 503, b"come again"
        if not length.isdigit() or int(length[:20]) > self.limit:
            return 413, b"larger than agreed"
        return None


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
