"""The coordinator's mailbox. Our bytes travel as the only entry of the only record of a Flower message."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import HEARTBEAT_PATIENCE, ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.constant import NodeStatus

from fedprognos.deployment.carrier import CarrierError, Presence, RunClosedError, SiteLostError
from fedprognos.errors import MessageError

KIND = "query.fedprognos"
RECORD, ENTRY = "fedprognos", "message"
LOST = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.CLIENT_APP_CRASHED,
)
"""Flower's own words for a message or site that it lost sight of: a site may stand still, or only be restarting."""


@contextlib.contextmanager
def carrier_errors(what: str) -> Iterator[None]:
    """Turn Flower's errors into :class:`CarrierError`."""
    try:
        yield
    except (httpx.HTTPError, ValueError) as error:
        raise CarrierError(f"{what}: {error}", hint="superlink.log says more") from error


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


class FlowerMailbox:
    """Sends to the sites' nodes through a grid and fetches their replies, while the run `is_open`."""

    def __init__(
        self, grid: Grid, nodes: Callable[[], Mapping[str, NodeInfo]], is_open: Callable[[], bool] = lambda: True
    ) -> None:
        self._grid, self._nodes, self._is_open = grid, nodes, is_open
        self._ids: dict[str, int] = {}
        self._numbers = itertools.count()

    def presence(self) -> dict[str, Presence]:
        if not self._is_open():
            raise RunClosedError("the SuperLink gave up the run, because it missed this process for a minute")
        nodes = self._nodes()
        self._ids = {name: node.node_id for name, node in nodes.items()}
        return {name: presence_of(node) for name, node in nodes.items()}

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        number = str(next(self._numbers))  # Flower drops a message that equals an earlier one
        message = Message(wrapped(data), self._ids[site], KIND, ttl=ttl_in_s, group_id=number)
        with carrier_errors(f"a message to {site} was not sent"):
            [ticket] = self._grid.push_messages([message])
        return str(ticket)

    def pull(self, ticket: str) -> bytes | None:
        try:
            messages = list(self._grid.pull_messages([ticket]))
        except httpx.TransportError:
            return None
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                return None  # the run is closed: the next look for sites says so
            raise MessageError(f"its answer cannot be read (HTTP {error.response.status_code})") from error
        except Exception as error:
            raise MessageError(f"its answer cannot be read ({type(error).__name__})") from error
        if not messages:
            return None
        if messages[0].has_error():
            if messages[0].error.code in LOST:
                raise SiteLostError("it went away")
            raise MessageError(f"it could not process the message (code {messages[0].error.code})")
        return content(messages[0])


def presence_of(node: NodeInfo) -> Presence:
    """Whether a site is online, and when it sent its last heartbeat."""
    seen = None
    if node.HasField("online_until"):
        beat = node.online_until - HEARTBEAT_PATIENCE * node.heartbeat_interval
        seen = datetime.fromtimestamp(beat, UTC).isoformat("T", "seconds")
    return Presence(node.status == NodeStatus.ONLINE, seen, str(node.last_activated_at))
