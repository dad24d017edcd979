"""An MQTT broker and how to get in: what every source and sink that speaks MQTT has in common."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import aiomqtt
from pydantic import Field

from fedprognos.options import Options
from fedprognos.service.plant_entry import read_secret

if TYPE_CHECKING:
    from fedprognos.service.sources import Feed

LOG = logging.getLogger("fedprognos.watch")
LONGEST_PAUSE_IN_S = 60.0


class BrokerOptions(Options):
    """Keys of the plant file that name a broker."""

    host: str
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """By default 1883, with TLS 8883."""
    username: str | None = None
    password_file: Path | None = None
    tls: bool = False
    """Encrypt, and check the broker's certificate."""
    ca: Path | None = None
    """Certificates to trust in place of the system's; implies `tls`."""
    timeout_in_s: Annotated[float, Field(gt=0)] = 10.0
    """How long to wait for the broker to confirm anything before it counts as gone."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port or (8883 if self.tls or self.ca else 1883)


def broker_client(options: BrokerOptions, **more: Any) -> aiomqtt.Client:
    """A client of the broker, not yet connected; `more` goes to aiomqtt."""
    host, port = options.address
    secured = options.tls or options.ca is not None
    return aiomqtt.Client(
        host,
        port,
        username=options.username,
        password=None if options.password_file is None else read_secret(options.password_file),
        keepalive=30,
        timeout=options.timeout_in_s,
        tls_params=aiomqtt.TLSParameters(ca_certs=None if options.ca is None else str(options.ca)) if secured else None,
        **more,
    )


def topic_level(name: str) -> str:
    """A unit's name as a level of a topic: wildcards and slashes would change the topic.

    >>> topic_level("line 1/pump#2")
    'line 1%2Fpump%232'
    """
    for character in "%/+#":
        name = name.replace(character, f"%{ord(character):02X}")
    return name


Connected = Callable[[str], None]
"""To be called with what is read, once the subscription stands."""


async def stay_connected(
    options: BrokerOptions,
    retry_in_s: float,
    feed: Feed,
    client: Callable[[], aiomqtt.Client],
    serve: Callable[[aiomqtt.Client, Connected], Awaitable[None]],
) -> None:
    """Serve one connection after the other until cancelled, with pauses up to a minute between attempts."""
    pause_in_s = retry_in_s
    host, port = options.address

    def connected(what: str) -> None:
        feed.tally.connections += 1
        LOG.info("connected to %s:%d, reading %s", host, port, what)

    while True:
        messages_before = feed.tally.messages
        try:
            async with client() as connection:
                await serve(connection, connected)
        except (aiomqtt.MqttError, OSError) as error:
            if feed.tally.messages > messages_before:
                pause_in_s = retry_in_s
            LOG.warning("no broker at %s:%d (%s); trying again", host, port, error)
        await asyncio.sleep(pause_in_s * random.uniform(0.8, 1.2))  # noqa: S311 - spreads clients, hides nothing
        pause_in_s = min(2 * pause_in_s, LONGEST_PAUSE_IN_S)
