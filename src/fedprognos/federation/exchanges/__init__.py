"""Exchanges: one file for each kind of question that a client can be asked, and for its reply.

A file holds everything that the house must know of its kind: the two messages, how a client answers, what an answer
costs, which replies are possible, how replies are added under masks, and what leaves, in words. It puts an
:class:`Exchange` on the shelf `exchanges`; client, limits, reply checks, masks, ledger, `deploy approve` and report
are loops over that shelf.

Messages hold sums, moments and weights; never a row, a unit's name or a time. Their bytes are pinned by recorded
messages in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprognos.arrays import BoolArray, FloatArray
from fedprognos.errors import MessageError
from fedprognos.fleet import Fleet
from fedprognos.networks import Epoch
from fedprognos.privacy import LIMBS, MaskedReply, UnmaskRequest, from_vector, to_vector, unreadable
from fedprognos.shelf import Shelf

if TYPE_CHECKING:
    from fedprognos.federation.client import Client

Request = Any
"""A message of the `request` type of an exchange."""
Reply = Any
"""A message of the `reply` type of an exchange."""
OnEpoch = Callable[[Epoch], None]
Cost = tuple[float, float]
"""Bytes of memory beside the data, and multiplications and additions."""
NOTHING = "nothing of the data"


@dataclass(frozen=True)
class Words:
    """What an exchange means, in words: the same text for ledger, `deploy approve` and report.

    Parameters
    ----------
    activity
        What a client does to answer.
    leaves
        What leaves the client in a reply.
    reveals
        What a reply could reveal to whoever reads it.
    """

    activity: str
    leaves: str
    reveals: str = NOTHING

    @property
    def about_data(self) -> bool:
        """Whether a reply reveals anything of the client's data."""
        return self.reveals != NOTHING


@dataclass(frozen=True)
class Failure:
    """A client could not answer: its name, a code, and a text free of data; the rest is in the client's log."""

    client: str
    code: str
    text: str


@dataclass(frozen=True)
class Exchange:
    """One kind of request and its reply.

    Parameters
    ----------
    request, reply
        The two message types, dataclasses whose names are unique. Fields at their default do not travel.
    order
        Its place in ledgers and reports.
    words
        What it means for people.
    answer
        From a client, a request and a callback for training epochs to the reply; whatever it raises becomes a failure.
        None for messages that a deployed site answers itself.
    cost
        From a request and the client's fleet to what an answer takes at most, computed from shapes alone.
    check
        From a request, a reply and the client's number of labelled points: raises where no honest client sends this
        reply. A sum of replies is checked, too.
    declares
        From a reply and the number of points that the client declared before (None: none yet) to the number it
        declares now. Later replies cannot be about more points.
    template
        From a request to a reply of zeros that has every part it may have: the shape of a masked sum. None where
        replies cannot be added.
    summand
        From a reply to what is added for it.
    limbs
        64-bit words of a number in a masked sum.
    only_masked
        Whether a client that takes part in masked sums refuses to answer unmasked.
    about
        Names what the statistics in a reply are about. All masked sums about one thing must have the same members,
        because their difference would be one member's part. The request itself by default.
    """

    request: type
    reply: type
    order: int
    words: Words
    answer: Callable[[Client, Any, OnEpoch | None], Any] | None = None
    cost: Callable[[Any, Fleet], Cost] = lambda request, fleet: (0.0, 0.0)
    check: Callable[[Any, Any, int], None] = lambda request, reply, most_points: None
    declares: Callable[[Any, int | None], int] | None = None
    template: Callable[[Any], Any] | None = None
    summand: Callable[[Any], Any] = lambda reply: reply
    limbs: int = LIMBS
    only_masked: bool = False
    about: Callable[[Any], bytes] | None = None

    @property
    def name(self) -> str:
        """The kind of its request, as it stands in messages and ledgers."""
        return self.request.__name__

    def zeros(self, request: Request) -> Any:
        """The template of a request, or :class:`MessageError` where replies cannot be added."""
        if self.template is None:
            raise MessageError(f"answers to a {self.name} cannot be added up")
        return self.template(request)

    def vector(self, request: Request, reply: Reply) -> tuple[FloatArray, BoolArray]:
        """A reply as numbers (N,) to be added, and which of them the client must make unreadable.

        The length follows from the request alone, so that a vector does not show what a client lacks.
        """
        summand, template = self.summand(reply), self.zeros(request)
        return to_vector(summand, template), unreadable(summand, template)

    def unvector(self, request: Request, total: FloatArray, members: int) -> Any:
        """The sum of so many members' vectors as one reply."""
        return from_vector(total, self.zeros(request), members)

    def vector_length(self, request: Request) -> int:
        """How many numbers a reply to this request has."""
        template = self.zeros(request)
        return len(to_vector(template, template))


exchanges: Shelf[Exchange] = Shelf("exchange", __name__, "fedprognos.exchanges")
_notices: dict[str, Words] = {}


def add_notice(reply: type, words: Words) -> type:
    """Register a reply that may come instead of the expected one, whatever was asked."""
    _notices[reply.__name__] = words
    return reply


add_notice(Failure, Words("answering", "that a request could not be answered, and which kind of reason"))
add_notice(
    MaskedReply,
    Words("adding up", "an answer under a mask", "nothing by itself; only the total of all members is seen"),
)


def exchange_for(request: Request) -> Exchange | None:
    """The exchange that a request belongs to; None for messages that are no requests."""
    kind = type(request).__name__
    return exchanges[kind] if kind in exchanges and exchanges[kind].request is type(request) else None


def request_kinds() -> tuple[type, ...]:
    """Everything that a client answers, in a run on one machine and in a deployment alike."""
    return tuple(exchange.request for exchange in exchanges.values() if exchange.answer is not None)


def reply_kinds() -> tuple[type, ...]:
    """Everything that a client can reply."""
    replies = (exchange.reply for exchange in exchanges.values() if exchange.answer is not None)
    return (*replies, MaskedReply, Failure)


def activity_of(request_kind: str) -> str:
    """What a client does for a kind of request, in words."""
    return exchanges[request_kind].words.activity if request_kind in exchanges else request_kind[:40]


def words_for(reply_kind: str, request_kind: str = "") -> Words | None:
    """What a message of this kind says, with the request it answers where that is known; None for unknown kinds."""
    if reply_kind == MaskedReply.__name__ and request_kind in exchanges:
        masked = _notices[reply_kind]
        return Words(masked.activity, f"{exchanges[request_kind].words.leaves}, masked", masked.reveals)
    for exchange in exchanges.values():
        if exchange.reply.__name__ == reply_kind:
            return exchange.words
    return _notices.get(reply_kind)


def what_can_leave(masked: bool) -> list[Words]:
    """The words of all replies that tell anything of a client's data, in the order in which people see them.

    Parameters
    ----------
    masked
        Whether the client takes part in masked sums.
    """
    # Two exchanges can have the same words, as the two ways to ask for moments do; a dict keeps the first of them.
    words: dict[Words, None] = {}
    for exchange in exchanges.values():
        if exchange.only_masked and masked:
            if exchange.template is not None:  # else its replies cannot be added, so the client always refuses
                words[words_for(MaskedReply.__name__, exchange.name) or exchange.words] = None
        elif exchange.words.about_data and (masked or exchange.request is not UnmaskRequest):
            words[exchange.words] = None
    return list(words)


def reply_order() -> list[str]:
    """Kinds of replies in the order in which people see them."""
    return [*(exchange.reply.__name__ for exchange in exchanges.values()), *_notices]


def network_below_head(request: Any) -> bytes:
    """Names the layers below the head of a request's network.

    Statistics of one network with another seed, split or head differ little, so all of them are about the same thing.
    """
    network = request.network
    below = [name for name in sorted(network.weights) if not name.startswith("head.")]
    return b"\x1f".join([repr(network.spec).encode(), *(network.weights[name].tobytes() for name in below)])


__all__ = [
    "Cost",
    "Exchange",
    "Failure",
    "OnEpoch",
    "Reply",
    "Request",
    "Words",
    "activity_of",
    "add_notice",
    "exchange_for",
    "exchanges",
    "network_below_head",
    "reply_kinds",
    "reply_order",
    "request_kinds",
    "what_can_leave",
    "words_for",
]
