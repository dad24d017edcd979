"""Rows over MQTT against a real broker, which also vanishes and comes back."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiomqtt
import pytest
from brokers import PASSWORD, broker, mosquitto, payload, publisher, until
from services import LIFE, free_port, rows_of, small_bundle
from watchers import Watcher

from fedprognos.errors import ConfigError, OutputError
from fedprognos.prognosis import Predictor, Row
from fedprognos.service import DurableStream
from fedprognos.service.row_readers import PayloadOptions
from fedprognos.service.sources.mqtt import MqttOptions, MqttSource, check_topics
from refusals import refuses
from small_fleets import series_fleet

FLEET = series_fleet([22, 18])
BUNDLE = small_bundle(FLEET)
BUNDLES = {"window": BUNDLE, "life": small_bundle(FLEET, **LIFE)}


@contextmanager
def watcher(port: int, history: str = "window", **options: Any) -> Iterator[Watcher]:
    stream = DurableStream(Predictor.from_bundle(BUNDLES[history]))
    chosen = MqttOptions(host="127.0.0.1", port=port, retry_in_s=0.1, timeout_in_s=2.0, **options)
    watch = Watcher(stream, chosen, MqttSource)
    try:
        yield watch
    finally:
        stream.close()


HOSTILE = {
    "nothing": b"",
    "no JSON": b"\xff\xfe{",
    "half a character": b'{"unit": "\\ud800"}',
    "deep": b"[" * 100_000,
    "deep in a row": b'{"position":' + b"[" * 150 + b"]" * 150 + b"}",
    "a long number": b'{"position":' + b"9" * 5000 + b"}",
    "huge": b" " * 5_000_001,
    "no rows": b'[1, "a", null, [], true]',
    "keys without meaning": b'{"position": 1, "<script>": 1}',
    "another unit": b'{"unit": "other", "position": 1, "sensors": {}}',
    "a unit that is none": b'{"unit": {"a": []}, "position": 1, "sensors": {}}',
    "too many samples": b"[" + b",".join([b'{"rows":[' + b"0," * 4999 + b"0]}"] * 50) + b"]",
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_payload_is_refused_in_words_and_costs_little(name: str, mapped: bool) -> None:
    refused: list[str] = []
    feed = SimpleNamespace(tally=SimpleNamespace(messages=0), recipe=BUNDLE.recipe)
    feed.refuse = lambda topic, reason: refused.append(reason)
    payload_options = PayloadOptions(rows="rows", position="p") if mapped else None
    source = MqttSource(MqttOptions(host="127.0.0.1", payload=payload_options), feed)  # type: ignore[arg-type]
    rows = source._read(SimpleNamespace(topic="fleet/pump/sensors", payload=HOSTILE[name]))  # type: ignore[arg-type]
    assert rows == []
    assert len(refused) == 1
    assert len(refused[0]) < 400


def unwanted(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Text, not a number, one sensor too few, one too many, a clock that runs back, a clock a year ahead."""
    name = next(iter(row["sensors"]))
    fewer = {key: value for key, value in row["sensors"].items() if key != name}
    later = {**row, "position": row["position"] + 1}
    sensors = [{**fewer, name: "high"}, {**fewer, name: math.nan}, fewer, {**row["sensors"], "smell": 1.0}]
    clocks = [row["position"] - 1, row["position"] + 365 * 86400]
    return [*({**later, "sensors": own} for own in sensors), *({**row, "position": own} for own in clocks)]


@pytest.mark.long
@pytest.mark.parametrize("history", BUNDLES)
def test_rows_over_mqtt_give_the_offline_numbers_and_faults_are_passed_over(history: str, tmp_path: Path) -> None:
    port = free_port()
    expected = BUNDLES[history].predict(FLEET, last=True)

    positions: dict[str, list[float]] = {}

    async def story(watch: Watcher) -> dict[str, Any]:
        told: dict[str, Any] = {}
        task = asyncio.create_task(watch.run())
        client = await publisher(port)
        await client.subscribe("fleet/+/health", qos=1)
        await until(lambda: watch.tally.connections == 1)
        for bad in (b"{", b"\xff", b"[1]", b'{"unit":"other","position":1,"sensors":{}}', b'{"position":1}'):
            await client.publish("fleet/engines-0/sensors", bad, qos=1)
        for unit in FLEET:
            for row in rows_of(unit, FLEET):
                await client.publish(f"fleet/{unit.id}/sensors", payload(row), qos=1)
            await client.publish(f"fleet/{unit.id}/sensors", payload(row), qos=1)
        for wrong in unwanted(row):
            await client.publish(f"fleet/{unit.id}/sensors", payload(wrong), qos=1)
        await until(lambda: watch.tally.messages == 40 + 2 + 5 + 6 and not watch.source.unpublished)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                async for message in client.messages:
                    health = told[str(message.topic)] = json.loads(bytes(message.payload))  # type: ignore[arg-type]
                    positions.setdefault(health["unit"], []).append(health["position"])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)
        return told

    with broker(port, tmp_path), watcher(port, history) as watch:
        told = asyncio.run(story(watch))
    assert (watch.tally.accepted, watch.tally.duplicates, watch.tally.faulty, watch.tally.refused) == (40, 2, 5, 6)
    for unit in FLEET.ids:
        assert told[f"fleet/{unit}/health"]["value"] == pytest.approx(expected[unit][-1], abs=1e-5)
        every = [row["position"] for row in rows_of(FLEET[unit], FLEET)]
        assert positions[unit][: len(every)] == every  # each health once, in its order; the repeated row's again


@pytest.mark.long
def test_a_broker_that_vanishes_is_waited_for_and_nothing_sent_meanwhile_is_lost(tmp_path: Path) -> None:
    port = free_port()
    rows = rows_of(FLEET["engines-0"], FLEET)

    async def send(part: list[dict[str, Any]]) -> None:
        client = await publisher(port)
        for row in part:
            await client.publish("fleet/engines-0/sensors", payload(row), qos=1)
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)

    async def story(watch: Watcher) -> None:
        task = asyncio.create_task(watch.run())
        with broker(port, tmp_path):
            await until(lambda: watch.tally.connections == 1)
            await send(rows[:10])
            await until(lambda: watch.tally.accepted == 10)
        await asyncio.sleep(0.3)
        assert not task.done()
        with broker(port, tmp_path):
            await until(lambda: watch.tally.connections >= 2)
            await send(rows[10:15])
            await until(lambda: watch.tally.accepted == 15)
            task.cancel()  # away: the broker keeps what comes for this session
            await asyncio.gather(task, return_exceptions=True)
            await send(rows[15:])
            task = asyncio.create_task(watch.run())
            await until(lambda: watch.tally.accepted == len(rows) and not watch.source.unpublished)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    mosquitto()
    with watcher(port) as watch:
        asyncio.run(story(watch))
        assert watch.stream.stream.health("engines-0").value == pytest.approx(  # type: ignore[union-attr]
            BUNDLE.predict(FLEET)["engines-0"][-1], abs=1e-5
        )


@pytest.mark.long
def test_rows_that_were_not_stored_are_delivered_again(tmp_path: Path) -> None:
    port = free_port()
    rows = rows_of(FLEET["engines-0"], FLEET)

    def refuses(_: Any) -> Any:
        raise OutputError("nothing of this batch was stored", hint="make room on the disk")

    async def story(first: Watcher, second: Watcher) -> None:
        first.stream.take = refuses  # type: ignore[method-assign]
        task = asyncio.create_task(first.run())
        client = await publisher(port)
        await until(lambda: first.tally.connections == 1)
        for row in rows:
            await client.publish("fleet/engines-0/sensors", payload(row), qos=1)
        await until(lambda: first.tally.messages > 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        task = asyncio.create_task(second.run())
        await until(lambda: second.tally.accepted == len(rows) and not second.source.unpublished)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)

    with broker(port, tmp_path), watcher(port) as first, watcher(port) as second:
        asyncio.run(story(first, second))
    assert (second.tally.duplicates, second.tally.refused) == (0, 0)


@pytest.mark.long
def test_a_health_that_was_stored_but_not_told_is_told_when_its_row_comes_again(tmp_path: Path) -> None:
    port = free_port()
    rows = rows_of(FLEET["engines-0"], FLEET)

    async def story(watch: Watcher) -> None:
        watch.stream.take([Row(**row) for row in rows])
        task = asyncio.create_task(watch.run())
        client = await publisher(port)
        await until(lambda: watch.tally.connections == 1)
        await client.publish("fleet/engines-0/sensors", payload(rows[-1]), qos=1)
        await until(lambda: watch.tally.published == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)

    with broker(port, tmp_path), watcher(port) as watch:
        asyncio.run(story(watch))
    assert watch.tally.duplicates == 1


@pytest.mark.long
def test_a_password_lets_in(tmp_path: Path) -> None:
    port = free_port()

    async def story(watch: Watcher) -> None:
        task = asyncio.create_task(watch.run())
        await until(lambda: watch.tally.connections == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    (tmp_path / "password").write_text(PASSWORD)
    login = {"username": "watch", "password_file": tmp_path / "password"}
    with broker(port, tmp_path, secured=True), watcher(port, **login) as watch:
        asyncio.run(story(watch))


@pytest.mark.parametrize(
    ("topics", "named"),
    [
        ({"publish": "fleet/health"}, "{unit}"),
        ({"publish": "fleet/{unit}/sensors"}, "fleet/+/sensors"),
        ({"topic": "fleet/#/sensors"}, ""),
    ],
)
def test_topics_that_cannot_work_are_refused(topics: dict[str, str], named: str) -> None:
    with refuses(ConfigError, named):
        check_topics(MqttOptions(host="127.0.0.1", **topics))  # type: ignore[arg-type]
