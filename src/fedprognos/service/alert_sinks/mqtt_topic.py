"""Alerts over MQTT: one message of JSON for each alert (QoS 1, not retained), under a topic of its machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from fedprognos.service.alert_sinks import AlertSink, Send, SinkOptions, sinks
from fedprognos.service.alerts import Alert
from fedprognos.service.mqtt_broker import BrokerOptions, broker_client, topic_level


class MqttSinkOptions(SinkOptions, BrokerOptions):
    """Its keys in `[[alerts.sinks]]`."""

    kind: Literal["mqtt"] = "mqtt"
    topic: Annotated[str, Field(pattern=r"^[^+#]+$")] = "fleet/{unit}/alert"
    """`{unit}` stands for the machine."""


def open_topic(options: MqttSinkOptions) -> Send:
    """A function that publishes alerts; it connects for each call, so that a broker may come and go."""

    async def send(alerts: Sequence[Alert]) -> None:
        async with broker_client(options) as client:
            for alert in alerts:
                await client.publish(options.topic.replace("{unit}", topic_level(alert.machine)), alert.payload, qos=1)

    return send


MQTT = sinks.add(AlertSink("mqtt", "a message under a topic of the machine", 30, MqttSinkOptions, open_topic))
