"""How the coordinator reaches its sites.

:class:`SiteTransport` brings bytes to sites and their replies back: it sends when a site is there, again when the site
restarted, and gives up after some time. :class:`StepTransport` sends the numbered, signed steps of a contract through
it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fedprognos.deployment.carrier import CarrierError, Mailbox, SiteLostError
from fedprognos.deployment.contract import Contract
from fedprognos.deployment.steps.fingerprint import fingerprint_of
from fedprognos.deployment.steps.signed_steps import (
    REPLY,
    Note,
    Outcome,
    keep_outcomes,
    open_reply,
    read_outcomes,
    seal_step,
)
from fedprognos.errors import MessageError
from fedprognos.federation import LedgerLine, ReplyJournal, StepsMissing, decode, ledger_line
from fedprognos.federation.exchanges import Failure, activity_of
from fedprognos.identity import Identity

POLL_IN_S, CHECK_IN_S = 0.5, 3.0
MAX_WAIT_IN_S = 12 * 3600.0
"""The wait for a reply where the experiment sets none."""
ABSENT_IN_S = 45.0
"""How long a message waits for an absent site before the run continues without it, or before somebody is notified."""
MAX_ASKED_AGAIN = 3
"""How often a site may say, in one step, that it lacks outcomes that it was sent already."""
HEADER_IN_BYTES = 1024
"""More than the note about one reply takes in the header of a step."""


@dataclass
class _Pending:
    """A message on its way to one site."""

    absent_since: float
    ticket: str = ""
    session: str = ""
    missed: bool = False

    def send_again(self) -> None:
        self.ticket = self.session = ""
        self.absent_since, self.missed = time.monotonic(), False


@dataclass(eq=False)
class SiteTransport:
    """Brings messages to sites through a mailbox.

    Parameters
    ----------
    wait_for_all
        Wait for an absent site until it is back or the reply's time is over.
    waiting
        Called again and again with what is asked and who has not answered, at last with nobody; may raise to end the
        waiting.
    missed, received
        Called with a site that everybody waits for, and with every message that came.
    """

    mailbox: Mailbox
    clients: tuple[str, ...]
    limit_in_bytes: int
    timeout_in_s: float = MAX_WAIT_IN_S
    wait_for_all: bool = False
    waiting: Callable[[str, tuple[str, ...]], None] = lambda activity, sites: None
    missed: Callable[[str], None] = lambda site: None
    received: Callable[[str, LedgerLine], None] = lambda site, line: None
    absent_in_s: float = ABSENT_IN_S
    sent_bytes: int = 0
    _absent: set[str] = field(default_factory=set)
    """Sites that did not come back in time. Nobody waits for them again until they are back."""
    _sessions: dict[str, str] = field(default_factory=dict)
    _checked_at: float = float("-inf")
    """When presence was last checked. A step that follows soon uses the same result."""

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        """Send requests as they are: the handshake, before there is a contract."""
        kind = ledger_line(next(iter(requests.values()))).kind
        return self.exchange(requests, activity_of(kind), requests.__getitem__, lambda site, data: data)

    def exchange(
        self,
        sites: Iterable[str],
        activity: str,
        message_to: Callable[[str], bytes],
        accept: Callable[[str, bytes], bytes | None],
    ) -> dict[str, bytes | Failure]:
        """Send each site its message and wait for all replies.

        Parameters
        ----------
        message_to
            The message to a site, made whenever it is sent: a site that restarted may need more than before.
        accept
            Checks what came from a site; None lets the message be sent again.
        """
        begun, pushed_after = time.monotonic(), float("nan")
        replies: dict[str, bytes | Failure] = {}
        pending = {name: _Pending(begun - (self.absent_in_s if name in self._absent else 0.0)) for name in sites}
        if not self._sessions.keys() >= pending.keys():  # whoever was away may be back
            self._check_presence()
        while pending:
            self.waiting(activity, tuple(pending))
            if time.monotonic() > begun + self.timeout_in_s:
                text = f"no answer within {self.timeout_in_s:g} s"
                replies |= {name: Failure(name, "timeout", text) for name in pending}
                break
            if time.monotonic() - self._checked_at > CHECK_IN_S:
                self._check_presence()
            if pushed_after != self._checked_at:
                replies |= self._push(pending, message_to)
                pushed_after = self._checked_at
            for name, message in list(pending.items()):
                reply = replies.get(name) or self._pull(name, message, accept) or self._given_up(name, message)
                if reply is not None:
                    replies[name] = reply
                    del pending[name]
            if pending:
                self.mailbox.wait(POLL_IN_S)
        self.waiting(activity, ())
        return replies

    def online(self) -> dict[str, str]:
        """The sites that are connected now, with their sessions."""
        return {name: site.session for name, site in self.mailbox.presence().items() if site.online}

    def _check_presence(self) -> None:
        """Check which sites are there."""
        try:
            self._sessions = self.online()
        except CarrierError:  # checked again in a moment
            self._sessions = {}
        self._checked_at = time.monotonic()
        self._absent.difference_update(self._sessions)

    def _push(self, pending: Mapping[str, _Pending], message_to: Callable[[str], bytes]) -> dict[str, Failure]:
        """Send to every site that is there and was not sent this, or restarted since and forgot it."""
        sessions, failures = self._sessions, {}
        for name, message in pending.items():
            if name not in sessions or sessions[name] == message.session:
                continue
            data = message_to(name)
            if len(data) > self.limit_in_bytes:
                failures[name] = Failure(name, "message", f"a request of more than {self.limit_in_bytes} bytes")
                continue
            with contextlib.suppress(CarrierError):
                message.ticket = self.mailbox.push(name, data, self.timeout_in_s)
                message.session = sessions[name]
                self.sent_bytes += len(data)
        return failures

    def _pull(
        self, name: str, message: _Pending, accept: Callable[[str, bytes], bytes | None]
    ) -> bytes | Failure | None:
        """A reply, a failure, or None while there is neither; what one site sends concerns that site only."""
        if not message.ticket:
            return None
        try:
            data = self.mailbox.pull(message.ticket)
            if data is None:
                return None
            if len(data) > self.limit_in_bytes:
                raise MessageError(f"{len(data)} bytes, more than the {self.limit_in_bytes} agreed")
            data = accept(name, data)
            if data is None:
                message.send_again()
                return None
            line = ledger_line(data)
        except SiteLostError:
            message.send_again()
            return None
        except MessageError as error:
            return Failure(name, error.code, error.what)
        self.received(name, line)
        return data

    def _given_up(self, name: str, message: _Pending) -> Failure | None:
        """A failure where a site has been absent for too long and can be done without."""
        if message.ticket or time.monotonic() <= message.absent_since + self.absent_in_s:
            return None
        if not self.wait_for_all:
            self._absent.add(name)
            return Failure(name, "absent", "it is not connected")
        if not message.missed:
            message.missed = True
            self.missed(name)
        return None


@dataclass(eq=False)
class StepTransport:
    """Asks the members of a contract step by step; outcomes are on disk before any member is sent them.

    Started again after a crash, it gives the outcomes of all steps that were settled before, and asks the rest.
    """

    sites: SiteTransport
    contract: Contract
    identity: Identity
    journal: ReplyJournal
    step: int = 0

    def __post_init__(self) -> None:
        self.clients = tuple(sorted(self.contract.members))
        self._outcomes: dict[str, Outcome] = {}
        self._latest_step: dict[str, int] = {}
        """The step that each site has answered last: it has the outcomes of all steps before."""
        self._behind: dict[str, int] = {}
        self._continued = read_outcomes(self.journal, 1) is not None

    def keep_only(self, members: tuple[str, ...]) -> None:
        """Ask no members but these from now on."""
        self.clients = members

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        """The replies of the next step; the step before is settled by it.

        The requests stay here: a site makes its own. Only their fingerprints travel.
        """
        if self._outcomes:
            keep_outcomes(self.journal, self.step, self._outcomes)
        self.step, self._outcomes = self.step + 1, {}
        kept = read_outcomes(self.journal, self.step)
        if kept is not None and set(kept) == set(requests):
            return {name: kept[name].failure or kept[name].reply for name in requests}
        self._behind.clear()
        signed: dict[str, Outcome] = {}
        # All replies to a step must fit into the next step beside its header.
        most_in_bytes = self.sites.limit_in_bytes // (len(requests) + 1)

        def message_to(site: str) -> bytes:
            return self._sealed(site, requests[site])

        def accept(site: str, data: bytes) -> bytes | None:
            if not data.startswith(REPLY):
                return self._unsigned(site, data)
            outcome = open_reply(data, self.contract.digest, self.step, site, self.contract.members[site])
            self._latest_step[site] = self.step
            if len(outcome.reply) > most_in_bytes:
                raise MessageError(
                    f"{len(outcome.reply)} bytes, more than the {most_in_bytes} that a reply may have where "
                    f"{len(requests)} members are asked; raise max_message_in_mb in every settings.toml"
                )
            if _is_failure(outcome.reply):
                decode(outcome.reply, (Failure,))  # a malformed one must not reach the members
            signed[site] = outcome
            return outcome.reply

        activity = activity_of(ledger_line(next(iter(requests.values()))).kind)
        for name, reply in self.sites.exchange(requests, activity, message_to, accept).items():
            self._outcomes[name] = signed.get(name) or Outcome(failure=_failure(name, reply))
        return {name: self._outcomes[name].failure or self._outcomes[name].reply for name in requests}

    def reject(self, failure: Failure) -> None:
        """Take the latest reply of a member for this failure: no other member is sent what nobody can use.

        A failure that the member signed itself stays as it is: the others can check its signature.
        """
        outcome = self._outcomes.get(failure.client)
        if outcome is not None and not _is_failure(outcome.reply):
            self._outcomes[failure.client] = Outcome(failure=failure)

    def _sealed(self, site: str, request: bytes) -> bytes:
        """The current step for a site, with the outcomes that it lacks, as far as they fit into one message."""
        first = self._latest_step.get(site, self.step - 1 if self._continued else 1)
        notes: list[tuple[Note, bytes]] = []
        left_in_bytes = self.sites.limit_in_bytes
        for step in range(max(first, 1), self.step):
            outcomes = sorted((read_outcomes(self.journal, step) or {}).items())
            of_step = [
                # A site has its own replies, but keeps no failure: asked again, it may succeed.
                outcome.note(step, member, with_reply=member != site or _is_failure(outcome.reply))
                for member, outcome in outcomes
            ]
            left_in_bytes -= sum(HEADER_IN_BYTES + len(reply) for _, reply in of_step)
            if left_in_bytes < 0 and notes:  # the site keeps what it gets and then says which step it lacks
                break
            notes += of_step
        return seal_step(self.identity, self.contract.digest, self.step, fingerprint_of(request), notes)

    def _unsigned(self, site: str, data: bytes) -> bytes | None:
        """What a site may say without a signature: that it fails, or that it lacks outcomes; then None."""
        if _is_failure(data):
            return data
        kind = ledger_line(data).kind
        if kind != StepsMissing.__name__:
            raise MessageError("sent a reply without its signature")
        lacks = min(max(decode(data, (StepsMissing,)).first, 1), self.step)
        if lacks <= self._latest_step.get(site, self.step):  # else it kept what it was sent, and needs more
            self._behind[site] = self._behind.get(site, 0) + 1
        if self._behind.get(site, 0) > MAX_ASKED_AGAIN:
            raise MessageError("it lacks the outcomes of earlier steps again and again")
        self._latest_step[site] = lacks
        return None


def _is_failure(reply: bytes) -> bool:
    return bool(reply) and ledger_line(reply).kind == Failure.__name__


def _failure(name: str, reply: bytes | Failure) -> Failure:
    """Why a site did not answer, in brief: its own words, or what the transport knows."""
    if isinstance(reply, Failure):
        return reply
    try:
        failure = decode(reply, (Failure,))
    except MessageError as error:
        return Failure(name, error.code, error.what)
    return Failure(name, failure.code[:40] or "unknown", failure.text[:400])
