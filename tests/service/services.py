"""Small services for tests: models that need no training, rows as machines send them, real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi.testclient import TestClient

from fedprognos.fleet import Fleet, Unit
from fedprognos.networks import Bundle, Network, NetworkSpec
from fedprognos.prognosis import Predictor
from fedprognos.service import ServiceOptions
from fedprognos.service.http_app import create_app
from fedprognos.service.http_server import Server, configuration
from small_fleets import recipe_of

Json = dict[str, Any]
LIFE: dict[str, Any] = {"window": None, "history": "life"}
"""Options of a recipe that reads whole lives."""


def small_bundle(fleet: Fleet, seed: int = 3, **options: object) -> Bundle:
    if fleet.schema.settings:
        options = {"conditions": {"altitude": 0, "mach": 2}, **options}
    recipe = recipe_of(fleet, **{"min_count": 2, **options})
    spec = NetworkSpec(inputs=recipe.channels, widths=(6,))
    network = Network.seeded(spec, seed)
    return Bundle(recipe, network.with_head(5 * network.head))  # so that health moves


def rows_of(unit: Unit, fleet: Fleet) -> list[Json]:
    """A unit's history as JSON rows."""
    cycles = None if unit.cycles is None else np.repeat(unit.cycle_numbers, np.diff(unit.cycles)).tolist()
    rows: list[Json] = []
    for k in range(unit.rows):
        row: Json = {
            "unit": unit.id,
            "position": float(unit.time[k]),
            "sensors": dict(zip(fleet.schema.sensors, unit.sensors[k].tolist(), strict=True)),
        }
        if fleet.schema.settings:
            row["settings"] = dict(zip(fleet.schema.settings, unit.settings[k].tolist(), strict=True))
        if cycles is not None:
            row["cycle"] = int(cycles[k])
        rows.append(row)
    return rows


@contextmanager
def running(bundle: Bundle, address: str = "127.0.0.1", **options: Any) -> Iterator[TestClient]:
    """The real application in this process, as a client at an address sees it."""
    app = create_app(Predictor.from_bundle(bundle), ServiceOptions(**{"rate_per_s": 0.0, **options}))
    with TestClient(app, "http://127.0.0.1", client=(address, 40000), raise_server_exceptions=False) as client:
        yield client


@contextmanager
def served(bundle: Bundle, state: Path, port: int | None = None, **options: Any) -> Iterator[str]:
    """The real application behind a real socket, in a thread of this process; its address."""
    port = port or free_port()
    chosen = ServiceOptions(**{"port": port, "state": state, "rate_per_s": 0.0, **options})
    server = Server(configuration(Predictor.from_bundle(bundle), chosen))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(bundle: Path, state: Path, *options: str, **how: Any) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A real `fedprognos serve`: its address and its process; `how` goes to the process."""
    port = free_port()
    command = [sys.executable, "-m", "fedprognos", "serve", str(bundle), "--state", str(state), "--port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = state.parent / f"serve-{port}.log"
    with log.open("wb") as out:
        child = subprocess.Popen([*command, "--rate", "0", *options], stdout=out, stderr=out, env=environment, **how)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 60
        while True:
            try:
                if httpx.get(f"{address}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                if child.poll() is not None or time.monotonic() > until:
                    raise AssertionError(log.read_text()) from None
                time.sleep(0.1)
        yield address, child
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait(20)
