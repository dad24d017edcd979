"""The guard in front of the SuperLink: what is open to whom, and how large a message may be."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PushAppMessagesRequest

from fedprognos.deployment.flower import guard as module
from fedprognos.deployment.flower.guard import FROM_SITE, HEADER, LOOK, NEWS, TO_SITE, UNLOCK, SuperLinkGuard

KEY = "flwr-public-key"


def call(
    guard: SuperLinkGuard, path: str, headers: dict[str, str] | None = None, chunks: tuple[bytes, ...] = (b"",)
) -> int:
    sent: list[MutableMapping[str, Any]] = []
    waiting = [{"type": "http.request", "body": c, "more_body": k < len(chunks) - 1} for k, c in enumerate(chunks)]

    async def receive() -> MutableMapping[str, Any]:
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    raw = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
    asyncio.run(guard({"type": "http", "path": path, "headers": raw}, receive, send))
    return int(sent[0]["status"])


async def reads_everything(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/docs", "/openapi.json", "/", "/v1/fleets/x"])
def test_what_flower_leaves_open_needs_the_secret(path: str) -> None:
    guard = SuperLinkGuard(reads_everything, "secret", 100)
    assert call(guard, path) == 403
    assert call(guard, path, {HEADER: "guess"}) == 403
    assert call(guard, path, {HEADER: "secret"}) == 200


def test_what_has_locks_of_its_own_is_let_through_up_to_the_limit() -> None:
    guard = SuperLinkGuard(reads_everything, "secret", 100)
    assert call(guard, "/v1/fleet/activate-node") == 503  # the sites' keys are not registered yet
    assert call(guard, UNLOCK) == 403
    assert call(guard, UNLOCK, {HEADER: "secret"}, (b'["key of a"]',)) == 204
    assert call(guard, "/v1/fleet/activate-node") == 403
    assert call(guard, "/v1/fleet/activate-node", {KEY: "key of nobody"}) == 403
    for path in ("/v1/fleet/push-object", FROM_SITE):
        assert call(guard, path, {KEY: "key of a"}, (bytes(60), bytes(40))) == 200
        assert call(guard, path, {KEY: "key of a", "content-length": "101"}) == 413
        assert call(guard, path, {KEY: "key of a", "content-length": "many"}) == 413
        assert call(guard, path, {KEY: "key of a", "content-length": "9" * 5000}) == 413
        assert call(guard, path, {KEY: "key of a"}, (bytes(60), bytes(60))) == 413  # a length that was not told


async def answers_errors_itself(scope: Any, receive: Any, send: Any) -> None:
    try:
        await reads_everything(scope, receive, send)
    except Exception:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        raise


def test_too_much_is_refused_as_such_whatever_the_app_makes_of_it() -> None:
    guard = SuperLinkGuard(answers_errors_itself, "secret", 100)
    assert call(guard, "/v1/runtime/push-object", chunks=(bytes(60), bytes(60))) == 413
    assert call(guard, "/v1/runtime/push-object", chunks=(bytes(60), bytes(40))) == 200


async def ask(guard: SuperLinkGuard, path: str, body: bytes) -> tuple[int, bytes]:
    """Status and body of an answer."""
    sent: list[MutableMapping[str, Any]] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        return waiting.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(HEADER.encode(), b"secret"), (KEY.encode(), b"key of a")]
    await guard({"type": "http", "path": path, "headers": headers}, receive, send)
    return int(sent[0]["status"]), b"".join(message.get("body", b"") for message in sent)


def test_nothing_yet_is_held_back_until_a_message_for_this_site_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLD_IN_S", 20.0)
    guard = SuperLinkGuard(reads_everything, "secret", 1000)
    guard.known_keys = frozenset({"key of a"})
    look = PullMessagesRequest(node=Node(node_id=7)).SerializeToString()

    def to(node: int) -> bytes:
        message = Message(metadata=Metadata(dst_node_id=node))
        return PushAppMessagesRequest(messages_list=[message]).SerializeToString()

    async def play() -> None:
        looking = asyncio.create_task(ask(guard, LOOK, look))
        await asyncio.sleep(0.02)
        assert (await ask(guard, TO_SITE, to(8)))[0] == 200
        await asyncio.sleep(0.02)
        assert not looking.done()
        await ask(guard, TO_SITE, to(7))
        assert await asyncio.wait_for(looking, 5) == (200, b"")

        news = asyncio.create_task(ask(guard, NEWS, b""))
        await asyncio.sleep(0.02)
        assert not news.done()
        await ask(guard, FROM_SITE, PushMessagesRequest(node=Node(node_id=7)).SerializeToString())
        assert await asyncio.wait_for(news, 5) == (200, b"[7]")

    asyncio.run(play())


async def refuses_everybody(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_who_is_refused_wakes_nobody_and_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLD_IN_S", 0.05)
    guard = SuperLinkGuard(refuses_everybody, "secret", 1000)
    guard.known_keys = frozenset({"key of a"})
    reply = PushMessagesRequest(node=Node(node_id=7)).SerializeToString()

    async def play() -> None:
        for path in (LOOK, FROM_SITE):
            assert (await asyncio.wait_for(ask(guard, path, reply), 5))[0] == 401
        assert await ask(guard, NEWS, b"") == (200, b"[]")

    asyncio.run(play())
