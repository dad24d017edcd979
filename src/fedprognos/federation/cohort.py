"""How questions reach clients. A strategy asks and does not know where its clients live."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from fedprognos.errors import FederationError, FedprognosError, MessageError, RefusedByFloorsError, printable
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.exchanges import Failure, Reply, Request, exchange_for, reply_kinds
from fedprognos.federation.federation_section import Wire
from fedprognos.federation.plausible import MOST_ROWS
from fedprognos.federation.reply_journal import Received, ReplyJournal
from fedprognos.privacy import FloorError

if TYPE_CHECKING:
    from fedprognos.federation.totals import Sums

R = TypeVar("R")
OnLeftOut = Callable[[Failure], None]
"""Called with every client that a step goes on without."""
Tag = tuple[str, int]
"""The batch and number of a masked sum that a request belongs to."""


class Transport(Protocol):
    """Brings encoded requests to clients and their encoded replies back."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of those who are there now, sorted."""

    def send(self, requests: Mapping[str, bytes]) -> Mapping[str, bytes | Failure]:
        """Every client that was sent something is in the answer."""


@runtime_checkable
class RelayingTransport(Transport, Protocol):
    """A transport that shows replies to other clients, who need not see what was rejected."""

    def reject(self, failure: Failure) -> None:
        """Take the latest reply of a client for this failure, now and for good."""


class Cohort(Protocol):
    """The clients of a federation."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of those who are there now, sorted."""

    @property
    def sums(self) -> Sums | None:
        """How replies are added up that nobody is to see one by one; None where they may be seen."""

    @property
    def declared(self) -> dict[str, int]:
        """The most labelled points that each client can have, by what was declared; masked ones have a total."""

    def ask(self, requests: Mapping[str, Any], kinds: tuple[type, ...] = ..., tag: Tag | None = None) -> dict[str, Any]:
        """Ask several clients at once; every one of them is in the answer, with a checked reply or a failure.

        Replies are of these `kinds`, by default of all that clients send. With a `tag` they are masked.
        """


@dataclass
class Traffic:
    """What went between the coordinator and the clients."""

    messages: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def bytes(self) -> int:
        return self.bytes_up + self.bytes_down


class MessageCohort:
    """Asks through a transport; every message is encoded once, checked once and counted.

    Parameters
    ----------
    wire
        Precision of the weights in messages.
    journal
        Replies that are remembered; their traffic counts all the same.
    scope
        What decides a reply besides the request and the client's name: the data behind it.
    declared
        Labelled points that each client declared, shared by the cohorts of a run; where replies are masked, the
        total of all.
    sums
        How totals are made where replies must not be seen one by one.
    all_units
        Whether every request is about the clients' test units as well.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        wire: Wire = "float32",
        journal: ReplyJournal | None = None,
        scope: str = "",
        declared: dict[str, int] | None = None,
        sums: Sums | None = None,
        all_units: bool = False,
    ) -> None:
        self._transport, self.wire, self._journal, self._scope = transport, wire, journal, scope
        self.declared = {} if declared is None else declared
        self.sums, self.all_units = sums, all_units
        self.traffic = Traffic()

    @property
    def clients(self) -> tuple[str, ...]:
        return self._transport.clients

    def ask(self, requests: Mapping[str, Any], kinds: tuple[type, ...] = (), tag: Tag | None = None) -> dict[str, Any]:
        kinds = kinds or reply_kinds()
        different = {id(request): request for request in requests.values()}
        encoded = {key: encode(request, self.wire, tag, self.all_units) for key, request in different.items()}
        sent = {name: encoded[id(request)] for name, request in requests.items()}

        def decoded(name: str, data: bytes) -> Received:
            try:
                reply = decode(data, kinds, f"client {name}")
            except MessageError as error:
                reply = Failure(name, error.code, error.what)
            if tag is None:  # what is masked can be checked as a total only
                reply = checked_reply(name, requests[name], reply, self.declared)
            if isinstance(reply, Failure):  # a client speaks for itself only, and briefly
                return Received(Failure(name, printable(reply.code)[:40] or "unknown", printable(reply.text)[:400]), 0)
            return Received(reply, len(data))

        def ask(names: list[str]) -> Iterator[tuple[str, bytes, Received]]:
            replies = dict(self._transport.send({name: sent[name] for name in names}))
            for name in list(replies):
                # Bytes are let go one by one: a hundred clients' sums are not held as bytes and as numbers.
                reply = replies.pop(name)
                data = b"" if isinstance(reply, Failure) else reply
                received = Received(reply, 0) if isinstance(reply, Failure) else decoded(name, reply)
                if isinstance(received.reply, Failure) and isinstance(self._transport, RelayingTransport):
                    self._transport.reject(received.reply)
                yield name, data, received

        if self._journal is None:
            received = {name: each for name, _, each in ask(list(sent))}
        else:
            keys = {name: digest(f"{self._scope}\x1f{name}\x1f".encode() + data) for name, data in sent.items()}
            received = self._journal.ask_once(keys, ask, decoded)
        for name, data in sent.items():
            self.traffic.messages += 1
            self.traffic.bytes_down += len(data)
            self.traffic.bytes_up += received[name].bytes
        return {name: received[name].reply for name in requests}


def checked_reply(name: str, request: Request, reply: Reply, declared: dict[str, int]) -> Reply | Failure:
    """The reply, or a failure of its sender where no honest client can have sent it.

    Parameters
    ----------
    declared
        Labelled points that each client declared; a survey or an imported model adds to it.
    """
    exchange = exchange_for(request)
    if isinstance(reply, Failure) or exchange is None:
        return reply
    try:
        if not isinstance(reply, exchange.reply):
            raise MessageError("sent another kind of message")
        exchange.check(request, reply, declared.get(name, MOST_ROWS))
    except (FedprognosError, ValueError, ArithmeticError) as error:
        return Failure(name, "message", error.what if isinstance(error, FedprognosError) else str(error))
    if exchange.declares is not None:
        declared[name] = exchange.declares(reply, declared.get(name))
    return reply


def digest(data: bytes) -> str:
    """Short name of a message."""
    return hashlib.sha256(data).hexdigest()[:32]


def needed(asked: int, min_clients: int | None) -> int:
    """How many of so many clients must send good replies: all of them by default."""
    return asked if min_clients is None else min(min_clients, asked)


def gather(
    cohort: Cohort,
    requests: Mapping[str, Request],
    kind: type[R],
    min_clients: int | None,
    left_out: OnLeftOut,
) -> dict[str, R]:
    """Ask, and go on with the clients that sent good replies.

    Raises
    ------
    FederationError
        When fewer than `min_clients` (all of them by default) did.
    """
    replies = cohort.ask(requests)
    failures = [
        reply if isinstance(reply, Failure) else Failure(name, "message", "sent another kind of message")
        for name, reply in replies.items()
        if not isinstance(reply, kind)
    ]
    good: dict[str, R] = {name: reply for name, reply in sorted(replies.items()) if isinstance(reply, kind)}
    for failure in failures:
        left_out(failure)
    if len(good) < needed(len(requests), min_clients):
        first = next(iter(failures))
        raise too_few_error(failures)(
            f"{len(good)} of {len(requests)} clients answered; {first.text}",
            where=f"client {first.client}",
            hint="Fix this client, or set federation.min_clients to continue without it.",
        )
    return good


def too_few_error(failures: Sequence[Failure]) -> type[FederationError]:
    """The error to raise where too few clients answered: floors alone end a method, anything else ends the run."""
    only_floors = failures and all(failure.code == FloorError.code for failure in failures)
    return RefusedByFloorsError if only_floors else FederationError
