"""Rows from an MQTT broker, health back to it.

The unit is named by the `+` level of the topic, so that a broker that lets a machine publish under its own name only
keeps machines from speaking for one another; without a `+`, the payload names it.

The session is kept by the broker: what machines send (QoS 1) while this side is away is delivered when it is back. A
message is acknowledged when its rows are stored and the healths they brought are published, so that the broker
delivers again what was in flight when this side died. Rows delivered twice are refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiomqtt
from pydantic_core import to_json

from fedprognos.errors import ConfigError, DataError, OutputError
from fedprognos.prognosis import Health, Row, Verdict
from fedprognos.service.durable_stream import DurableStream
from fedprognos.service.json_shapes import parse, read_row

LOG = logging.getLogger("fedprognos.watch")
LARGEST_PAYLOAD = 5_000_000
LARGEST_BATCH = 512
LONGEST_PAUSE_IN_S = 60.0
PUBLISHED_AT_ONCE = 100
"""Healths that may wait for their acknowledgement at a time."""
MOST_UNPUBLISHED = 100_000
SHOWN_FAULTS = 10
"""Faulty payloads that are logged one by one; after that every thousandth is."""


@dataclass(frozen=True)
class WatchOptions:
    """Broker, topics and how to get in.

    Parameters
    ----------
    topic
        Where rows come from; the first `+` is the unit.
    publish
        Where healths go, with `{unit}` in it; None publishes nothing.
    ca
        Certificates to trust in place of the system's.
    first_pause_in_s
        Before the first new attempt to connect; doubles up to a minute.
    timeout_in_s
        How long to wait for the broker to confirm anything before it is taken for gone.
    """

    host: str
    port: int = 1883
    topic: str = "fleet/+/sensors"
    publish: str | None = "fleet/{unit}/health"
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca: Path | None = None
    client_id: str = "fedprognos-watch"
    first_pause_in_s: float = 1.0
    timeout_in_s: float = 10.0

    def check(self) -> None:
        """Refuse topics that cannot work."""
        try:
            pattern = aiomqtt.Wildcard(self.topic)
            if self.publish is None:
                return
            if "{unit}" not in self.publish:
                raise ConfigError(f"'{self.publish}' has no {{unit}} in it", hint="as in fleet/{unit}/health")
            if aiomqtt.Topic(self.publish.replace("{unit}", "unit")).matches(pattern):
                raise ConfigError(f"'{self.publish}' would be read back as '{self.topic}'", hint="choose another topic")
        except ValueError as error:
            raise ConfigError(f"not a topic: {error}") from None


@dataclass
class Tally:
    """What came and went so far."""

    messages: int = 0
    faulty: int = 0
    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    published: int = 0
    connections: int = 0


@dataclass
class Watcher:
    """Feeds what a broker delivers to a stream.

    Parameters
    ----------
    unpublished
        Healths not yet published, in their order, kept while the broker is away. Of more than
        :data:`MOST_UNPUBLISHED` only the latest of each unit stays.
    """

    stream: DurableStream
    options: WatchOptions
    tally: Tally = field(default_factory=Tally)
    unpublished: list[Health] = field(default_factory=list)

    async def run(self) -> None:
        """Watch until cancelled; a broker that vanishes is waited for."""
        self.options.check()
        pause = self.options.first_pause_in_s
        while True:
            before = self.tally.messages
            try:
                async with self._client() as client:
                    await client.subscribe(self.options.topic, qos=1)
                    self.tally.connections += 1
                    LOG.info("connected to %s:%d, reading %s", self.options.host, self.options.port, self.options.topic)
                    await self._publish(client)
                    await self._listen(client)
            except (aiomqtt.MqttError, OSError) as error:
                if self.tally.messages > before:
                    pause = self.options.first_pause_in_s
                LOG.warning("no broker at %s:%d (%s); trying again", self.options.host, self.options.port, error)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads clients, hides nothing
            pause = min(2 * pause, LONGEST_PAUSE_IN_S)

    def _client(self) -> aiomqtt.Client:
        options = self.options
        secured = options.tls or options.ca is not None
        client = aiomqtt.Client(
            options.host,
            options.port,
            username=options.username,
            password=options.password,
            identifier=options.client_id,
            clean_session=False,
            keepalive=30,
            timeout=options.timeout_in_s,
            tls_params=aiomqtt.TLSParameters(ca_certs=None if options.ca is None else str(options.ca))
            if secured
            else None,
        )
        client._client.manual_ack_set(True)  # paho's: aiomqtt itself acknowledges on arrival
        return client

    async def _listen(self, client: aiomqtt.Client) -> None:
        messages = client.messages
        async for first in messages:
            batch = [first]
            while len(messages) and len(batch) < LARGEST_BATCH:  # what waits already shares a pass and a commit
                batch.append(await anext(messages))
            await self._take(batch)
            await self._publish(client)
            for message in batch:
                client._client.ack(message.mid, message.qos)

    async def _take(self, messages: list[aiomqtt.Message]) -> None:
        rows: list[Row] = []
        for message in messages:
            self.tally.messages += 1
            rows += self._read(message)
        if not rows:
            return
        while True:
            try:
                updates = (await asyncio.to_thread(self.stream.take, rows)).updates
                break
            except OutputError as error:  # a full disk: wait with what was delivered, the broker holds the rest
                LOG.error("%s; %s", error.what, error.hint)
                await asyncio.sleep(10 * self.options.first_pause_in_s)
        for update in updates:
            if update.accepted:
                self.tally.accepted += 1
                self._note(*update.healths)
            elif update.verdict is Verdict.DUPLICATE:
                self.tally.duplicates += 1
                health = self.stream.stream.health(update.unit)  # perhaps stored, but never published
                self._note(*([] if health is None else [health]))
            else:
                self.tally.refused += 1
                self._complain(f"unit '{update.unit}': {update.reason}", self.tally.refused)

    def _note(self, *healths: Health) -> None:
        self.unpublished += healths
        if len(self.unpublished) > MOST_UNPUBLISHED:
            latest = {health.unit: health for health in self.unpublished}
            self.unpublished = list(latest.values())

    def _read(self, message: aiomqtt.Message) -> list[Row]:
        """Rows of a message; a faulty one is counted and passed over."""
        topic = str(message.topic)
        unit = unit_of(self.options.topic, topic)
        try:
            if not isinstance(message.payload, bytes) or len(message.payload) > LARGEST_PAYLOAD:
                raise DataError(f"the payload is not JSON of at most {LARGEST_PAYLOAD} bytes")
            rows: list[Row] = []
            for value in parse(message.payload):
                row = read_row(value, unit)
                if isinstance(row, str):
                    raise DataError(row)
                rows.append(row)
            return rows
        except DataError as error:
            self.tally.faulty += 1
            self._complain(f"{topic}: {error.what}", self.tally.faulty)
            return []

    def _complain(self, text: str, count: int) -> None:
        if count <= SHOWN_FAULTS or count % 1000 == 0:
            LOG.warning("passed over (%d so far): %s", count, text)

    async def _publish(self, client: aiomqtt.Client) -> None:
        """Publish every health in its order, without waiting for one acknowledgement before the next is sent."""
        if self.options.publish is None:
            self.unpublished.clear()
        while self.unpublished:
            some = self.unpublished[:PUBLISHED_AT_ONCE]
            await asyncio.gather(*(self._publish_one(client, health) for health in some))
            del self.unpublished[: len(some)]  # only now: what was not confirmed is published again
            self.tally.published += len(some)

    async def _publish_one(self, client: aiomqtt.Client, health: Health) -> None:
        unit = health.unit.replace("+", "%2B").replace("#", "%23")
        await client.publish(str(self.options.publish).replace("{unit}", unit), to_json(health), qos=1, retain=True)


def unit_of(pattern: str, topic: str) -> str | None:
    """The level of a topic that names the unit; None where the pattern has no `+`.

    Examples
    --------
    >>> unit_of("fleet/+/sensors", "fleet/pump-7/sensors")
    'pump-7'
    """
    for wanted, level in zip(pattern.split("/"), topic.split("/"), strict=False):
        if wanted == "+":
            return level
    return None


def tally_text(tally: Tally) -> str:
    """The tally in one line."""
    return ", ".join(f"{count} {name}" for name, count in asdict(tally).items())
