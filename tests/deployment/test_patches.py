"""What is changed in Flower, held against the Flower that is installed: a new version must be looked at anew."""

from __future__ import annotations

import hashlib
import inspect
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.superlink import extensions, main
from flwr.superlink.grid import HttpGrid
from flwr.superlink.routers.fleet import node_auth
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.supernode import fleet_http_connection
from flwr.supernode.runtime import run_clientapp

from fedprognos.deployment import keys
from fedprognos.deployment.carrier import CarrierError
from fedprognos.deployment.flower import patched_superlink as patches
from fedprognos.deployment.flower.guard import LOOK, NEWS, SuperLinkGuard
from fedprognos.deployment.flower.messages import receive_message
from fedprognos.errors import MessageError
from refusals import refuses

SEEN = {
    "guard_superlink": (main._get_middleware, "acdbc2dce152"),
    "bind_replies": (fleet_handlers.push_messages, "70c2fe927c66"),
    "bind_replies (who a sender is)": (node_auth.authenticate_node, "f8e66372d61b"),
    "why_refused": (fleet_handlers.activate_node, "0370edbbeb92"),
    "SuperNode (how Flower's own one speaks)": (fleet_http_connection.http_request_response, "b80ca36779c2"),
    "send_message (how Flower's own site sends)": (run_clientapp.push_message, "07cb512c93e0"),
    "receive_message (when to ask again)": (make_pull_object_fn_protobuf, "ede05e6314fa"),
    "receive_message (how Flower's own coordinator fetches)": (HttpGrid.pull_messages, "67a5266a5a2e"),
}
"""The parts of Flower that each change, or part written anew, relies on, and a digest of their source as last seen."""


@pytest.mark.parametrize("change", SEEN)
def test_flower_is_as_it_was_when_it_was_changed(change: str) -> None:
    function, seen = SEEN[change]
    digest = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]
    assert digest == seen, f"Flower's {function.__qualname__} changed: does patches.{change} still fit? Then note it."


@pytest.fixture(autouse=True)
def flower_as_it_was() -> Iterator[None]:
    module: ModuleType = extensions
    before = dict(vars(module))
    yield
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).filters.clear()
    vars(module).update(before)


def test_a_part_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(extensions, "get_middleware")
    with refuses(CarrierError, "flwr.superlink.extensions.get_middleware"):
        patches.guard_superlink("secret", 100)


def test_the_guard_is_the_first_to_see_a_request() -> None:
    patches.guard_superlink("secret", 100)
    first = main._get_middleware()[0]
    assert first.cls is SuperLinkGuard
    assert first.kwargs == {"secret": "secret", "limit_in_bytes": 100}


def test_what_is_asked_all_the_time_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    patches.keep_routine_out_of_the_log()
    log = logging.getLogger("flwr")
    log.warning("ControlServicer.%s", "ListNodes")
    for path in (LOOK, NEWS, "/v1/fleet/send-node-heartbeat", "/v1/control/list-nodes", "/v1/control/list-runs"):
        logging.getLogger("uvicorn.access").warning('127.0.0.1:1 - "POST %s HTTP/1.1" 200', path)
    log.warning("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]


def test_a_message_of_many_parts_or_one_that_never_arrives_is_given_up() -> None:
    tree = ObjectTree(object_id="0", children=[ObjectTree(object_id=str(k)) for k in range(1, 20)])
    announced: Any = SimpleNamespace(metadata=SimpleNamespace(message_id="0", run_id=1))

    def missing(request: Any) -> Any:
        return SimpleNamespace(object_found=True, object_available=False, object_content=b"")

    client: Any = SimpleNamespace(PullObject=missing)
    with refuses(MessageError, 20):
        receive_message(client, announced, tree, Node(node_id=1), 0.2)
    with pytest.raises(MessageError):
        receive_message(client, announced, ObjectTree(object_id="0"), Node(node_id=1), 0.2)


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
