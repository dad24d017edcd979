"""`fedprognos watch` behind mosquitto: rows a second on one core, one row a message, healths published, SQLite on.

Writes build/benchmarks/mqtt.json. Beside other programs the time on the clock says little; processor seconds of the
watching process are given as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import paho.mqtt.client as paho
import psutil

from fedprognos.fleet.synthetic import synthetic_engines
from service import bodies_of, bundle_of, free_port

OUT = Path("build/benchmarks/mqtt.json")
UNITS = 64
BROKER = """
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
max_inflight_messages 1000
"""


def client(port: int) -> paho.Client:
    """A connected client, once the broker is up."""
    mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2)
    mqtt.max_inflight_messages_set(1000)
    for _ in range(100):
        try:
            mqtt.connect("127.0.0.1", port)
            break
        except OSError:
            time.sleep(0.05)
    mqtt.loop_start()
    return mqtt


def measure(port: int, watch: psutil.Process, messages: list[tuple[str, bytes]]) -> dict[str, float]:
    """Publish all messages, and wait until as many healths have come back."""
    healths, complete = 0, threading.Event()

    def count(*_: object) -> None:
        nonlocal healths
        healths += 1
        if healths >= len(messages):
            complete.set()

    mqtt = client(port)
    mqtt.on_message = count
    mqtt.subscribe("fleet/+/health", qos=1)
    time.sleep(0.5)
    started, busy = time.perf_counter(), sum(watch.cpu_times()[:2])
    for topic, payload in messages:
        mqtt.publish(topic, payload, qos=1)
    if not complete.wait(300):
        raise RuntimeError(f"only {healths} of {len(messages)} healths came")
    in_s, busy_in_s = time.perf_counter() - started, sum(watch.cpu_times()[:2]) - busy
    mqtt.loop_stop()
    return {"rows_per_s": len(messages) / in_s, "rows_per_processor_s": len(messages) / busy_in_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--neurons", type=int, default=64)
    options = parser.parse_args()
    fleet = synthetic_engines(sites=1, units_per_site=4, seed=0)[0]
    bundle = bundle_of(fleet, options.neurons)
    messages: list[tuple[str, bytes]] = []
    for rows in zip(*bodies_of(fleet, bundle.recipe, UNITS, options.rows // UNITS), strict=True):
        messages += [(f"fleet/{row.pop('unit')}/sensors", json.dumps(row).encode()) for row in map(json.loads, rows)]
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        (folder / "mosquitto.conf").write_text(BROKER.format(port=port))
        program = shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin") or "mosquitto"
        broker = subprocess.Popen([program, "-c", str(folder / "mosquitto.conf")], stderr=subprocess.DEVNULL)
        command = [sys.executable, "-m", "fedprognos", "watch", str(bundle.save(folder / "bundle"))]
        command += ["--mqtt", f"127.0.0.1:{port}", "--state", str(folder / "state")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (folder / "log").open("wb") as log:
            watch = subprocess.Popen(command, stderr=log, env=environment)
        os.sched_setaffinity(watch.pid, cores[:1])
        try:
            while b"connected to" not in (folder / "log").read_bytes():
                if watch.poll() is not None:
                    raise RuntimeError((folder / "log").read_text())
                time.sleep(0.1)
            process = psutil.Process(watch.pid)
            measure(port, process, messages[: 5 * UNITS])
            result = measure(port, process, messages[5 * UNITS :])
        finally:
            for child in (watch, broker):
                child.terminate()
                child.wait(20)
    print(f"{result['rows_per_s']:.0f} rows/s, {result['rows_per_processor_s']:.0f} a processor second (wanted: 2000)")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    setup = {"rows": len(messages), "units": UNITS, "neurons": options.neurons, "window": 30}
    OUT.write_text(json.dumps({"setup": setup, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
