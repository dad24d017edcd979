"""A site's end: it speaks to the coordinator's SuperLink as Flower's SuperNode does, from the site's own process.

Flower's own SuperNode would be a second process, which starts a third for each message and loads code from the network
into it. Here messages come straight to the process that has the data, and no code crosses.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from flwr.app import Message
from flwr.common.constant import HEARTBEAT_MIN_INTERVAL, HEARTBEAT_PATIENCE, SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedprognos.deployment.carrier import Tell
from fedprognos.deployment.flower.messages import (
    SHORTEST_IN_S,
    content,
    heartbeat,
    persistent,
    quietly,
    receive_message,
    send_message,
    wrapped,
)
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.keys import certificates
from fedprognos.deployment.processes import ProcessError
from fedprognos.errors import ConfigError

RETRY_IN_S = 3.0
ARRIVAL_IN_S = 60.0
"""How long an announced message may take to arrive, and a reply to be sent, while the connection fails."""
BEAT_IN_S = HEARTBEAT_MIN_INTERVAL / 2
MISSED_IN_S = 1.5 * HEARTBEAT_PATIENCE * HEARTBEAT_MIN_INTERVAL
"""Within this time the SuperLink notices that a killed site is gone, and its key is free again."""
END_IN_S = 5.0


class JoinRefusedError(ProcessError):
    """The coordinator does not let this site in, or the site does not trust the coordinator."""


class ClockError(JoinRefusedError):
    """The clocks of coordinator and site differ too much."""


class KeyInUseError(JoinRefusedError):
    """A connection uses this site's key already: the site's own one before a kill, or another machine's."""


@dataclass(frozen=True, eq=False)
class FlowerTask:
    """A message that has arrived in full."""

    node: SuperNode
    message: Message
    data: bytes

    def reply(self, data: bytes) -> None:
        """Send the reply. If the run ended in the meantime, nobody waits for it."""
        self.node.send(Message(wrapped(data), reply_to=self.message))


@contextlib.contextmanager
def join(folder: Path, options: SiteOptions, tell: Tell) -> Iterator[SuperNode]:
    """Connect to the coordinator; the connection ends with the context, whatever happens."""
    with contextlib.closing(SuperNode(folder, options, tell)) as node:
        yield node


class SuperNode:
    """An inbox. It connects with the first look for messages, and again where the coordinator lost sight of it."""

    def __init__(self, folder: Path, options: SiteOptions, tell: Tell) -> None:
        self._folder, self._coordinator, self._tell = folder, options.coordinator, tell
        key = _private_key(folder / "site.key")
        self._public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._client = FleetHttpClient.from_server_address(
            options.coordinator,
            insecure=False,
            root_certificates=certificates(folder / "ca.crt"),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
            ],
        )
        self._node: Node | None = None
        self._in_use_since: float | None = None
        self._told: str = ""
        self._stop_beating = heartbeat(self._beat, BEAT_IN_S)

    def close(self) -> None:
        """Say good-bye, so that the key is free at once. A coordinator that does not answer is not waited for."""
        self._stop_beating()
        if (node := self._node) is not None:
            say = partial(self._client.DeactivateNode, DeactivateNodeRequest(node_id=node.node_id))
            goodbye = threading.Thread(target=quietly, args=(say,), daemon=True)
            goodbye.start()
            goodbye.join(END_IN_S)
        self._client.close()

    def next(self) -> FlowerTask | None:
        """The next message; None where none came for a moment."""
        started = time.monotonic()
        try:
            if self._node is None:
                self._activate()
            elif (task := self._look(self._node)) is not None:
                return task
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            self._consider(error)
        else:
            # The SuperLink holds "nothing yet" back: a short answer means that a message was announced.
            time.sleep(max(0.0, SHORTEST_IN_S - (time.monotonic() - started)))
        return None

    def send(self, message: Message) -> None:
        """Send a reply, also where the connection fails for a while."""
        node = self._node or Node(node_id=message.metadata.src_node_id)

        def announce(bare: MessageProto, tree: ObjectTree) -> PushMessagesResponse:
            request = PushMessagesRequest(
                node=node, messages_list=[bare], message_object_trees=[tree], clientapp_runtime_list=[0.0]
            )
            return persistent(self._client.PushMessages, ARRIVAL_IN_S)(request)

        try:
            send_message(_Persistent(self._client), announce, node, message)
        except Exception as error:
            self._lost("an answer", error)

    def _activate(self) -> None:
        """Connect, if the clocks fit."""
        if self._clock_is_off():
            time.sleep(RETRY_IN_S)  # a coordinator that stood still shows an old time for a second
            if (ahead := self._clock_is_off()) is not None:
                raise _clock_error(ahead)
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT_MIN_INTERVAL)
        self._node = Node(node_id=self._client.ActivateNode(request).node_id)
        self._in_use_since, self._told = None, ""

    def _clock_is_off(self) -> float | None:
        """By how many seconds, where the coordinator would refuse this site for it."""
        ahead = clock_ahead_in_s(self._coordinator, self._folder / "ca.crt")
        return None if ahead is None or -TIMESTAMP_TOLERANCE < ahead < SYSTEM_TIME_TOLERANCE else ahead

    def _look(self, node: Node) -> FlowerTask | None:
        answer = self._client.PullMessages(PullMessagesRequest(node=node))
        self._told = ""
        if not answer.messages_list:
            return None
        announced, tree = answer.messages_list[0], answer.message_object_trees[0]
        try:
            message = receive_message(_Persistent(self._client), announced, tree, node, ARRIVAL_IN_S)
            return FlowerTask(self, message, content(message))
        except Exception as error:
            self._lost("a message", error)
            return None

    def _lost(self, what: str, error: Exception) -> None:
        """Connect anew where a connection failed: the coordinator then sends again what it has no answer to."""
        self._tell(f"{what} was lost on the way: {error}")
        if isinstance(error, httpx.HTTPError) and (node := self._node) is not None:
            quietly(partial(self._client.DeactivateNode, DeactivateNodeRequest(node_id=node.node_id)))
            self._node = None

    def _consider(self, error: Exception) -> None:
        """Wait before another try if one may help, else raise."""
        refused = why_refused(error, self._folder)
        if isinstance(refused, ClockError):
            if self._node is not None:  # or a new SuperLink knows no node of this number
                self._node = None
                return
            raise _clock_error(clock_ahead_in_s(self._coordinator, self._folder / "ca.crt")) from error
        if isinstance(refused, KeyInUseError):
            self._in_use_since = self._in_use_since or time.monotonic()
            if time.monotonic() - self._in_use_since > MISSED_IN_S:
                raise refused from error
            self._tell_once("the coordinator still sees an earlier connection of this site; trying again")
        elif isinstance(refused, JoinRefusedError):
            raise refused from error
        else:
            self._tell_once(f"{refused.what}; trying again")
        time.sleep(RETRY_IN_S)

    def _tell_once(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._tell(text)

    def _beat(self) -> None:
        if (node := self._node) is not None:
            request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_MIN_INTERVAL)
            self._client.SendNodeHeartbeat(request)


class _Persistent:
    """A client whose calls for parts of a message outlast a connection that fails for a while."""

    def __init__(self, client: FleetHttpClient) -> None:
        self.PullObject = persistent(client.PullObject, ARRIVAL_IN_S)
        self.PushObject = persistent(client.PushObject, ARRIVAL_IN_S)
        self.ConfirmMessageReceived = persistent(client.ConfirmMessageReceived, ARRIVAL_IN_S)


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        hint = "`fedprognos deploy init` makes it, `deploy renew --site` makes a new one"
        raise ConfigError(f"cannot be read: {error}", where=str(path), hint=hint) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("is not a key that `deploy init` made", where=str(path))
    return key


def why_refused(error: BaseException, folder: Path) -> ProcessError:
    """What an error of the connection means for a site; a :class:`JoinRefusedError` where no further try helps."""
    if isinstance(error, httpx.HTTPStatusError):
        status, flower_error = error.response.status_code, FlowerError.from_json(error.response.text)
        if flower_error is not None and flower_error.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
            # The guard lets no unknown key come so far.
            return KeyInUseError(
                "the coordinator refuses this site's key: it is in use",
                where=str(folder / "site.key"),
                hint="The site runs elsewhere. End it there, or make a new key with `fedprognos deploy renew --site`.",
            )
        if status == httpx.codes.FORBIDDEN:
            return JoinRefusedError(
                "the coordinator does not know this site's key, and refuses it",
                where=str(folder / "site.key"),
                hint="If the key was renewed, copy the new site.key here and restart the coordinator.",
            )
        if status == httpx.codes.UNAUTHORIZED:
            return ClockError("the coordinator refuses this site because of its clock")
        return ProcessError(f"the coordinator cannot answer now (HTTP {status})")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return JoinRefusedError(
                "the server's certificate has expired, or is not from this federation's authority",
                where=str(folder / "ca.crt"),
                hint="Is `coordinator` in settings.toml the right address, and this machine's clock right? If so, copy "
                "the deployment's ca.crt here.",
            )
        cause = cause.__cause__ or cause.__context__
    return ProcessError("the coordinator does not answer")


def clock_ahead_in_s(coordinator: str, authority: Path) -> float | None:
    """How far this machine's clock is ahead of the coordinator's, None where it cannot be asked."""
    try:
        with httpx.Client(verify=ssl.create_default_context(cafile=str(authority)), timeout=5.0) as client:
            asked = time.time()
            date = client.get(f"https://{coordinator}/health").headers["date"]
        return (asked + time.time()) / 2 - (parsedate_to_datetime(date).timestamp() + 0.5)  # it counts whole seconds
    except (httpx.HTTPError, OSError, KeyError, ValueError):
        return None


def _clock_error(ahead: float | None) -> ClockError:
    how_far = "" if ahead is None else f": it is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"
    return ClockError(
        f"this machine's clock differs too much from the coordinator's{how_far}",
        where="clock",
        hint=f"Up to {SYSTEM_TIME_TOLERANCE} s ahead are accepted. Set both clocks, with NTP for example.",
    )
