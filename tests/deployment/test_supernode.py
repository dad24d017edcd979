"""A site's way in: clocks that differ, keys still in use after a kill, messages in another's name."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate import LinkState, LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.servicer.fleet import fleet_handlers

from fedprognos.deployment import keys
from fedprognos.deployment.flower import patched_superlink, supernode
from fedprognos.deployment.flower.superlink import SuperLink
from fedprognos.deployment.flower.supernode import (
    ClockError,
    JoinRefusedError,
    KeyInUseError,
    SuperNode,
    clock_ahead_in_s,
    why_refused,
)
from fedprognos.deployment.folders import SiteOptions
from fedprognos.errors import ConfigError
from refusals import refuses


@contextlib.contextmanager
def coordinator_whose_clock_is(behind_in_s: float, folder: Path) -> Iterator[str]:
    """A TLS server of this federation's authority that dates its answers; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            self.send_header("date", formatdate(time.time() - behind_in_s, usegmt=True))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    keys.make_authority(folder)
    keys.make_server_certificate(folder, folder, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"localhost:{server.server_port}"
        server.shutdown()


def test_a_clock_that_is_ahead_is_refused_in_words_with_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supernode, "RETRY_IN_S", 0.01)
    with coordinator_whose_clock_is(20.0, tmp_path) as address:
        assert clock_ahead_in_s(address, tmp_path / "ca.crt") == pytest.approx(20.0, abs=3.0)
        keys.make_site_keys(tmp_path)
        site = SuperNode(tmp_path, SiteOptions(name="a", coordinator=address), [].append)
        with contextlib.closing(site), refuses(ClockError) as caught:
            site.next()
    assert any(f"{seconds} s" in str(caught.value) for seconds in range(19, 24))
    assert clock_ahead_in_s("localhost:1", tmp_path / "ca.crt") is None


def test_an_old_time_of_a_coordinator_that_stood_still_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = iter([76.0, 0.5])
    monkeypatch.setattr(supernode, "clock_ahead_in_s", lambda coordinator, authority: next(shown))
    with site_of(tmp_path, monkeypatch, ONLINE) as (site, _):
        assert site.next() is None
        assert "ActivateNode" in site._client.asked  # type: ignore[attr-defined]


class SuperLinkHere:
    """The edge of the machine: what a site's connection is answered; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(request: Any) -> Any:
            self.asked.append(name)
            if name not in ("ActivateNode", "PullMessages"):
                return SimpleNamespace(success=True)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def close(self) -> None:
        pass


@contextlib.contextmanager
def site_of(folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> Iterator[tuple[SuperNode, list[str]]]:
    """A site whose coordinator gives these answers, and what its engineer is told."""
    monkeypatch.setattr(supernode, "RETRY_IN_S", 0.01)
    told: list[str] = []
    keys.make_authority(folder)
    keys.make_site_keys(folder)
    site = SuperNode(folder, SiteOptions(name="a", coordinator="localhost:1"), told.append)
    site._client.close()
    site._client = SuperLinkHere(*answers)  # type: ignore[assignment]
    with contextlib.closing(site):
        yield site, told


ONLINE, NOTHING = SimpleNamespace(node_id=7), SimpleNamespace(messages_list=[])


def status_error(status: int, code: int | None = None) -> httpx.HTTPStatusError:
    text = "" if code is None else json.dumps(FlowerError(code, "secret").to_json("Failed."))
    response = httpx.Response(status, text=text)
    return httpx.HTTPStatusError("", request=httpx.Request("POST", "https://x"), response=response)


IN_USE = status_error(412, ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)


def test_a_site_restarted_soon_after_a_kill_waits_until_it_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site_of(tmp_path, monkeypatch, IN_USE, IN_USE, ONLINE, NOTHING) as (site, told):
        for _ in range(4):
            assert site.next() is None
        assert site._client.asked.count("PullMessages") == 1  # type: ignore[attr-defined]
    assert len(told) == 1
    assert site._client.asked[-1] == "DeactivateNode"  # type: ignore[attr-defined]


def test_a_key_that_stays_in_use_and_an_unknown_one_end_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supernode, "MISSED_IN_S", -1.0)
    with site_of(tmp_path, monkeypatch, IN_USE, status_error(403)) as (site, _):
        with refuses(KeyInUseError, "site.key"):
            site.next()
        with refuses(JoinRefusedError, "site.key"):
            site.next()


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), status_error(503), status_error(500), ValueError("nonsense")]
)
def test_a_coordinator_that_is_away_is_tried_again_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with site_of(tmp_path, monkeypatch, error, error, ONLINE, NOTHING, error) as (site, told):
        for _ in range(5):
            assert site.next() is None
    assert len(told) == 2


def test_a_site_whose_coordinator_forgot_it_connects_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with site_of(tmp_path, monkeypatch, ONLINE, status_error(401), ONLINE, status_error(401)) as (site, _):
        for _ in range(3):
            assert site.next() is None
        assert site._client.asked.count("ActivateNode") == 2  # type: ignore[attr-defined]
    with (
        site_of(tmp_path, monkeypatch, status_error(401)) as (site, _),  # it refuses the time that a new one signs
        refuses(ClockError),
    ):
        site.next()


def test_a_message_that_is_not_one_or_that_has_gone_does_not_end_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = SimpleNamespace(metadata=SimpleNamespace(message_id="0", run_id=1))
    tree = ObjectTree(object_id="0", children=[ObjectTree(object_id=str(k)) for k in range(1, 20)])
    spoilt = SimpleNamespace(messages_list=[announced], message_object_trees=[tree])
    with site_of(tmp_path, monkeypatch, ONLINE, spoilt, NOTHING) as (site, told):
        for _ in range(3):
            assert site.next() is None
    assert len(told) == 1


def test_a_site_that_lost_a_message_connects_anew_so_that_it_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = SimpleNamespace(metadata=SimpleNamespace(message_id="0", run_id=1))
    message = SimpleNamespace(messages_list=[announced], message_object_trees=[ObjectTree(object_id="0")])
    with site_of(tmp_path, monkeypatch, ONLINE, message, ONLINE, NOTHING) as (site, told):

        def broken(request: Any) -> Any:
            raise status_error(500)

        monkeypatch.setattr(site._client, "PullObject", broken, raising=False)
        for _ in range(4):
            assert site.next() is None
        asked = [name for name in site._client.asked if name != "SendNodeHeartbeat"]  # type: ignore[attr-defined]
    assert asked == ["ActivateNode", "PullMessages", "DeactivateNode", "ActivateNode", "PullMessages"]
    assert len(told) == 1


def test_a_foreign_authority_is_named(tmp_path: Path) -> None:
    foreign = httpx.ConnectError("certificate verify failed")
    foreign.__cause__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    refused = why_refused(foreign, tmp_path)
    assert isinstance(refused, JoinRefusedError)
    assert refused.where == str(tmp_path / "ca.crt")
    assert not isinstance(why_refused(httpx.ConnectError("refused"), tmp_path), JoinRefusedError)


def test_a_site_without_its_key_or_authority_says_which_file(tmp_path: Path) -> None:
    options = SiteOptions(name="a", coordinator="localhost:1")
    with refuses(ConfigError, "site.key"):
        SuperNode(tmp_path, options, print)
    keys.make_site_keys(tmp_path)
    with refuses(ConfigError, "ca.crt"):
        SuperNode(tmp_path, options, print)


@pytest.fixture
def handlers() -> Iterator[None]:
    before = dict(vars(fleet_handlers))
    yield
    vars(fleet_handlers).update(before)


def link_state() -> LinkState:
    return LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()).state()


def code_of(call: Callable[..., Any], **arguments: Any) -> int:
    with pytest.raises(FlowerError) as refused:
        call(**arguments)
    return int(refused.value.code)


def test_flower_gives_the_error_that_means_a_key_in_use() -> None:
    state = link_state()
    state.create_node("me", "me", b"key of a", 0)
    known = ActivateNodeRequest(public_key=b"key of a", heartbeat_interval=supernode.HEARTBEAT_MIN_INTERVAL)
    assert fleet_handlers.activate_node(request=known, state=state).node_id
    failed = ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED
    assert code_of(fleet_handlers.activate_node, request=known, state=state) == failed


@pytest.mark.usefixtures("handlers")
def test_a_message_in_the_name_of_another_is_refused_and_both_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another site, an answer; of the coordinator, a request to another site."""
    refused = tmp_path / "refused.jsonl"
    passed: list[Any] = []
    monkeypatch.setattr(fleet_handlers, "push_messages", lambda request, state: passed.append(request))
    patched_superlink.bind_replies(refused)

    def push(sender: int, claimed: int) -> None:
        message = Message(metadata=Metadata(src_node_id=claimed))
        request = PushMessagesRequest(node=Node(node_id=sender), messages_list=[message])
        fleet_handlers.push_messages(request=request, state=link_state())

    push(sender=11, claimed=11)
    for claimed in (22, SUPERLINK_NODE_ID):
        with pytest.raises(HTTPException) as error:
            push(sender=11, claimed=claimed)
        assert error.value.status_code == 403
    assert len(passed) == 1
    assert [json.loads(line)["claimed"] for line in refused.read_text().splitlines()] == [22, SUPERLINK_NODE_ID]

    (tmp_path / "control.secret").write_text("s")
    keys.make_authority(tmp_path)
    hub = SuperLink(None, tmp_path, "localhost:1", {}, refused)  # type: ignore[arg-type]
    there = {"plant-a": SimpleNamespace(node_id=11), "plant-b": SimpleNamespace(node_id=22)}
    monkeypatch.setattr(hub, "nodes", lambda: there)
    with contextlib.closing(hub):
        assert hub.refusals() == [
            "plant-a sent a message in the name of plant-b; it was refused",
            "plant-a sent a message in the name of the coordinator; it was refused",
        ]
        assert hub.refusals() == []
