"""Requests on their way to sites: sent when a site is there, sent again when it restarted, given up after some time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedprognos.deployment.backoff import Backoff
from fedprognos.deployment.engine import EngineError, Mailbox, SiteLostError
from fedprognos.deployment.messages import ACTIVITIES
from fedprognos.deployment.tensor_cache import SentTensors, TensorsMissing
from fedprognos.errors import MessageError
from fedprognos.federation.codec import ledger_line
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
