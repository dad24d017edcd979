"""The federation's encoded messages inside Flower's: one record with one entry of bytes, nothing else."""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

from fedprognos.errors import MessageError

KIND = "query.fedprognos"
RECORD, ENTRY = "fedprognos", "message"


def request(data: bytes, node_id: int, ttl_in_s: float, group: str) -> Message:
    """A message to a node."""
    return Message(_wrapped(data), node_id, KIND, ttl=ttl_in_s, group_id=group)


def reply(data: bytes, to: Message) -> Message:
    """The answer to a message."""
    return Message(_wrapped(data), reply_to=to)


def content(message: Message, limit_in_bytes: int, where: str) -> bytes:
    """The bytes inside, refused by size and shape before anything reads them."""
    if not message.has_content():
        raise MessageError("empty message", where=where)
    records = message.content
    if list(records) != [RECORD] or not isinstance(record := records[RECORD], ConfigRecord):
        raise MessageError("not a message of this federation", where=where)
    data = record.get(ENTRY)
    if list(record) != [ENTRY] or not isinstance(data, bytes):
        raise MessageError("not a message of this federation", where=where)
    if len(data) > limit_in_bytes:
        raise MessageError(f"{len(data)} bytes, more than the {limit_in_bytes} agreed", where=where)
    return data


def _wrapped(data: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({ENTRY: data})})
