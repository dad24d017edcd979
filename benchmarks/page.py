"""A service with a large fleet: how long a restart takes, how soon the page shows it, and how soon it shows a new row.

A restart begins from the snapshot that a stop leaves; the start of an empty service is given beside it. The page is
opened in a headless Chromium; a row is new from the moment that it is posted. Other programs on the machine slow all of
it down, so the processor seconds of the service are given, too. Writes build/benchmarks/page.json.

    python benchmarks/page.py [--units 10000] [--rows 64]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from fedprognos.fleet.synthetic import synthetic_engines
from service import bundle_of, free_port

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "service"))
from browser import Browser

OUT = Path("build/benchmarks/page.json")
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
LISTED = "document.querySelectorAll('#rows tr').length === 200"
UPDATE = """
new Promise((done) => {
  const row = %s;
  const line = [...document.querySelectorAll('#rows tr')].find((tr) => tr.querySelector('a').textContent === row.unit);
  const position = line.querySelector('.minor');
  const posted = performance.now();
  const watch = new MutationObserver(() => {
    if (position.textContent !== String(row.position)) return;
    watch.disconnect();
    requestAnimationFrame(() => done(performance.now() - posted));
  });
  watch.observe(line, { subtree: true, childList: true, characterData: true });
  const headers = { 'content-type': 'application/json' };
  fetch('/v1/rows', { method: 'POST', headers, body: JSON.stringify(row) });
})
"""


def start(command: list[str], port: int) -> tuple[subprocess.Popen[bytes], dict[str, float]]:
    """A service, and the time until it takes rows."""
    started = time.perf_counter()
    child = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                break
        except httpx.TransportError:
            time.sleep(0.02)
    spent = {"s": time.perf_counter() - started, "processor_s": sum(psutil.Process(child.pid).cpu_times()[:2])}
    return child, spent


def stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    child.wait(120)


def measure_page(address: str, rows: list[dict[str, Any]], updates: int) -> dict[str, float]:
    """Milliseconds until the page shows something, the fleet, and a row that was posted (median)."""
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        browser.resize(1280, 900)
        browser.open(address)
        browser.wait(LISTED, 60)
        listed = browser.run("performance.now()")
        browser.wait("document.querySelector('.pill.live')")
        painted = browser.run(PAINTED)
        shown = []
        units = browser.run("[...document.querySelectorAll('#rows tr a')].map((a) => a.textContent)")[:updates]
        for unit in units:
            time.sleep(1)  # the page collects what changes within half a second
            latest = httpx.get(f"{address}/v1/units/{unit}").json()["position"]
            row = {**rows[0], "unit": unit, "position": int(latest) + 1}
            shown.append(browser.run(UPDATE % json.dumps(row)))
    return {"painted_in_ms": painted, "listed_in_ms": listed, "update_in_ms": statistics.median(shown)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=64, help="of each unit")
    parser.add_argument("--updates", type=int, default=9)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    fleet = synthetic_engines(sites=1, units_per_site=4, seed=0)[0]
    bundle = bundle_of(fleet, neurons=64)
    sensors, _ = bundle.recipe.check(fleet.schema, "benchmark")
    source = fleet.units[0].sensors[:, sensors]
    values = [dict(zip(bundle.recipe.sensors, row.tolist(), strict=True)) for row in source]
    rows = [{"position": k + 1, "sensors": values[k % len(values)]} for k in range(options.rows)]
    with tempfile.TemporaryDirectory() as folder:
        path, state, port = bundle.save(Path(folder) / "bundle"), Path(folder) / "state", free_port()
        command = [sys.executable, "-m", "fedprognos", "serve", str(path), "--rate", "0", "--state", str(state)]
        child, empty = start(command, port)
        address = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=address, timeout=600) as client:
            for row in rows:
                for first in range(0, options.units, 5000):
                    units = range(first, min(first + 5000, options.units))
                    posted = [{**row, "unit": f"engine {unit}"} for unit in units]
                    assert client.post("/v1/rows", json=posted).json()["accepted"] == len(posted)
        stop(child)
        child, restored = start(command, port)
        page = measure_page(address, rows, options.updates)
        stop(child)
    setup = {"units": options.units, "rows_of_each": options.rows, "neurons": 64, "window": 30}
    results = {"setup": setup, "empty": empty, "restored": restored, **page}
    for name, value in results.items():
        print(f"{name:16} {value}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
