"""A cohort of sites on other machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
import numpy as np
from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedprognos.deployment.flower import wire as flower_wire
from fedprognos.deployment.flower.pace import Pace
from fedprognos.deployment.flower.parcels import LackingError, Sent
from fedprognos.errors import MessageError
from fedprognos.federation.codec import decode, encode, ledger_line
from fedprognos.federation.messages import Failure, LedgerLine

POLL_IN_S, LOOK_IN_S = 0.5, 3.0
LONGEST_IN_S = 12 * 3600.0
"""The wait for an answer where the experiment sets none."""
ABSENT_IN_S = 45.0
"""How long a site that is not connected, or goes away, is waited for before a question goes on without it, or, where
it cannot, before somebody is told."""

Watch = Callable[[str, tuple[str, ...]], None]
"""Told what is being asked and who has not answered yet; may raise to end the waiting."""
Received = Callable[[str, LedgerLine], None]
"""Told of every message that came: from whom, what, how many bytes."""


@dataclass
class _Asked:
    """A request on its way to a site."""

    data: bytes
    absent_since: float
    missed: bool = False
    message_id: str = ""
    activated: str = ""
    again: int = 0
    whole: bool = False


class FlowerCohort:
    """Asks sites through a Flower grid; a site is known by its key, found anew for every question.

    Parameters
    ----------
    keys
        Public key of each site that belongs to the federation.
    members
        Names of those who take part in this run.
    sent
        What sites have already, which is left out of what they are sent.
    all_needed
        Whether a site that is away is waited for until it is back, or the answer's time is over.
    missed
        Told of a site that is waited for so.
    """

    def __init__(
        self,
        grid: Grid,
        keys: Mapping[str, bytes],
        members: tuple[str, ...],
        *,
        limit_in_bytes: int,
        timeout_in_s: float | None = None,
        absent_in_s: float = ABSENT_IN_S,
        all_needed: bool = False,
        missed: Callable[[str], None] | None = None,
        watch: Watch | None = None,
        received: Received | None = None,
        sent: Sent | None = None,
    ) -> None:
        self._grid, self._members = grid, tuple(sorted(members))
        self._names = {key: name for name, key in keys.items()}
        self._limit, self._timeout = limit_in_bytes, timeout_in_s or LONGEST_IN_S
        self._absent, self._all_needed = absent_in_s, all_needed
        self._missed = missed or (lambda name: None)
        self._gone: set[str] = set()  # waited for in vain once; not again until they are back
        self._watch = watch or (lambda what, pending: None)
        self._received = received or (lambda name, line: None)
        self._sent = sent or Sent()

    @property
    def clients(self) -> tuple[str, ...]:
        return self._members

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        return self._exchange(requests, self._all_needed)

    def online(self) -> dict[str, tuple[int, str]]:
        """Node id and time of joining of every site that is there now."""
        return {
            self._names[bytes(node.public_key)]: (int(node.node_id), str(node.last_activated_at))
            for node in self._grid.get_nodes()
            if bytes(node.public_key) in self._names
        }

    def converse(
        self, requests: Mapping[str, Any], kinds: tuple[type, ...], *, all_needed: bool | None = None
    ) -> dict[str, Any]:
        """Ask anything that can be encoded; every site asked is in the answer, in the order asked."""
        all_needed = self._all_needed if all_needed is None else all_needed
        encoded = {name: encode(request) for name, request in requests.items()}
        replies: dict[str, Any] = {}
        for name, reply in self._exchange(encoded, all_needed).items():
            try:
                replies[name] = reply if isinstance(reply, Failure) else decode(reply, kinds, f"client {name}")
            except MessageError as error:
                replies[name] = Failure(name, error.code, error.what)
        return replies

    def _exchange(self, requests: Mapping[str, bytes], all_needed: bool) -> dict[str, bytes | Failure]:
        what = ledger_line(next(iter(requests.values()))).kind if requests else ""
        deadline = time.monotonic() + self._timeout
        begun = time.monotonic()
        asked = {
            name: _Asked(data, begun - (self._absent if name in self._gone else 0.0)) for name, data in requests.items()
        }
        too_large = Failure("", "message", f"the request is larger than {self._limit} bytes")
        replies: dict[str, bytes | Failure] = {
            name: replace(too_large, client=name) for name, one in asked.items() if len(one.data) > self._limit
        }
        looked, pace = -np.inf, Pace(POLL_IN_S)
        while pending := tuple(name for name in asked if name not in replies):
            self._watch(what, pending)
            if time.monotonic() > deadline:
                replies |= {n: Failure(n, "timeout", f"no answer within {self._timeout:g} s") for n in pending}
                break
            if time.monotonic() - looked > LOOK_IN_S:
                self._push_to_those_here({name: asked[name] for name in pending})
                looked = time.monotonic()
            for name in pending:
                if (reply := self._pull(name, asked[name])) is not None:
                    replies[name] = reply
                    pace.news()
                elif not asked[name].message_id and time.monotonic() > asked[name].absent_since + self._absent:
                    if not all_needed:
                        self._gone.add(name)
                        replies[name] = Failure(name, "absent", "it is not connected")
                    elif not asked[name].missed:
                        asked[name].missed = True
                        self._missed(name)
            if len(replies) < len(asked):
                time.sleep(pace.wait_in_s())
        return {name: replies[name] for name in requests}

    def _push_to_those_here(self, pending: Mapping[str, _Asked]) -> None:
        """Ask; and ask again a site that was started anew: it forgot the question, but kept what it had found."""
        here = self.online()
        self._gone.difference_update(here)
        for name, one in pending.items():
            if name in here and here[name][1] != one.activated:
                parcel = self._sent.pack(name, one.data, whole=one.whole)
                message = flower_wire.request(parcel, here[name][0], self._timeout, str(one.again))
                [one.message_id] = self._grid.push_messages([message])
                one.activated, one.again = here[name][1], one.again + 1

    def _pull(self, name: str, one: _Asked) -> bytes | Failure | None:
        """An answer, a failure, or None while there is neither; whatever one site sends concerns that site only."""
        try:
            found: list[Message] = list(self._grid.pull_messages([one.message_id])) if one.message_id else []
        except httpx.TransportError:
            return None
        except Exception as error:
            return Failure(name, "message", f"its answer cannot be read ({type(error).__name__})")
        if not found:
            return None
        if found[0].has_error():
            if found[0].error.code == ErrorCode.NODE_UNAVAILABLE:  # it may only be starting anew
                self._ask_again(one)
                return None
            return Failure(name, "unreachable", f"it broke down (code {found[0].error.code})")
        try:
            data = flower_wire.content(found[0], self._limit, f"client {name}")
            line = ledger_line(data)
            reply = decode(data, (Failure,), f"client {name}") if line.kind == Failure.__name__ else None
        except MessageError as error:
            return Failure(name, error.code, error.what)
        self._received(name, line)
        if reply is not None:
            if reply.code == LackingError.code and not one.whole:
                one.whole, one.activated = True, ""
                self._sent.forget(name)
                self._ask_again(one)
                return None
            return Failure(name, reply.code[:40], reply.text[:400])
        self._sent.answered(name, one.data, data)
        return data

    def _ask_again(self, one: _Asked) -> None:
        """Let the question be pushed once more."""
        one.message_id, one.absent_since, one.missed = "", time.monotonic(), False
