"""`fedprognos watch` killed in mid-stream, with a real broker: nothing is lost, nothing counts twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from brokers import broker, mosquitto, payload, publisher, until, watching
from services import LIFE, free_port, rows_of, small_bundle

from fedprognos.prognosis import Predictor
from fedprognos.service import DurableStream
from small_fleets import series_fleet

FLEET = series_fleet([300, 240])
BUNDLES = {"window": small_bundle(FLEET), "life": small_bundle(FLEET, **LIFE)}
pytestmark = pytest.mark.soak


async def send_all(client: aiomqtt.Client) -> None:
    """Rows of all units in turn, as fast as the broker takes them."""
    both = [[(unit.id, row) for row in rows_of(unit, FLEET)] for unit in FLEET]
    for rows in itertools.zip_longest(*both):
        for name, row in (pair for pair in rows if pair is not None):
            await client.publish(f"fleet/{name}/sensors", payload(row), qos=1)


async def told(client: aiomqtt.Client, health: dict[str, Any]) -> None:
    """Keep the latest health of each unit."""
    async for message in client.messages:
        health[str(message.topic).split("/")[1]] = json.loads(bytes(message.payload))  # type: ignore[arg-type]


async def subscribed(log: Path) -> None:
    """Wait until a watcher has a session at the broker, which from then on keeps its rows."""
    await until(lambda: "connected to" in log.read_text(), 60)


def assert_all_is_there(folder: Path, bundle: Path, health: dict[str, Any]) -> None:
    predictor = Predictor.load(bundle)
    kept = DurableStream(predictor, folder)
    for unit in FLEET:
        assert [h.position for h in kept.history(unit.id)[0]] == unit.time.tolist()
        assert health[unit.id]["value"] == pytest.approx(predictor.bundle.predict(FLEET)[unit.id][-1], abs=1e-5)
    kept.store.close()


@pytest.mark.parametrize("history", BUNDLES)
def test_kill_9_in_mid_stream_loses_no_row(history: str, tmp_path: Path) -> None:
    port, bundle, state = free_port(), BUNDLES[history].save(tmp_path / "bundle"), tmp_path / "state"
    health: dict[str, Any] = {}
    last = {unit.id: float(unit.time[-1]) for unit in FLEET}

    def reached(position: float) -> bool:
        return any(h["position"] >= position for h in health.values())

    async def story() -> None:
        client = await publisher(port)
        await client.subscribe("fleet/+/health", qos=1)
        listening = asyncio.create_task(told(client, health))
        with watching(bundle, port, state) as child:
            sender = await publisher(port)
            await subscribed(tmp_path / f"watch-{port}.log")
            sending = asyncio.create_task(send_all(sender))
            await until(lambda: reached(20), 60)
            child.send_signal(signal.SIGKILL)
            child.wait(20)
        for goal in (100, 180):
            with watching(bundle, port, state) as child:
                await until(lambda goal=goal: reached(goal), 60)  # type: ignore[misc]
                child.send_signal(signal.SIGKILL)
                child.wait(20)
        await sending
        with watching(bundle, port, state):
            await until(lambda: {unit: h["position"] for unit, h in health.items()} == last, 60)
        listening.cancel()
        for each in (client, sender):
            with suppress(aiomqtt.MqttError):
                await each.__aexit__(None, None, None)

    with broker(port, tmp_path):
        asyncio.run(story())
    assert_all_is_there(state, bundle, health)


def test_rows_in_flight_while_the_disk_is_full_come_again_after_a_kill(tmp_path: Path) -> None:
    """The sharpest case: rows that had arrived, could not be stored, and whose holder died."""
    port, bundle, state = free_port(), BUNDLES["window"].save(tmp_path / "bundle"), tmp_path / "state"
    health: dict[str, Any] = {}
    log = tmp_path / f"watch-{port}.log"

    async def story() -> None:
        client = await publisher(port)
        await client.subscribe("fleet/+/health", qos=1)
        listening = asyncio.create_task(told(client, health))
        with watching(bundle, port, state) as child:
            await subscribed(log)
            sender = await publisher(port)
            sending = asyncio.create_task(send_all(sender))
            await until(lambda: len(health) == len(FLEET), 60)
            largest = max(file.stat().st_size for file in state.iterdir())
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (largest, largest))  # from now on the disk is full
            await sending
            await until(lambda: "nothing of this batch was stored" in log.read_text(), 60)
            child.send_signal(signal.SIGKILL)
            child.wait(20)
        with watching(bundle, port, state):
            last = {unit.id: float(unit.time[-1]) for unit in FLEET}
            await until(lambda: {unit: h["position"] for unit, h in health.items()} == last, 60)
        listening.cancel()
        for each in (client, sender):
            with suppress(aiomqtt.MqttError):
                await each.__aexit__(None, None, None)

    mosquitto()
    with broker(port, tmp_path):
        asyncio.run(story())
    assert_all_is_there(state, bundle, health)
