"""Runs the application until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from types import FrameType

import uvicorn

from fedprognos.errors import OutputError
from fedprognos.prognosis.predictor import Predictor
from fedprognos.service.app import create_app
from fedprognos.service.connections import MOST_SILENT, PatientProtocol
from fedprognos.service.options import ServiceOptions

GRACE_IN_S = 10
BACKLOG = 128
"""Connections taken at a time: between two times the silent ones can be given up."""


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
