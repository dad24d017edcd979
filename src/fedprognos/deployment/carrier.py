"""What a deployment needs of whatever carries its messages. Another carrier is one package beside `flower`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedprognos.deployment.folders import CoordinatorOptions, SiteOptions
from fedprognos.errors import FedprognosError

Tell = Callable[[str], None]
"""Shows a line of text to whoever watches."""
WriteReport = Callable[[Path], Path]
"""Makes the report of a finished run in its folder."""


class CarrierError(FedprognosError):
    """Messages cannot be carried just now."""

    code = "carrier"
    exit_code = 10


class SiteLostError(CarrierError):
    """A site went away before it answered; it may come back."""


class RunClosedError(FedprognosError):
    """The carrier gave up a run whose coordinator it missed; the run goes on in a new one."""

    code = "carrier"
    exit_code = 10


@dataclass(frozen=True)
class Presence:
    """Whether a site is connected and when it was last seen; `session` changes whenever it connects anew."""

    online: bool
    last_seen: str | None
    session: str


class Mailbox(Protocol):
    """The coordinator's way to the sites during one run."""

    def presence(self) -> Mapping[str, Presence]:
        """Every site by name, or :class:`CarrierError`; :class:`RunClosedError` where the run has ended."""

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        """Send a request to a site that is online; a ticket to fetch the reply by, or :class:`CarrierError`."""

    def wait(self, longest_in_s: float) -> None:
        """Wait until a reply may have come; where the carrier cannot tell, sleep for this long."""

    def pull(self, ticket: str) -> bytes | None:
        """The reply, None while there is none; :class:`SiteLostError`, or `MessageError` where it cannot be read."""


class Hub(Protocol):
    """The coordinator's end."""

    def check(self) -> None:
        """Raise `ProcessError` where the carrier has ended."""

    def presence(self) -> Mapping[str, Presence]:
        """Every site by name, or :class:`CarrierError`."""

    def refusals(self) -> list[str]:
        """What sites tried that they may not, since this was last asked, in words; or :class:`CarrierError`."""

    def open_run(self, arrival_in_s: float) -> AbstractContextManager[Mailbox]:
        """A mailbox; a reply that is announced must arrive within this time."""


class Task(Protocol):
    """A request that arrived at a site in full."""

    @property
    def data(self) -> bytes: ...

    def reply(self, data: bytes) -> None: ...


class Inbox(Protocol):
    """A site's end."""

    def next(self) -> Task | None:
        """The next request, None where none came for a moment; raises `ProcessError` where the carrier has ended."""


Host = Callable[[Path, CoordinatorOptions, Mapping[str, bytes]], AbstractContextManager[Hub]]
"""Starts the coordinator's end; only sites with these public keys are let in."""
Join = Callable[[Path, SiteOptions, Tell], AbstractContextManager[Inbox]]
"""Starts a site's end and connects it to the coordinator."""
