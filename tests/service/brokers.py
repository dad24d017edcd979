"""A real MQTT broker, real clients and a real `fedprognos watch`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

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
    # As docs/serve.md says: by default it sends 20 at a time, and drops what waits beyond 1000.
    lines += ["max_queued_messages 0", "max_inflight_messages 1000"]
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


def payload(row: dict[str, Any]) -> str:
    """A row as a machine publishes it under its own topic."""
    return json.dumps({key: value for key, value in row.items() if key != "unit"})


@contextmanager
def watching(bundle: Path, port: int, state: Path, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A real `fedprognos watch`; `how` goes to its process."""
    command = [sys.executable, "-m", "fedprognos", "watch", str(bundle), "--mqtt", f"127.0.0.1:{port}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (state.parent / f"watch-{port}.log").open("ab") as log:
        child = subprocess.Popen([*command, "--state", str(state)], stdout=log, stderr=log, env=environment, **how)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait(20)
