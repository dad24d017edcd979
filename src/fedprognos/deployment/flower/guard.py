"""Protects the SuperLink's port, and wakes who waits there.

Flower serves the interface that starts runs and registers nodes on the same port as the sites use, open to everybody.
Here that interface needs the coordinator's secret, only known keys are let in, and messages have a size limit.

Flower's nodes ask again and again whether a message has come. Here "nothing yet" is held back until there is one, so
they hear of it at once and need not ask often.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from google.protobuf.message import DecodeError

HEADER = "x-fedprognos-control"
UNLOCK = "/fedprognos/unlock"
"""The coordinator posts the keys that are let in: a JSON list of the values that sites send in their header."""
NEWS = "/fedprognos/news"
"""Gives the coordinator the nodes that replied since it last asked, as a JSON list; waits a moment for one."""
FLEET = "/v1/fleet/"
"""Sites get 503 here until the coordinator has registered their keys and unlocks the path."""
OPEN = (FLEET, "/v1/runtime/", "/health")
"""Paths that Flower protects by node keys and tokens. All others need the secret."""
TO_SITE, FROM_SITE, LOOK = "/v1/runtime/push-messages", "/v1/fleet/push-messages", "/v1/fleet/pull-messages"
"""Announcing a message and looking for one. The bytes of messages travel apart, as objects."""
HOLD_IN_S = 1.0
"""The longest that "nothing yet" is held back."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class BodyTooLargeError(Exception):
    """A request body beyond the limit."""


class SuperLinkGuard:
    """ASGI middleware around the SuperLink."""

    def __init__(self, app: App, secret: str, limit_in_bytes: int) -> None:
        self.app, self.secret, self.limit = app, secret.encode(), limit_in_bytes
        self.known_keys: frozenset[str] | None = None
        """None until the coordinator has sent them."""
        self._sent_to: Counter[int] = Counter()
        """How many messages were announced to each node."""
        self._replied: set[int] = set()
        """Nodes that replied since the coordinator last asked."""
        self._news = asyncio.Condition()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, headers = str(scope["path"]), {bytes(k).lower(): bytes(v) for k, v in scope["headers"]}
        if (refusal := self._refusal(path, headers)) is not None:
            await _respond(send, *refusal)
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
            if path == UNLOCK:
                self.known_keys = frozenset(json.loads(await _body(counted)))
                await _respond(passed_on, 204, b"")
            elif path == NEWS:
                await self._wait_until(lambda: bool(self._replied))
                replied, self._replied = self._replied, set()
                await _respond(passed_on, 200, json.dumps(sorted(replied)).encode())
            elif path in (TO_SITE, FROM_SITE, LOOK):
                await self._watch(scope, await _body(counted), counted, passed_on)
            else:
                await self.app(scope, counted, passed_on)
        if seen > self.limit and not answered:
            await _respond(send, 413, b"larger than agreed")

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, bytes] | None:
        """The guard's answer to a request, or None where the app may handle it."""
        shown, length = headers.get(HEADER.encode(), b""), headers.get(b"content-length", b"0")
        if not path.startswith(OPEN) and not hmac.compare_digest(shown, self.secret):
            return 403, b"not open to you"
        if path.startswith(FLEET):
            if self.known_keys is None:
                return 503, b"come again"
            # Flower checks that whoever shows a key also has it; a key that nobody registered does not come so far.
            if headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode(), b"").decode("latin-1") not in self.known_keys:
                return 403, b"unknown key"
        if not length.isdigit() or int(length[:20]) > self.limit:
            return 413, b"larger than agreed"
        return None

    async def _watch(self, scope: Message, body: bytes, receive: Receive, send: Send) -> None:
        """Let the app answer, and wake who waits for what was announced, or hold "nothing yet" back."""
        waiting, answer = [{"type": "http.request", "body": body, "more_body": False}], list[Message]()
        node, announced = _nodes(str(scope["path"]), body)
        before = self._sent_to[node]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        async def keep(message: Message) -> None:
            answer.append(message)

        await self.app(scope, replay, keep)
        if answer and answer[0]["status"] == 200:  # else nobody knows who asked
            if scope["path"] == LOOK:
                if not any(message.get("body") for message in answer):
                    # The answer stays "nothing yet": were it the message, a site that has gone would take it along.
                    await self._wait_until(lambda: self._sent_to[node] != before)
            else:
                self._sent_to.update(announced)
                if scope["path"] == FROM_SITE:
                    self._replied.add(node)
                async with self._news:
                    self._news.notify_all()
        for message in answer:
            await send(message)

    async def _wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened, a moment at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLD_IN_S), self._news:
                await self._news.wait_for(happened)


def _nodes(path: str, body: bytes) -> tuple[int, list[int]]:
    """The site that asks, 0 where none does, and the sites that messages are announced to."""
    with contextlib.suppress(DecodeError):
        if path == LOOK:
            return PullMessagesRequest.FromString(body).node.node_id, []
        if path == FROM_SITE:
            return PushMessagesRequest.FromString(body).node.node_id, []
        return 0, [m.metadata.dst_node_id for m in PushAppMessagesRequest.FromString(body).messages_list]
    return 0, []


async def _body(receive: Receive) -> bytes:
    parts, more = list[bytes](), True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = bool(message.get("more_body"))
    return b"".join(parts)


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    if status >= 400:
        headers.append((b"connection", b"close"))  # a body that was refused is not read to its end
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
