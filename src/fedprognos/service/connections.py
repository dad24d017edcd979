"""Connections that say nothing are given up: each after a while, the oldest at once where they are many.

uvicorn itself waits for a request for ever, and turns everybody away once it holds too many connections.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal

from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    Protocol = AutoHTTPProtocol

HEADERS_IN_S = 10.0
BODY_IN_S = 60.0
MOST_SILENT = 1000
"""Connections that may be waited for at a time."""
Phase = Literal["headers", "body", "between", "answering"]
_silent: OrderedDict[PatientProtocol, None] = OrderedDict()


class PatientProtocol(Protocol):
    """uvicorn's protocol with a limit to how long a request may take to arrive."""

    _phase: Phase = "answering"
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._enter("headers")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._enter("headers")
        else:
            self._enter("body" if cycle.more_body else "answering")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._enter("between")  # uvicorn closes what stays silent between requests

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter("answering")
        super().connection_lost(exc)

    def _enter(self, phase: Phase) -> None:
        if phase == self._phase:  # bytes that come one by one buy no time
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._phase = phase
        _silent.pop(self, None)
        if phase == "answering":
            return
        _silent[self] = None
        if phase != "between":
            self._timer = self.loop.call_later(HEADERS_IN_S if phase == "headers" else BODY_IN_S, self._give_up)
        if len(_silent) > MOST_SILENT:
            next(iter(_silent))._give_up()

    def _give_up(self) -> None:
        self._enter("answering")
        if not self.transport.is_closing():
            self.transport.abort()
