"""What is changed in Flower, held against the Flower that is installed: a new version must be looked at anew."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.app import Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.exit import exit_handler
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.state.alembic.utils import run_migrations
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink import extensions, main
from flwr.superlink.grid import HttpGrid
from flwr.superlink.routers.fleet import node_auth
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.runtime import run_clientapp

from fedprognos.deployment import keys
from fedprognos.deployment.carrier import CarrierError
from fedprognos.deployment.flower import patches
from fedprognos.deployment.flower.guard import Guard
from fedprognos.deployment.flower.launch import Refused, why_refused
from fedprognos.deployment.flower.mailbox import KIND, wrapped
from fedprognos.deployment.processes import Backoff
from fedprognos.errors import MessageError
from refusals import refuses

SEEN = {
    "poll_often, fetch_parts_often": (start_client_internal.start_client_internal, "9e89a6eb68fb"),
    "send_waiting_replies": (start_client_internal._pull_and_store_message, "eaf5d0e36dc3"),
    "send_waiting_replies (its counterpart)": (start_client_internal._push_messages, "00bb86faffde"),
    "fetch_parts_often": (run_clientapp.pull_task_input, "5607a23e1673"),
    "fetch_parts_often, BoundedGrid": (inflatable_utils.pull_objects, "31bb2de46b45"),
    "guard_superlink": (main._get_middleware, "acdbc2dce152"),
    "BoundedGrid": (HttpGrid.pull_messages, "67a5266a5a2e"),
    "bind_replies": (fleet_handlers.push_messages, "70c2fe927c66"),
    "bind_replies (who a sender is)": (node_auth.authenticate_node, "f8e66372d61b"),
    "tell_keys_in_use_from_unknown_ones": (fleet_handlers.activate_node, "0370edbbeb92"),
    "prepare_database": (run_migrations, "bc04710c78c2"),
    "why_refused": (fleet_http_connection.http_request_response, "b80ca36779c2"),
    "why_refused (exit handlers)": (exit_handler.trigger_exit_handlers, "5703e77e3197"),
}
"""The parts of Flower that each change relies on, and a digest of their source when it was last looked at."""


@pytest.mark.parametrize("change", SEEN)
def test_flower_is_as_it_was_when_it_was_changed(change: str) -> None:
    function, seen = SEEN[change]
    digest = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]
    assert digest == seen, f"Flower's {function.__qualname__} changed: does patches.{change} still fit? Then note it."


@pytest.fixture(autouse=True)
def flower_as_it_was() -> Iterator[None]:
    modules: tuple[ModuleType, ...] = (start_client_internal, run_clientapp, extensions)
    before = [dict(vars(module)) for module in modules]
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    yield
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).filters.clear()
    for module, names in zip(modules, before, strict=True):
        vars(module).update(names)


def test_a_part_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(extensions, "get_middleware")
    with refuses(CarrierError, "flwr.superlink.extensions.get_middleware"):
        patches.guard_superlink("secret", 100)


def test_the_supernode_looks_often_and_its_clock_is_a_clock_otherwise() -> None:
    patches.poll_often(Backoff(0.05))
    clock = start_client_internal.time  # type: ignore[attr-defined]
    begun = time.monotonic()
    for seconds in (3, 0.5):
        clock.sleep(seconds)
    assert time.monotonic() - begun < 0.4
    assert abs(clock.time() - time.time()) < 1


def test_a_reply_that_waits_is_sent_without_a_new_message() -> None:
    state = NodeStateFactory(objectstore_factory=ObjectStoreFactory()).state()
    found: dict[str, Any] = dict.fromkeys(
        ("object_store", "node_config", "get_run", "get_fab", "pull_object", "confirm_message_received",
         "trusted_entities")
    )  # fmt: skip
    patches.send_waiting_replies(Backoff(1.0))
    pull: Callable[..., int | None] = start_client_internal._pull_and_store_message
    assert pull(state=state, receive=lambda: None, **found) is None
    asked = Message(wrapped(b"abc"), 7, KIND)
    asked.metadata.__dict__["_message_id"] = "asked"
    reply = Message(wrapped(b"def"), reply_to=asked)
    reply.metadata.__dict__["_message_id"] = "reply"
    state.store_message(reply)
    assert pull(state=state, receive=lambda: None, **found) is not None
    assert len(state.get_messages_legacy(is_reply=True)) == 1  # it is fetched to be sent
    assert pull(state=state, receive=lambda: None, **found) is None


def test_parts_on_their_way_are_fetched_often() -> None:
    patches.fetch_parts_often()
    tries = iter([True, True, False])

    def fetch(name: str) -> bytes:
        if next(tries):
            raise inflatable_utils.ObjectUnavailableError(name)
        return b"part"

    begun = time.monotonic()
    assert start_client_internal.pull_objects(["x"], fetch) == {"x": b"part"}  # type: ignore[attr-defined]
    assert time.monotonic() - begun < 0.5
    whole = run_clientapp.pull_and_inflate_object_from_tree  # type: ignore[attr-defined]
    assert whole.keywords == patches.RETRY
    inspect.signature(whole.func).bind(None, None, None, return_type=Message, **patches.RETRY)


def test_the_guard_is_the_first_to_see_a_request() -> None:
    patches.guard_superlink("secret", 100)
    first = main._get_middleware()[0]
    assert first.cls is Guard
    assert first.kwargs == {"secret": "secret", "limit_in_bytes": 100}


def test_looking_who_is_there_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    patches.keep_routine_out_of_the_log()
    log = logging.getLogger("flwr")
    log.warning("ControlServicer.%s", "ListNodes")
    log.warning("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]


def test_a_reply_of_many_parts_or_one_that_never_arrives_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ObjectTree(object_id="0", children=[ObjectTree(object_id=str(k)) for k in range(1, 20)])
    proto = SimpleNamespace(metadata=SimpleNamespace(message_id="0"))

    def missing(request: Any) -> Any:
        return SimpleNamespace(object_found=True, object_available=False, object_content=b"")

    answer = SimpleNamespace(messages_list=[proto], message_object_trees=[tree])
    client = SimpleNamespace(PullMessages=lambda request: answer, PullObject=missing)
    monkeypatch.setattr(HttpGrid, "_runtime_client", client)
    monkeypatch.setattr(HttpGrid, "run", SimpleNamespace(run_id=1))
    grid = patches.BoundedGrid("localhost:1", b"", "token", arrival_in_s=0.2)
    with refuses(MessageError, 20):
        grid.pull_messages(["0"])
    answer.message_object_trees = [ObjectTree(object_id="0")]
    with pytest.raises(inflatable_utils.ObjectPullError):
        grid.pull_messages(["0"])


def status_error(code: int) -> httpx.HTTPStatusError:
    text = json.dumps(FlowerError(code, "secret").to_json("Failed."))
    response = httpx.Response(412, text=text)
    return httpx.HTTPStatusError("", request=httpx.Request("POST", "https://x"), response=response)


def test_why_a_supernode_could_not_join_is_its_exit_code() -> None:
    assert why_refused(status_error(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)) == Refused.KEY
    assert why_refused(status_error(ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE)) == Refused.IN_USE
    assert why_refused(status_error(ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL)) is None
    request, late = httpx.Request("POST", "https://x"), httpx.Response(401, text="Invalid SuperNode authentication")
    assert why_refused(httpx.HTTPStatusError("", request=request, response=late)) == Refused.CLOCK
    foreign = httpx.ConnectError("certificate verify failed")
    foreign.__cause__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    assert why_refused(foreign) == Refused.CERTIFICATE
    assert why_refused(httpx.ConnectError("refused")) is None
    assert why_refused(None) is None


def test_the_superlink_refuses_tls_below_1_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from uvicorn import config

    monkeypatch.setattr(config, "create_ssl_context", config.create_ssl_context)  # put back after the test
    patches.only_tls_1_3()
    keys.make_authority(tmp_path)
    keys.make_server_certificate(tmp_path, tmp_path, "localhost")
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    server = config.Config(lambda: None, ssl_certfile=str(certificate), ssl_keyfile=str(key), log_config=None)
    server.load()
    assert server.ssl is not None
    assert server.ssl.minimum_version == ssl.TLSVersion.TLSv1_3
