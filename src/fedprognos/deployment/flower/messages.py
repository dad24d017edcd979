"""Messages in Flower's form: ours travel as the only entry of the only record of a Flower message.

Flower announces a message first and then moves its parts, each named by its digest. Coordinator and sites do this by
the same calls, which their clients share.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedprognos.errors import MessageError

RECORD, ENTRY = "fedprognos", "message"
MAX_PARTS = 8
"""Our messages have three parts: the message, its record, and the entry with the bytes."""
RETRY_IN_S = 0.5
SHORTEST_IN_S = 0.02
"""The wait before asking again for what was announced."""
T = TypeVar("T")


class PartsMissingError(MessageError):
    """A message was announced, but its parts did not come: whoever sent it was cut off in between."""


class ObjectClient(Protocol):
    """What Flower's clients of both ends have in common."""

    def PullObject(self, request: Any) -> Any: ...  # noqa: N802 - the names are Flower's
    def PushObject(self, request: Any) -> Any: ...  # noqa: N802
    def ConfirmMessageReceived(self, request: Any) -> Any: ...  # noqa: N802


def wrapped(data: bytes) -> RecordDict:
    """Bytes as the content of a Flower message."""
    return RecordDict({RECORD: ConfigRecord({ENTRY: data})})


def content(message: Message) -> bytes:
    """The bytes inside a Flower message; raise where it holds anything else."""
    if message.has_content() and list(message.content) == [RECORD]:
        record = message.content[RECORD]
        if isinstance(record, ConfigRecord) and list(record) == [ENTRY] and isinstance(data := record[ENTRY], bytes):
            return data
    raise MessageError("not a message of this federation")


def persistent(call: Callable[..., T], patience_in_s: float) -> Callable[[Any], T]:
    """The same call, made again while the connection fails: an announced message is not announced again."""
    deadline = time.monotonic() + patience_in_s

    def call_again(request: Any) -> T:
        while True:
            try:
                return call(request)
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_IN_S)

    return call_again


def quietly(call: Callable[[], object]) -> None:
    """Call, whatever comes of it."""
    with contextlib.suppress(Exception):
        call()


def heartbeat(beat: Callable[[], object], every_in_s: float) -> Callable[[], None]:
    """Show in the background that this process is there, also while it computes; gives what ends it."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(every_in_s):
            quietly(beat)  # a call that fails is made again soon

    threading.Thread(target=work, daemon=True).start()
    return ended.set


def send_message(
    client: ObjectClient, announce: Callable[[MessageProto, ObjectTree], Any], node: Node, message: Message
) -> Any:
    """Announce a message, then move the parts that are asked for; gives the answer to the announcement."""
    message.metadata.__dict__["_message_id"] = message.object_id
    with no_object_id_recompute():
        answer = announce(message_to_proto(remove_content_from_message(message)), get_object_tree(message))
        for name, part in get_all_nested_objects(message).items():
            if name in answer.objects_to_push:
                place = {"node": node, "run_id": message.metadata.run_id, "session_id": answer.session_id}
                client.PushObject(PushObjectRequest(object_id=name, object_content=part.deflate(), **place))
    return answer


def receive_message(
    client: ObjectClient, announced: MessageProto, tree: ObjectTree, node: Node, arrival_in_s: float
) -> Message:
    """Fetch the parts of a message as they arrive; Flower itself would wait two hours, and take any number."""
    parts, name = [part.object_id for part in iterate_object_tree(tree)], announced.metadata.message_id
    if len(parts) > MAX_PARTS:
        raise MessageError(f"a message of {len(parts)} parts")
    run_id, deadline, contents = announced.metadata.run_id, time.monotonic() + arrival_in_s, dict[str, bytes]()
    for part in parts:
        request = PullObjectRequest(node=node, run_id=run_id, object_id=part)
        while not (reply := client.PullObject(request)).object_available:
            if not reply.object_found or time.monotonic() > deadline:
                raise PartsMissingError("a message whose parts did not arrive")
            time.sleep(SHORTEST_IN_S)
        contents[part] = reply.object_content
    client.ConfirmMessageReceived(ConfirmMessageReceivedRequest(node=node, run_id=run_id, message_object_id=name))
    message = inflate_object_from_contents(name, contents)
    if not isinstance(message, Message):
        raise MessageError("not a message")
    message.metadata.__dict__["_message_id"] = name
    return message
