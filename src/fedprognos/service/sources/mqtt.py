"""Rows from an MQTT broker, health back to it.

The unit is named by the `+` level of the topic, so that a broker that lets a machine publish under its own name only
keeps machines from speaking for one another; without a `+`, the payload names it.

The session is kept by the broker: what machines send (QoS 1) while this side is away is delivered when it is back. A
message is acknowledged when its rows are stored and the healths they brought are published, so that the broker
delivers again what was in flight when this side died. Rows delivered twice are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import aiomqtt
from pydantic import Field
from pydantic_core import to_json

from fedprognos.errors import ConfigError, DataError
from fedprognos.prognosis import Health, Row, Update, Verdict
from fedprognos.service.mqtt_broker import BrokerOptions, Connected, broker_client, stay_connected, topic_level
from fedprognos.service.row_readers import PayloadOptions, parse, read_payload, read_row
from fedprognos.service.sources import Feed, Source, SourceOptions, sources

LARGEST_PAYLOAD = 5_000_000
LARGEST_BATCH = 512
PUBLISHED_AT_ONCE = 500
"""Healths that may wait for their acknowledgement at a time."""
MOST_UNPUBLISHED = 100_000


class MqttOptions(SourceOptions, BrokerOptions):
    """Its keys in `[[sources]]`."""

    kind: Literal["mqtt"] = "mqtt"
    topic: str = "fleet/+/sensors"
    """Where rows come from; the first `+` is the unit."""
    publish: str = "fleet/{unit}/health"
    """Where healths go, with `{unit}` in it; empty for nowhere."""
    client_id: Annotated[str, Field(min_length=1)] = "fedprognos-watch"
    """Names the session that the broker keeps."""
    payload: PayloadOptions | None = None
    """Where the parts of a row are in the JSON; by default as `POST /v1/rows` takes them."""


def check_topics(options: MqttOptions) -> None:
    """Refuse topics that cannot work."""
    try:
        pattern = aiomqtt.Wildcard(options.topic)
        if not options.publish:
            return
        if "{unit}" not in options.publish:
            raise ConfigError(f"'{options.publish}' has no {{unit}} in it", hint="as in fleet/{unit}/health")
        if aiomqtt.Topic(options.publish.replace("{unit}", "unit")).matches(pattern):
            raise ConfigError(
                f"'{options.publish}' would be read back as '{options.topic}'", hint="choose another topic"
            )
    except ValueError as error:
        raise ConfigError(f"not a topic: {error}") from None


@dataclass
class MqttSource:
    """Feeds what a broker delivers.

    Parameters
    ----------
    unpublished
        Healths not yet published, in their order, kept while the broker is away. Of more than
        :data:`MOST_UNPUBLISHED` only the latest of each unit stays.
    """

    options: MqttOptions
    feed: Feed
    unpublished: list[Health] = field(default_factory=list)

    async def run(self) -> None:
        """Read until cancelled; a broker that vanishes is waited for."""
        await stay_connected(self.options, self.options.retry_in_s, self.feed, self._client, self._serve)

    def _client(self) -> aiomqtt.Client:
        client = broker_client(
            self.options,
            identifier=self.options.client_id,
            clean_session=False,
            max_inflight_messages=PUBLISHED_AT_ONCE,
        )
        client._client.manual_ack_set(True)  # paho's: aiomqtt itself acknowledges on arrival
        return client

    async def _serve(self, client: aiomqtt.Client, connected: Connected) -> None:
        await client.subscribe(self.options.topic, qos=1)
        connected(self.options.topic)
        await self._publish(client)
        messages = client.messages
        async for first in messages:
            batch = [first]
            while len(messages) and len(batch) < LARGEST_BATCH:  # what waits already shares a pass and a commit
                batch.append(await anext(messages))
            rows: list[Row] = []
            for message in batch:
                rows += self._read(message)
            self._note(await self.feed.submit(rows))
            await self._publish(client)
            for message in batch:
                client._client.ack(message.mid, message.qos)

    def _read(self, message: aiomqtt.Message) -> list[Row]:
        """Rows of a message; a faulty one is counted and passed over."""
        self.feed.tally.messages += 1
        topic = str(message.topic)
        unit = unit_of(self.options.topic, topic)
        try:
            if not isinstance(message.payload, bytes) or len(message.payload) > LARGEST_PAYLOAD:
                raise DataError(f"the payload is not JSON of at most {LARGEST_PAYLOAD} bytes")
            values: Sequence[Any] = parse(message.payload)
            if self.options.payload is not None:
                values = read_payload(values, self.options.payload, self.feed.recipe)
            rows: list[Row] = []
            for value in values:
                row = read_row(value, unit)
                if isinstance(row, str):
                    raise DataError(row)
                rows.append(row)
            return rows
        except DataError as error:
            self.feed.refuse(topic, error.what)
            return []

    def _note(self, updates: Sequence[Update]) -> None:
        if not self.options.publish:
            return
        for update in updates:
            if update.accepted:
                self.unpublished += update.healths
            elif update.verdict is Verdict.DUPLICATE:
                health = self.feed.current_health(update.unit)  # perhaps stored, but never published
                self.unpublished += [] if health is None else [health]
        if len(self.unpublished) > MOST_UNPUBLISHED:
            latest = {health.unit: health for health in self.unpublished}
            self.unpublished = list(latest.values())

    async def _publish(self, client: aiomqtt.Client) -> None:
        """Publish every health in its order, without waiting for one acknowledgement before the next is sent."""
        while self.unpublished:
            some = self.unpublished[:PUBLISHED_AT_ONCE]
            # aiomqtt waits for each message by a task and an event of its own, which costs more than all the rest. A
            # broker acknowledges in order (MQTT-4.6.0-2): what comes before a confirmed message is confirmed, too.
            sent = [client._client.publish(*self._message(health), qos=1, retain=True) for health in some[:-1]]
            await client.publish(*self._message(some[-1]), qos=1, retain=True)
            if not all(info.rc == 0 and info.is_published() for info in sent):
                raise aiomqtt.MqttError("the broker confirms messages out of their order")
            del self.unpublished[: len(some)]  # only now: what was not confirmed is published again
            self.feed.tally.published += len(some)

    def _message(self, health: Health) -> tuple[str, bytes]:
        return self.options.publish.replace("{unit}", topic_level(health.unit)), to_json(health)


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


MQTT = sources.add(
    Source(
        "mqtt",
        "JSON from an MQTT broker",
        10,
        MqttOptions,
        lambda options, feed: MqttSource(options, feed).run(),
        check_topics,
    )
)
