"""A site's way in: clocks that differ, keys still in use after a kill, messages in another's name."""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate import LinkState, LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.servicer.fleet import fleet_handlers

from fedprognos.deployment import keys
from fedprognos.deployment.flower import patches, supernode
from fedprognos.deployment.flower.launch import ClockError, JoinRefusedError, KeyInUseError, Refused, reasons
from fedprognos.deployment.flower.superlink import SuperLink
from fedprognos.deployment.flower.supernode import SuperNode, clock_ahead_in_s
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.processes import Child, ProcessError
from refusals import refuses

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"


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


def test_a_clock_that_is_ahead_is_refused_in_words_with_how_far(tmp_path: Path) -> None:
    said: list[str] = []
    with coordinator_whose_clock_is(20.0, tmp_path) as address:
        assert clock_ahead_in_s(address, tmp_path / "ca.crt") == pytest.approx(20.0, abs=3.0)
        site = SuperNode(tmp_path, SiteOptions(name="a", coordinator=address), said.append)
        with contextlib.closing(site), refuses(ClockError) as caught:
            site.next()
    assert any(f"{seconds} s" in str(caught.value) for seconds in range(19, 24))
    assert not (tmp_path / "supernode.log").exists()  # nothing was started
    assert clock_ahead_in_s("localhost:1", tmp_path / "ca.crt") is None


def site_whose_supernode_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int], said: list[str]
) -> SuperNode:
    """A site whose SuperNode ends with each of these exit codes in turn, and then stays."""

    def start(what: str, arguments: list[str], place: Path, environment: dict[str, str]) -> Child:
        port = arguments[arguments.index("--port") + 1]
        code = f"raise SystemExit({codes.pop(0)})" if codes else LISTEN
        return Child(what, [sys.executable, "-c", code, port], place, environment, reasons(place))

    monkeypatch.setattr(supernode, "start", start)
    monkeypatch.setattr(supernode, "RETRY_IN_S", 0.05)
    (folder / "tasks.secret").write_text("0" * 64)
    keys.make_authority(folder)
    return SuperNode(folder, SiteOptions(name="a", coordinator="localhost:1"), said.append)


@pytest.mark.soak
def test_a_site_restarted_soon_after_a_kill_waits_until_it_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    site = site_whose_supernode_ends(tmp_path, monkeypatch, [Refused.IN_USE, Refused.IN_USE], said)
    with contextlib.closing(site):
        for _ in range(3):
            assert site.next() is None
        assert site._child is not None  # it stays
    assert len([text for text in said if "trying again" in text]) == 2


def test_a_key_that_stays_in_use_and_an_unknown_one_end_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    site = site_whose_supernode_ends(tmp_path, monkeypatch, [Refused.IN_USE, Refused.KEY, 3], said)
    monkeypatch.setattr(supernode, "MISSED_IN_S", 0.0)
    with contextlib.closing(site):
        with refuses(KeyInUseError, "site.key"):
            site.next()
        with refuses(JoinRefusedError, "site.key"):
            site.next()
        with refuses(ProcessError, "supernode", 3):
            site.next()
        monkeypatch.setattr(supernode, "LASTED_IN_S", -1.0)  # as if it had been connected for long
        site = site_whose_supernode_ends(tmp_path, monkeypatch, [0], said)
    with contextlib.closing(site):
        assert site.next() is None
    assert "joining again" in said[-1]


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


@pytest.mark.usefixtures("handlers")
def test_a_key_in_use_is_told_from_an_unknown_one() -> None:
    patches.tell_keys_in_use_from_unknown_ones()
    state = link_state()
    state.create_node("me", "me", b"key of a", 0)
    known = ActivateNodeRequest(public_key=b"key of a", heartbeat_interval=30.0)
    strange = ActivateNodeRequest(public_key=b"key of nobody", heartbeat_interval=30.0)
    assert fleet_handlers.activate_node(request=known, state=state).node_id
    assert code_of(fleet_handlers.activate_node, request=known, state=state) == ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE
    failed = ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED
    assert code_of(fleet_handlers.activate_node, request=strange, state=state) == failed


@pytest.mark.usefixtures("handlers")
def test_a_message_in_the_name_of_another_is_refused_and_both_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another site, an answer; of the coordinator, a request to another site."""
    refused = tmp_path / "refused.jsonl"
    passed: list[Any] = []
    monkeypatch.setattr(fleet_handlers, "push_messages", lambda request, state: passed.append(request))
    patches.bind_replies(refused)

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
