"""Real receivers of alerts: an HTTP server and an SMTP server, which remember what they get and can refuse it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from services import free_port

Json = dict[str, Any]


class WebhookReceiver:
    """What was posted, in its order, and the status that is answered."""

    def __init__(self, port: int) -> None:
        self.posts: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.status = 204
        self.url = f"http://127.0.0.1:{port}/alerts"


@contextmanager
def webhook() -> Iterator[WebhookReceiver]:
    """A real HTTP server."""
    receiver = WebhookReceiver(port := free_port())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if receiver.status < 300:
                receiver.posts.append(json.loads(body))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def mail_server(answer: str = "250 OK") -> Iterator[tuple[int, list[Any]]]:
    """A real SMTP server on a port, and the mails that it took."""
    mails: list[Any] = []

    class Handler:
        async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:
            if answer.startswith("250"):
                mails.append(message_from_bytes(envelope.content))
            return answer

    controller = Controller(Handler(), hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield controller.port, mails
    finally:
        controller.stop()
