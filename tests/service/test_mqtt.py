"""Rows over MQTT against a real broker, which also vanishes and comes back."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from services import free_port, rows_of, small_bundle

from fedprognos.errors import ConfigError
from fedprognos.prognosis import Predictor
from fedprognos.prognosis.mqtt import Watcher, WatchSettings
from fedprognos.prognosis.service import Keeper
from small_fleets import series_fleet

FLEET = series_fleet([22, 18])
BUNDLE = small_bundle(FLEET)
PASSWORD = "secret-of-the-test"  # noqa: S105


def mosquitto() -> str:
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("mosquitto is not installed")
    return found


@contextmanager
def broker(port: int, folder: Path, secured: bool = False) -> Iterator[None]:
    """A real broker on a port; secured with a password."""
    program = mosquitto()
    lines = [f"listener {port} 127.0.0.1", "persistence true", f"persistence_location {folder}/"]
    if secured:
        passwords = folder / "passwords"
        subprocess.run(["mosquitto_passwd", "-c", "-b", str(passwords), "watch", PASSWORD], check=True)
        passwords.chmod(0o644)
        lines += ["allow_anonymous false", f"password_file {passwords}"]
    else:
        lines.append("allow_anonymous true")
    configuration = folder / "mosquitto.conf"
    configuration.write_text("\n".join([*lines, "user root"]) + "\n")
    child = subprocess.Popen([program, "-c", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.wait(10)


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.02)


async def publisher(port: int, **options: Any) -> aiomqtt.Client:
    """A connected client, once the broker is up."""
    for _ in range(200):
        client = aiomqtt.Client("127.0.0.1", port, **options)
        try:
            await client.__aenter__()
            return client
        except aiomqtt.MqttError:
            await asyncio.sleep(0.05)
    raise AssertionError("the broker did not start")


@contextmanager
def watcher(port: int, **settings: Any) -> Iterator[Watcher]:
    own = Watcher(
        Keeper(Predictor.of(BUNDLE)),
        WatchSettings("127.0.0.1", port, first_pause_in_s=0.1, timeout_in_s=2.0, **settings),
    )
    try:
        yield own
    finally:
        own.keeper.close()


def payload(row: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in row.items() if key != "unit"})


def test_rows_over_mqtt_give_the_offline_numbers_and_faults_are_passed_over(tmp_path: Path) -> None:
    port = free_port()
    expected = BUNDLE.predict(FLEET, last=True)

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
        await until(lambda: watch.tally.messages == 40 + 2 + 5 and not watch.unpublished)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                async for message in client.messages:
                    told[str(message.topic)] = json.loads(bytes(message.payload))  # type: ignore[arg-type]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)
        return told

    with broker(port, tmp_path), watcher(port) as watch:
        told = asyncio.run(story(watch))
    assert (watch.tally.accepted, watch.tally.duplicates, watch.tally.faulty) == (40, 2, 5)
    for unit in FLEET.ids:
        assert told[f"fleet/{unit}/health"]["value"] == pytest.approx(expected[unit][-1], abs=1e-5)


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
            await until(lambda: watch.tally.accepted == len(rows) and not watch.unpublished)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    mosquitto()
    with watcher(port) as watch:
        asyncio.run(story(watch))
        assert watch.keeper.stream.health("engines-0").value == pytest.approx(  # type: ignore[union-attr]
            BUNDLE.predict(FLEET)["engines-0"][-1], abs=1e-5
        )


def test_a_password_lets_in(tmp_path: Path) -> None:
    port = free_port()

    async def story(watch: Watcher) -> None:
        task = asyncio.create_task(watch.run())
        await until(lambda: watch.tally.connections == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with broker(port, tmp_path, secured=True), watcher(port, username="watch", password=PASSWORD) as watch:
        asyncio.run(story(watch))


@pytest.mark.parametrize(
    ("topics", "fault"),
    [
        ({"publish": "fleet/health"}, "no {unit}"),
        ({"publish": "fleet/{unit}/sensors"}, "would be read back"),
        ({"topic": "fleet/#/sensors"}, "not a topic"),
    ],
)
def test_topics_that_cannot_work_are_refused(topics: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        WatchSettings("127.0.0.1", **topics).check()  # type: ignore[arg-type]
