"""Requests on their way to sites: sent when a site is there, sent again when it restarted, given up after some time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fedprognos.deployment.carrier import EngineError, Mailbox, SiteLostError
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.keys import Identity
from fedprognos.deployment.processes import Backoff
from fedprognos.deployment.site_messages import ACTIVITIES, StepsMissing
from fedprognos.deployment.steps.signed_steps import REPLY, Note, Outcome, Transcript, open_reply, seal_request, sha256
from fedprognos.deployment.tensor_cache import SentTensors, TensorsMissing
from fedprognos.errors import MessageError
from fedprognos.federation.codec import decode, ledger_line
from fedprognos.federation.messages import Failure, LedgerLine

POLL_IN_S, LOOK_IN_S = 0.5, 3.0
MAX_WAIT_IN_S = 12 * 3600.0
"""The wait for a reply where the experiment sets none."""
ABSENT_IN_S = 45.0
"""How long a request waits for an absent site before it continues without it, or before somebody is notified."""


@dataclass
class _Request:
    """A request on its way to one site."""

    data: bytes
    absent_since: float
    ticket: str = ""
    session: str = ""
    whole: bool = False
    missed: bool = False

    def again(self) -> None:
        """Let it be sent once more."""
        self.ticket = self.session = ""
        self.absent_since, self.missed = time.monotonic(), False


@dataclass(eq=False)
class SiteTransport:
    """Brings requests to sites through a mailbox: the federation's `Transport`.

    Parameters
    ----------
    wait_for_all
        Wait for an absent site until it is back or the reply's time is over.
    waiting
        Called again and again with what is asked and who has not answered; may raise to end the waiting.
    missed, received
        Called with a site that everybody waits for, and with every message that came.
    seal, unseal
        Applied to what is sent and to what came, each with the whole request; None lets it be sent again.
    """

    mailbox: Mailbox
    clients: tuple[str, ...]
    limit_in_bytes: int
    timeout_in_s: float = MAX_WAIT_IN_S
    wait_for_all: bool = False
    sent: SentTensors = field(default_factory=SentTensors)
    waiting: Callable[[str, tuple[str, ...]], None] = lambda activity, sites: None
    missed: Callable[[str], None] = lambda site: None
    received: Callable[[str, LedgerLine], None] = lambda site, line: None
    seal: Callable[[str, bytes, bytes], bytes] = lambda site, whole, sent: sent
    unseal: Callable[[str, bytes, bytes], bytes | None] = lambda site, whole, reply: reply
    absent_in_s: float = ABSENT_IN_S
    _absent: set[str] = field(default_factory=set)
    """Waited for in vain once; not waited for again until they are back."""

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        """Replies or failures of all sites that were sent something."""
        begun, looked, backoff = time.monotonic(), float("-inf"), Backoff(POLL_IN_S)
        replies: dict[str, bytes | Failure] = {}
        pending: dict[str, _Request] = {}
        for name, data in requests.items():
            if len(data) > self.limit_in_bytes:
                replies[name] = Failure(name, "message", f"the request is larger than {self.limit_in_bytes} bytes")
            else:
                pending[name] = _Request(data, begun - (self.absent_in_s if name in self._absent else 0.0))
        kind = ledger_line(next(iter(requests.values()))).kind if requests else ""
        while pending:
            self.waiting(ACTIVITIES.get(kind, kind), tuple(pending))
            if time.monotonic() > begun + self.timeout_in_s:
                late = f"no answer within {self.timeout_in_s:g} s"
                replies |= {name: Failure(name, "timeout", late) for name in pending}
                break
            if time.monotonic() - looked > LOOK_IN_S:
                self._push(pending)
                looked = time.monotonic()
            for name, request in list(pending.items()):
                if (reply := self._pull(name, request) or self._given_up(name, request)) is not None:
                    replies[name] = reply
                    del pending[name]
                    backoff.reset()
            if pending:
                time.sleep(backoff.wait_in_s())
        return {name: replies[name] for name in requests}

    def online(self) -> dict[str, str]:
        """The sites that are connected now, with their sessions."""
        return {name: site.session for name, site in self.mailbox.presence().items() if site.online}

    def _push(self, pending: Mapping[str, _Request]) -> None:
        """Send to every site that is there and was not sent this, or restarted since and forgot it."""
        try:
            here = self.online()
        except EngineError:  # the next look is not far
            return
        self._absent.difference_update(here)
        for name, request in pending.items():
            if name in here and here[name] != request.session:
                data = self.seal(name, request.data, self.sent.shorten(name, request.data))
                with contextlib.suppress(EngineError):
                    request.ticket = self.mailbox.push(name, data, self.timeout_in_s)
                    request.session = here[name]

    def _pull(self, name: str, request: _Request) -> bytes | Failure | None:
        """A reply, a failure, or None while there is neither; what one site sends concerns that site only."""
        if not request.ticket:
            return None
        try:
            data = self.mailbox.pull(request.ticket)
            if data is None:
                return None
            if len(data) > self.limit_in_bytes:
                raise MessageError(f"{len(data)} bytes, more than the {self.limit_in_bytes} agreed")
            data = self.unseal(name, request.data, data)
            if data is None:
                request.again()
                return None
            line = ledger_line(data)
        except SiteLostError:
            request.again()
            return None
        except MessageError as error:
            return Failure(name, error.code, error.what)
        self.received(name, line)
        if line.kind == TensorsMissing.__name__ and not request.whole:
            self.sent.forget(name)
            request.whole = True
            request.again()
            return None
        self.sent.answered(name, request.data, data)
        return data

    def _given_up(self, name: str, request: _Request) -> Failure | None:
        """A failure where a site has been absent for too long and can be done without."""
        if request.ticket or time.monotonic() <= request.absent_since + self.absent_in_s:
            return None
        if not self.wait_for_all:
            self._absent.add(name)
            return Failure(name, "absent", "it is not connected")
        if not request.missed:
            request.missed = True
            self.missed(name)
        return None


MAX_ASKED_AGAIN = 3
"""How often a site may say, for one request, that it lacks outcomes that it was sent already."""

HEADER_IN_BYTES = 1024
"""More than what is said about one reply takes."""


@dataclass(eq=False)
class StepTransport:
    """Brings requests to the members of a contract; outcomes are on disk before anybody hears of them.

    Started again, it gives the outcomes of all steps that were settled before, and asks the rest.
    """

    way: SiteTransport
    contract: Contract
    identity: Identity
    transcript: Transcript
    step: int = 0
    _open: dict[str, Outcome] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)
    _behind: dict[str, int] = field(default_factory=dict)
    _continued: bool = False
    _asked: int = 0

    def __post_init__(self) -> None:
        self.way = replace(self.way, seal=self._seal, unseal=self._unseal)
        self._continued = self.transcript.read(1) is not None

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.contract.members))

    @property
    def largest_reply(self) -> int:
        """In bytes: all replies to a step must fit into the next one's request, beside the request itself."""
        return self.way.limit_in_bytes // (self._asked + 1)

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        """The replies of a step; the one before is settled by it."""
        if self._open:
            self.transcript.write(self.step, self._open)
        self.step, self._open, self._asked = self.step + 1, {}, len(requests)
        known = self.transcript.read(self.step)
        if known is not None and set(known) == set(requests):
            return {name: known[name].failure or known[name].reply for name in requests}
        self._behind.clear()
        received: dict[str, Outcome] = {}
        self._received = received
        for name, reply in self.way.send(requests).items():
            if isinstance(reply, bytes) and name in received:
                self._open[name] = received[name]
            else:
                self._open[name] = Outcome(failure=_failure(name, reply))
        return {name: self._open[name].failure or self._open[name].reply for name in requests}

    def reject(self, failure: Failure) -> None:
        """What a member sent and nobody can use is told as a failure: no other member is sent it."""
        if failure.client in self._open:
            self._open[failure.client] = Outcome(failure=failure)

    def _seal(self, site: str, whole: bytes, sent: bytes) -> bytes:
        first = self._known.get(site, self.step - 1 if self._continued else 1)
        notes: list[tuple[Note, bytes]] = []
        left = self.way.limit_in_bytes - len(sent)
        for step in range(max(first, 1), self.step):
            outcomes = sorted((self.transcript.read(step) or {}).items())
            found = [outcome.note(step, member, whole=member != site) for member, outcome in outcomes]
            left -= sum(HEADER_IN_BYTES + len(reply) for _, reply in found)
            if left < 0 and notes:  # the site keeps these and says which step it lacks next
                break
            notes += found
        return seal_request(self.identity, self.contract.digest, self.step, whole, sent, notes)

    def _unseal(self, site: str, whole: bytes, data: bytes) -> bytes | None:
        """The reply; None where the site must be asked again."""
        if data.startswith(REPLY):
            public = self.contract.members[site]
            outcome = open_reply(data, self.contract.digest, self.step, sha256(whole), public, site)
            self._known[site] = self.step
            if len(outcome.reply) > self.largest_reply:
                raise MessageError(
                    f"{len(outcome.reply)} bytes, more than the {self.largest_reply} that a reply may have where "
                    f"{self._asked} members are asked; raise max_message_in_mb in every settings.toml"
                )
            if ledger_line(outcome.reply).kind != Failure.__name__:
                self._received[site] = outcome
            return outcome.reply
        kind = ledger_line(data).kind
        if kind == StepsMissing.__name__:
            lacks = min(max(decode(data, (StepsMissing,)).first, 1), self.step)
            if lacks <= self._known.get(site, self.step):  # else it kept what it was sent
                self._behind[site] = self._behind.get(site, 0) + 1
            if self._behind.get(site, 0) > MAX_ASKED_AGAIN:
                raise MessageError("it lacks the outcomes of earlier steps again and again")
            self._known[site] = lacks
            return None
        if kind not in (TensorsMissing.__name__, Failure.__name__):
            raise MessageError("sent a reply without its signature")
        return data


def _failure(name: str, reply: bytes | Failure) -> Failure:
    """What a site said of why it cannot answer, briefly, or what the transport knows."""
    if isinstance(reply, Failure):
        return reply
    try:
        found = decode(reply, (Failure,))
    except MessageError as error:
        return Failure(name, error.code, error.what)
    return Failure(name, found.code[:40] or "unknown", found.text[:400])
