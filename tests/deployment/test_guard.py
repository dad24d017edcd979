"""The guard in front of the SuperLink: what is open to whom, and how large a message may be."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from fedprognos.deployment.flower.guard import HEADER, UNLOCK, Guard


def call(guard: Guard, path: str, headers: dict[str, str] | None = None, chunks: tuple[bytes, ...] = (b"",)) -> int:
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
    guard = Guard(reads_everything, "secret", 100)
    assert call(guard, path) == 403
    assert call(guard, path, {HEADER: "guess"}) == 403
    assert call(guard, path, {HEADER: "secret"}) == 200


def test_what_has_locks_of_its_own_is_let_through_up_to_the_limit() -> None:
    guard = Guard(reads_everything, "secret", 100)
    assert call(guard, "/v1/fleet/activate-node") == 503  # the sites' keys are not registered yet
    assert call(guard, UNLOCK) == 403
    assert call(guard, UNLOCK, {HEADER: "secret"}) == 204
    assert call(guard, "/v1/fleet/push-object", chunks=(bytes(60), bytes(40))) == 200
    assert call(guard, "/v1/fleet/push-object", {"content-length": "101"}) == 413
    assert call(guard, "/v1/fleet/push-object", {"content-length": "many"}) == 413
    assert call(guard, "/v1/fleet/push-object", {"content-length": "9" * 5000}) == 413
    assert call(guard, "/v1/fleet/push-object", chunks=(bytes(60), bytes(60))) == 413  # a length that was not told


async def answers_errors_itself(scope: Any, receive: Any, send: Any) -> None:
    try:
        await reads_everything(scope, receive, send)
    except Exception:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        raise


def test_too_much_is_refused_as_such_whatever_the_app_makes_of_it() -> None:
    guard = Guard(answers_errors_itself, "secret", 100)
    assert call(guard, "/v1/runtime/push-object", chunks=(bytes(60), bytes(60))) == 413
    assert call(guard, "/v1/runtime/push-object", chunks=(bytes(60), bytes(40))) == 200
