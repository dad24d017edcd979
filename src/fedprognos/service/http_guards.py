"""What every request must pass: address, rate, token, size. And headers that every answer carries. Plain ASGI."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable

from fastapi import HTTPException, Request, Response
from fastapi.dependencies.utils import get_flat_dependant
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedprognos.service.http_answers import refuse
from fedprognos.service.service_options import LOOPBACK, ServiceOptions

HEALTH_CHECKS = frozenset({"/healthz", "/readyz"})
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
DRESS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
CACHE, NO_STORE = b"cache-control", b"no-store"
ADDRESSES = 10_000
"""Client addresses whose rate is remembered."""


class RateLimit:
    """A token bucket a client address.

    Examples
    --------
    >>> limit = RateLimit(2.0, clock=lambda: 0.0)
    >>> [limit.wait_in_s("10.0.0.1") for _ in range(3)]
    [0.0, 0.0, 0.5]
    """

    def __init__(self, rate_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate_per_s
        self._burst = max(rate_per_s, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_in_s(self, address: str) -> float:
        """Take one request from an address; how long it must wait where there was none left."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        left, before = self._buckets.get(address, (self._burst, now))
        left = min(self._burst, left + (now - before) * self._rate)
        taken = left >= 1.0
        self._buckets[address] = (left - 1.0 if taken else left, now)
        self._buckets.move_to_end(address)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self._rate


class Guard:
    """Stands before the application.

    Parameters
    ----------
    files
        Paths of the page's files. They and the health checks hold no data, so they need no token.
    """

    def __init__(self, app: ASGIApp, options: ServiceOptions, files: frozenset[str]) -> None:
        self._app = app
        self._open = files | HEALTH_CHECKS
        self._token = None if options.token is None else options.token.encode()
        self._max_body = options.max_body_in_bytes
        self._limit = RateLimit(options.rate_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers", ())
                cache = () if any(name == CACHE for name, _ in given) else ((CACHE, NO_STORE),)
                message["headers"] = [*given, *DRESS, *cache]
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, dressed)
            return
        await self._app(scope, self._measured(receive), dressed)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        address = scope["client"][0] if scope.get("client") else "unknown"
        if self._token is None and (address not in LOOPBACK or _host(headers) not in LOOPBACK):
            return refuse(403, "without a token this service answers this machine only")
        wait = self._limit.wait_in_s(address)
        if wait:
            return refuse(429, "too many requests from this address", {"retry-after": str(max(1, round(wait)))})
        if self._token is not None and scope["path"] not in self._open and not self._shows_token(headers):
            return refuse(401, "a token is needed: Authorization: Bearer ...", {"www-authenticate": "Bearer"})
        length = headers.get("content-length")
        if length is not None and length.isdecimal() and int(length[:20]) > self._max_body:
            return self._too_large()
        return None

    def _shows_token(self, headers: Headers) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        expected = self._token or b""
        return scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode("latin-1"), expected)

    def _too_large(self) -> Response:
        return refuse(413, f"the body is larger than {self._max_body} bytes", {"connection": "close"})

    def _measured(self, receive: Receive) -> Receive:
        """Stop reading a body of unannounced length where it grows too large."""
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > self._max_body:
                    raise TooLargeError
            return message

        return counted


class TooLargeError(Exception):
    """A body went over the limit while it was read."""


def only_known_parameters(request: Request) -> None:
    """Refuse a request with a parameter that its address does not know: a misspelt filter would show everything."""
    if not request.scope["query_string"]:
        return
    dependant = get_flat_dependant(request.scope["route"].dependant)
    allowed = {parameter.alias for parameter in dependant.query_params}
    unknown = sorted(request.query_params.keys() - allowed)
    if unknown:
        there = f"there are {', '.join(sorted(allowed))}" if allowed else "there are none here"
        raise HTTPException(400, f"unknown parameter '{unknown[0][:40]}'; {there}")


def _host(headers: Headers) -> str:
    """Name in the Host header without its port; a page elsewhere cannot pass itself off as this machine."""
    host = headers.get("host", "")
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
