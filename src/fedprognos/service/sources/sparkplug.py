"""Rows from Sparkplug B: edge nodes announce devices and their metrics by births, and send what changes.

An edge node numbers its messages. Where one is missing, or data comes of which no birth is known, the node is asked to
begin anew ("rebirth"): values that hold are not known for sure until then, and no row is made of them.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Annotated, Literal

import aiomqtt
from pydantic import Field

from fedprognos.errors import DataError
from fedprognos.prognosis import Row
from fedprognos.service.mqtt_broker import BrokerOptions, Connected, broker_client, stay_connected
from fedprognos.service.row_readers import MetricOptions, MetricRows
from fedprognos.service.sources import Feed, Source, SourceOptions, sources
from fedprognos.service.sparkplug_payload import BOOLEAN, Metric, Payload, read_payload, write_payload

NAMESPACE = "spBv1.0"
REBIRTH_EVERY_IN_S = 5.0
"""A node is not asked for a rebirth more often than this."""
LARGEST_BATCH = 512
Level = Annotated[str, Field(pattern=r"^[^/+#]+$")]


class SparkplugOptions(SourceOptions, BrokerOptions, MetricOptions):
    """Its keys in `[[sources]]`."""

    kind: Literal["sparkplug"] = "sparkplug"
    group: Level | None = None
    """The group of edge nodes; by default all groups."""
    unit: str = "{device}"
    """The name of a unit, made of `{group}`, `{node}` and `{device}`. Without `{device}` the edge node is the unit."""
    host_id: Level | None = None
    """Tells edge nodes by this name that their host is there (`STATE`), for those that wait for it."""


@dataclass
class EdgeNode:
    """What is known of an edge node since its birth.

    Parameters
    ----------
    next_seq
        The number that its next message must have; None before its birth.
    birth_seq
        Tells which of its births a death belongs to.
    names
        Names of metrics by device ("" for the node itself) and alias.
    """

    next_seq: int | None = None
    birth_seq: object = None
    names: dict[str, dict[int, str]] = field(default_factory=dict)
    rebirth_asked: float = -REBIRTH_EVERY_IN_S


class SparkplugSource:
    """Follows the edge nodes of a broker."""

    def __init__(self, options: SparkplugOptions, feed: Feed) -> None:
        self.options, self.feed = options, feed
        self.nodes: dict[tuple[str, str], EdgeNode] = {}
        self.rows = MetricRows(options, feed.recipe)

    async def run(self) -> None:
        """Read until cancelled; a broker that vanishes is waited for."""
        await stay_connected(self.options, self.options.retry_in_s, self.feed, self._client, self._serve)

    def _client(self) -> aiomqtt.Client:
        return broker_client(self.options, will=self._state(online=False))

    def _state(self, online: bool) -> aiomqtt.Will | None:
        if self.options.host_id is None:
            return None
        payload = json.dumps({"online": online, "timestamp": int(1000 * time.time())})
        return aiomqtt.Will(f"{NAMESPACE}/STATE/{self.options.host_id}", payload, qos=1, retain=True)

    async def _serve(self, client: aiomqtt.Client, connected: Connected) -> None:
        self.nodes.clear()  # what was missed meanwhile, nobody knows
        topic = f"{NAMESPACE}/{self.options.group or '+'}/#"
        await client.subscribe(topic, qos=1)
        state = self._state(online=True)
        if state is not None:
            await client.publish(state.topic, state.payload, qos=1, retain=True)
        connected(topic)
        messages = client.messages
        async for first in messages:
            batch = [first]
            while len(messages) and len(batch) < LARGEST_BATCH:
                batch.append(await anext(messages))
            rows: list[Row] = []
            for message in batch:
                rows += self._read(str(message.topic), message.payload)
            await self.feed.submit(rows)
            await self._ask_rebirths(client)

    def _read(self, topic: str, data: object) -> list[Row]:
        _, group, kind, *names = (*topic.split("/"), "", "")[:5]
        node_name, device = names[0], names[1] if len(names) > 1 else ""
        if kind not in READERS or not node_name or not isinstance(data, bytes):
            return []
        self.feed.tally.messages += 1
        node = self.nodes.setdefault((group, node_name), EdgeNode())
        try:
            payload = read_payload(data)
        except DataError as error:
            self.feed.refuse(topic, error.what)
            node.next_seq = None  # its values may have changed
            return []
        unit = self.options.unit.replace("{group}", group).replace("{node}", node_name).replace("{device}", device)
        if kind == "NBIRTH":
            return self._node_birth(node, unit, device, payload)
        if kind == "NDEATH":
            self._node_death(node, group, node_name, payload)
            return []
        if node.next_seq is None or payload.seq != node.next_seq or (kind == "DDATA" and device not in node.names):
            node.next_seq = None
            return []
        node.next_seq = (node.next_seq + 1) % 256
        if kind == "DDEATH":
            node.names.pop(device, None)
            self.rows.forget(unit)
            return []
        if kind == "DBIRTH":
            self._learn(node, unit, device, payload)
        return self._values(node, unit, device, payload)

    def _node_birth(self, node: EdgeNode, unit: str, device: str, payload: Payload) -> list[Row]:
        node.next_seq = None if payload.seq is None else (payload.seq + 1) % 256
        node.birth_seq = _birth_seq(payload)
        node.names.clear()
        self._learn(node, unit, device, payload)
        return self._values(node, unit, device, payload)

    def _node_death(self, node: EdgeNode, group: str, name: str, payload: Payload) -> None:
        if _birth_seq(payload) == node.birth_seq:  # else it belongs to a birth before the last one
            for device in node.names:
                self.rows.forget(
                    self.options.unit.replace("{group}", group).replace("{node}", name).replace("{device}", device)
                )
            del self.nodes[group, name]

    def _learn(self, node: EdgeNode, unit: str, device: str, payload: Payload) -> None:
        """A birth names all metrics of a device, and holds their values."""
        node.names[device] = {m.alias: m.name for m in payload.metrics if m.alias is not None and m.name}
        self.rows.forget(unit)
        if device or "{device}" not in self.options.unit:
            missing = sorted(self.rows.names - {metric.name for metric in payload.metrics})
            if missing:
                self.feed.refuse(unit, f"its birth has no metric '{missing[0]}'")

    def _values(self, node: EdgeNode, unit: str, device: str, payload: Payload) -> list[Row]:
        if not device and "{device}" in self.options.unit:
            return []  # a metric of the edge node itself, which is no unit here
        names = node.names.get(device, {})
        values: dict[str, object] = {}
        times = [0 if payload.timestamp_in_ms is None else payload.timestamp_in_ms]
        for metric in payload.metrics:
            name = metric.name or names.get(-1 if metric.alias is None else metric.alias)
            if name is None:
                node.next_seq = None  # an alias that no birth explained
                return []
            values[name] = metric.value
            times += [] if metric.timestamp_in_ms is None else [metric.timestamp_in_ms]
        try:
            row = self.rows.change(unit, values, max(times) / 1000)
        except (ValueError, OverflowError, OSError):
            self.feed.refuse(unit, f"{max(times)} ms is no time")
            return []
        return [] if row is None else [row]

    async def _ask_rebirths(self, client: aiomqtt.Client) -> None:
        now = time.monotonic()
        for (group, name), node in self.nodes.items():
            if node.next_seq is None and now >= node.rebirth_asked + REBIRTH_EVERY_IN_S:
                node.rebirth_asked = now
                command = Metric("Node Control/Rebirth", None, None, BOOLEAN, True)
                request = write_payload(Payload(int(1000 * time.time()), (command,)))
                await client.publish(f"{NAMESPACE}/{group}/NCMD/{name}", request, qos=0)


READERS = frozenset({"NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH"})
"""Messages of edge nodes; commands and states are of others."""


def _birth_seq(payload: Payload) -> object:
    return next((metric.value for metric in payload.metrics if metric.name == "bdSeq"), None)


SPARKPLUG = sources.add(
    Source(
        "sparkplug",
        "Sparkplug B over MQTT",
        30,
        SparkplugOptions,
        lambda options, feed: SparkplugSource(options, feed).run(),
    )
)
