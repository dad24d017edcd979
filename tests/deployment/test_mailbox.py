"""Messages inside Flower's: the bytes come out as they went in, and nothing else does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.task_identity import TaskIdentity

from fedprognos.deployment.carrier import CarrierError, Presence, RunClosedError, SiteLostError
from fedprognos.deployment.flower import mailbox as module
from fedprognos.deployment.flower.mailbox import KIND, FlowerMailbox
from fedprognos.deployment.flower.messages import content, wrapped
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


class Client:
    """The edge of the machine: a SuperLink that takes messages in parts, and has one answer to each."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.announced, self.parts, self.looks = answer, list[Any](), dict[str, bytes](), 0

    def PushMessages(self, request: Any) -> Any:
        self.announced.append(request.messages_list[0])
        parts = [part.object_id for part in iterate_object_tree(request.message_object_trees[0])]
        return PushAppMessagesResponse(message_ids=["ticket"], objects_to_push=parts, session_id="s")

    def PushObject(self, request: Any) -> Any:
        self.parts[request.object_id] = request.object_content
        return SimpleNamespace(stored=True)

    def PullMessages(self, request: Any) -> Any:
        self.looks += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            return PullAppMessagesResponse()
        message: Message = self.answer
        message.metadata.__dict__["_message_id"] = message.object_id
        self.parts |= {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        bare = message_to_proto(remove_content_from_message(message))
        return PullAppMessagesResponse(messages_list=[bare], message_object_trees=[get_object_tree(message)])

    def PullObject(self, request: Any) -> Any:
        content = self.parts[request.object_id]
        return SimpleNamespace(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:
        pass


def answered(answer: RecordDict | Error) -> Message:
    asked = Message(wrapped(b""), 7, KIND)
    asked.metadata.__dict__["_message_id"] = "asked"
    return Message(answer, reply_to=asked)


def mailbox(answer: Any, news: list[int] | None = None, *, is_open: bool = True) -> FlowerMailbox:
    nodes = {"a": NodeInfo(node_id=7, status="online", last_activated_at="monday"), "b": NodeInfo(node_id=8)}
    client: Any = Client(answer)
    return FlowerMailbox(client, 1.0, lambda: nodes, lambda: news or [], lambda: is_open)


def test_a_run_that_flower_closed_is_not_waited_in() -> None:
    with pytest.raises(RunClosedError):
        mailbox(None, is_open=False).presence()


def test_equal_messages_to_a_site_are_two_messages() -> None:
    box = mailbox(None)
    assert box.presence() == {"a": Presence(True, None, "monday"), "b": Presence(False, None, "")}
    for _ in range(2):
        assert box.push("a", b"abc", 60.0) == "ticket"
    client: Any = box._client
    first, second = client.announced
    assert first.metadata.dst_node_id == 7
    assert first.metadata.message_id != second.metadata.message_id


def test_a_reply_is_looked_for_when_there_is_news_of_it_and_else_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    news: list[int] = [8]
    box = mailbox(None, news)
    box.presence()
    box.push("a", b"abc", 60.0)
    client: Any = box._client
    box.wait(0.0)
    assert (box.pull("ticket"), client.looks) == (None, 0)
    news[:] = [7]
    box.wait(0.0)
    client.answer = answered(wrapped(b"abc"))
    assert (box.pull("ticket"), client.looks) == (b"abc", 1)
    monkeypatch.setattr(module, "CHECK_IN_S", 0.0)  # the news was lost
    assert (box.pull("ticket"), client.looks) == (b"abc", 2)


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
    box = mailbox(answer, [7])
    box.presence()
    box.push("a", b"", 60.0)
    box.wait(0.0)
    if isinstance(found, type):
        with pytest.raises(found):
            box.pull("ticket")
    else:
        assert box.pull("ticket") == found


@pytest.mark.parametrize("found", [True, False])
def test_a_site_that_was_killed_while_it_answered_is_lost_and_not_at_fault(
    monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    box = mailbox(answered(wrapped(b"abc")), [7])
    box._arrival_in_s = 0.05
    box.presence()
    box.push("a", b"", 60.0)
    box.wait(0.0)
    part = SimpleNamespace(object_found=found, object_available=False, object_content=b"")
    monkeypatch.setattr(box._client, "PullObject", lambda request: part)
    with pytest.raises(SiteLostError):
        box.pull("ticket")


@pytest.mark.parametrize("answer", [PushAppMessagesResponse(message_ids=[""]), httpx.ConnectError("a moment, please")])
def test_a_message_that_could_not_be_sent_is_an_engine_s_error(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    box = mailbox(None)
    box.presence()

    def announce(request: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(box._client, "PushMessages", announce)
    with refuses(CarrierError, "superlink.log"):
        box.push("a", b"abc", 60.0)
