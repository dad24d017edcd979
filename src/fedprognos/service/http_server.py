"""Runs the application until it is told to stop, and gives up connections that say nothing.

uvicorn itself waits for a request for ever, and turns everybody away once it holds too many connections. So each silent
connection is closed after a while, and the oldest ones at once where they are many.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fedprognos.errors import OutputError
from fedprognos.prognosis import Predictor
from fedprognos.service.http_app import create_app
from fedprognos.service.service_options import ServiceOptions

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    Protocol = AutoHTTPProtocol

GRACE_IN_S = 10
BACKLOG = 128
"""Connections accepted at a time: silent ones can be given up between two times."""
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


class Server(uvicorn.Server):
    """Ends event streams first: uvicorn waits for open answers, and those never end by themselves."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        service = self.config.app.state.service  # type: ignore[union-attr]
        service.events.close()
        super().handle_exit(sig, frame)


def configuration(predictor: Predictor, options: ServiceOptions) -> uvicorn.Config:
    """How the application is run; it holds its state folder from now on."""
    return uvicorn.Config(
        create_app(predictor, options),
        host=options.host,
        port=options.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_IN_S,
        http=PatientProtocol,
        backlog=BACKLOG,
        limit_concurrency=2 * MOST_SILENT,
        timeout_keep_alive=30,
    )


def serve(predictor: Predictor, options: ServiceOptions) -> None:
    """Serve until interrupted; what was accepted is stored, and a snapshot left for the next start."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # connections are files; have as many as are allowed
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = Server(configuration(predictor, options))
    try:
        server.run()
    except (KeyboardInterrupt, asyncio.CancelledError):
        return
    except SystemExit:
        raise OutputError(
            f"cannot listen on {options.host}:{options.port}", hint="is the port taken? choose another --port"
        ) from None
