"""The coordinator's side of a contract: requests go out as numbered, signed steps with the outcomes of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedprognos.deployment.contract import Contract
from fedprognos.deployment.identity import Identity
from fedprognos.deployment.messages import StepsMissing
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.deployment.steps import REPLY, Note, Outcome, Transcript, open_reply, seal_request, sha256
from fedprognos.deployment.tensor_cache import TensorsMissing
from fedprognos.errors import MessageError
from fedprognos.federation.codec import decode, ledger_line
from fedprognos.federation.messages import Failure

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
