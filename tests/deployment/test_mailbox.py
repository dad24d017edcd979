"""Messages inside Flower's: the bytes come out as they went in, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity

from fedprognos.deployment.carrier import CarrierError, Presence, RunClosedError, SiteLostError
from fedprognos.deployment.flower.mailbox import KIND, FlowerMailbox, content, wrapped
from fedprognos.errors import MessageError
from refusals import refuses

ASKED = httpx.Request("POST", "https://localhost/")


@pytest.fixture(autouse=True)
def as_in_a_run() -> None:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def test_bytes_come_out_as_they_went_in_and_nothing_else_does() -> None:
    assert content(Message(wrapped(b"abc"), 7, KIND)) == b"abc"
    for records in (
        RecordDict(),
        RecordDict({"other": ConfigRecord({"message": b"a"})}),
        RecordDict({"fedprognos": ConfigRecord({"message": "text"})}),
        RecordDict({"fedprognos": ConfigRecord({"message": b"a", "more": 1})}),
    ):
        with pytest.raises(MessageError):
            content(Message(records, 7, KIND))


class Grid:
    """The edge of the machine: what comes back for each message."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.pushed = answer, list[Message]()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self.pushed += messages
        return ["ticket"]

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [] if self.answer is None else [self.answer]


def answered(answer: RecordDict | Error) -> Message:
    asked = Message(wrapped(b""), 7, KIND)
    asked.metadata.__dict__["_message_id"] = "asked"
    return Message(answer, reply_to=asked)


def mailbox(answer: Any) -> FlowerMailbox:
    nodes = {"a": NodeInfo(node_id=7, status="online", last_activated_at="monday"), "b": NodeInfo(node_id=8)}
    return FlowerMailbox(Grid(answer), lambda: nodes)  # type: ignore[arg-type]


def test_a_run_that_flower_closed_is_not_waited_in() -> None:
    box = FlowerMailbox(Grid(None), dict, lambda: False)  # type: ignore[arg-type]
    with pytest.raises(RunClosedError):
        box.presence()


def test_equal_messages_to_a_site_are_two_messages() -> None:
    box = mailbox(None)
    assert box.presence() == {"a": Presence(True, None, "monday"), "b": Presence(False, None, "")}
    for _ in range(2):
        assert box.push("a", b"abc", 60.0) == "ticket"
    first, second = box._grid.pushed  # type: ignore[attr-defined]
    assert first.metadata.dst_node_id == 7
    assert first.object_id != second.object_id


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (None, None),
        (httpx.ConnectError("a moment, please"), None),
        (b"abc", b"abc"),
        (ValueError("cannot be inflated"), MessageError),
        (httpx.HTTPStatusError("", request=ASKED, response=httpx.Response(401, request=ASKED)), None),
        (httpx.HTTPStatusError("", request=ASKED, response=httpx.Response(500, request=ASKED)), MessageError),
        (ErrorCode.NODE_UNAVAILABLE, SiteLostError),
        (ErrorCode.CLIENT_APP_CRASHED, SiteLostError),  # a site that stands still
        (ErrorCode.UNKNOWN, MessageError),
    ],
)
def test_a_reply_is_bytes_or_nothing_yet_or_an_error_of_its_own_kind(answer: Any, found: Any) -> None:
    if isinstance(answer, bytes):
        answer = answered(wrapped(answer))
    elif isinstance(answer, int):
        answer = answered(Error(answer, "reason"))
    box = mailbox(answer)
    if isinstance(found, type):
        with pytest.raises(found):
            box.pull("ticket")
    else:
        assert box.pull("ticket") == found


def test_a_message_that_could_not_be_sent_is_an_engine_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    box = mailbox(None)
    box.presence()
    monkeypatch.setattr(box._grid, "push_messages", lambda messages: [])  # larger than the SuperLink reads
    with refuses(CarrierError, "superlink.log"):
        box.push("a", b"abc", 60.0)
