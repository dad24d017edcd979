"""The coordinator's mailbox."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime

import httpx
from flwr.app import Message
from flwr.common.constant import HEARTBEAT_PATIENCE, SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node, NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest, PushAppMessagesResponse
from flwr.supercore.constant import NodeStatus
from flwr.supercore.runtime import RuntimeHttpClient

from fedprognos.deployment.carrier import CarrierError, Presence, RunClosedError, SiteLostError
from fedprognos.deployment.flower.messages import (
    PartsMissingError,
    content,
    receive_message,
    send_message,
    wrapped,
)
from fedprognos.errors import MessageError

KIND = "query.fedprognos"
CHECK_IN_S = 3.0
"""Replies are fetched at least this often, announced or not: the SuperLink may have restarted, or lost a site."""
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


class FlowerMailbox:
    """Sends to the sites' nodes and fetches their replies, while the run is open.

    Parameters
    ----------
    nodes
        The sites' nodes by name.
    news
        Waits a moment for replies; the nodes that sent one since it was last called.
    is_open
        Whether the SuperLink still carries the run.
    """

    def __init__(
        self,
        client: RuntimeHttpClient,
        arrival_in_s: float,
        nodes: Callable[[], Mapping[str, NodeInfo]],
        news: Callable[[], Collection[int]],
        is_open: Callable[[], bool],
    ) -> None:
        self._client, self._arrival_in_s = client, arrival_in_s
        self._nodes, self._news, self._is_open = nodes, news, is_open
        self._ids: dict[str, int] = {}
        self._numbers = itertools.count()
        self._sent_to: dict[str, int] = {}
        """The node that each ticket's message went to."""
        self._looked_at: dict[str, float] = {}
        self._replied: set[int] = set()

    def presence(self) -> dict[str, Presence]:
        if not self._is_open():
            raise RunClosedError("the SuperLink gave up the run, because it missed this process for a minute")
        nodes = self._nodes()
        self._ids = {name: node.node_id for name, node in nodes.items()}
        return {name: presence_of(node) for name, node in nodes.items()}

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        number = str(next(self._numbers))  # Flower drops a message that equals an earlier one
        message = Message(wrapped(data), self._ids[site], KIND, ttl=ttl_in_s, group_id=number)

        def announce(bare: MessageProto, tree: ObjectTree) -> PushAppMessagesResponse:
            return self._client.PushMessages(PushAppMessagesRequest(messages_list=[bare], message_object_trees=[tree]))

        with carrier_errors(f"a message to {site} was not sent"):
            [ticket] = send_message(self._client, announce, Node(node_id=SUPERLINK_NODE_ID), message).message_ids
            if not ticket:
                raise ValueError("the SuperLink did not take it")
        self._sent_to[ticket], self._looked_at[ticket] = self._ids[site], time.monotonic()
        return str(ticket)

    def wait(self, longest_in_s: float) -> None:
        try:
            self._replied.update(self._news())
        except httpx.HTTPError:
            time.sleep(longest_in_s)

    def pull(self, ticket: str) -> bytes | None:
        now, node = time.monotonic(), self._sent_to[ticket]
        if node not in self._replied and now < self._looked_at[ticket] + CHECK_IN_S:
            return None
        self._replied.discard(node)
        self._looked_at[ticket] = now
        try:
            message = self._fetch(ticket)
        except httpx.TransportError:
            return None
        except httpx.HTTPStatusError as error:
            if error.response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                return None  # the run is closed: the next look for sites says so
            raise MessageError(f"its answer cannot be read (HTTP {error.response.status_code})") from error
        except PartsMissingError as error:
            # It was killed between the two: asked again, it gives the same answer. `timeout_in_s` bounds how often.
            raise SiteLostError("it went away while it answered") from error
        except Exception as error:
            raise MessageError(f"its answer cannot be read ({type(error).__name__})") from error
        if message is None:
            return None
        if message.has_error():
            if message.error.code in LOST:
                raise SiteLostError("it went away")
            raise MessageError(f"it could not process the message (code {message.error.code})")
        return content(message)

    def _fetch(self, ticket: str) -> Message | None:
        answer = self._client.PullMessages(PullAppMessagesRequest(message_ids=[ticket]))
        if not answer.messages_list:
            return None
        me, tree = Node(node_id=SUPERLINK_NODE_ID), answer.message_object_trees[0]
        return receive_message(self._client, answer.messages_list[0], tree, me, self._arrival_in_s)


def presence_of(node: NodeInfo) -> Presence:
    """Whether a site is online, and when it sent its last heartbeat."""
    seen = None
    if node.HasField("online_until"):
        beat = node.online_until - HEARTBEAT_PATIENCE * node.heartbeat_interval
        seen = datetime.fromtimestamp(beat, UTC).isoformat("T", "seconds")
    return Presence(node.status == NodeStatus.ONLINE, seen, str(node.last_activated_at))
