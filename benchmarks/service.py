"""The service beside a bare FastAPI echo: rows a second and latency, one row and 100 rows a request, SQLite on;
and with a second model that runs along.

Both run as processes of their own on one core; a load generator on the other keeps a fixed number of connections busy.
Beside other programs the time on the clock says little, so ratios are of rows a processor second of the server.
Writes build/benchmarks/service.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from fedprognos.features import recipe_for
from fedprognos.features.recipe_options import RecipeOptions
from fedprognos.fleet import Fleet
from fedprognos.fleet.synthetic import synthetic_engines
from fedprognos.networks import Bundle, Network, NetworkSpec

ECHO = """
import sys
import uvicorn
from fastapi import FastAPI

app = FastAPI()

@app.post("/v1/rows")
async def echo(row: dict) -> dict:
    return row

@app.get("/readyz")
async def ready() -> dict:
    return {}

uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
"""
OUT = Path("build/benchmarks/service.json")
ROWS_A_POST = 100


def bundle_of(fleet: Fleet, neurons: int, seed: int = 0, *, life: bool = False) -> Bundle:
    history = {"history": "life"} if life else {"window": 30, "short": "pad"}
    section = RecipeOptions.model_validate({**history, "cap": 125})
    recipe = recipe_for(section, {"only": fleet})
    spec = NetworkSpec(inputs=recipe.channels, widths=(neurons,))
    return Bundle(recipe, Network.seeded(spec, seed, bias=0.5))


def bodies_of(fleet: Fleet, recipe: Any, units: int, rows: int) -> list[list[bytes]]:
    """Requests of each unit, in its order."""
    sensors, _ = recipe.check(fleet.schema, "benchmark")
    source = fleet.units[0]
    made = []
    for unit in range(units):
        own = []
        for k in range(rows):
            values = source.sensors[k % source.rows, sensors].tolist()
            row = {
                "unit": f"engine-{unit}",
                "position": k + 1,
                "sensors": dict(zip(recipe.sensors, values, strict=True)),
            }
            own.append(json.dumps(row).encode())
        made.append(own)
    return made


def posts_of(bodies: list[list[bytes]]) -> list[list[bytes]]:
    """The same rows, many in one request."""
    return [
        [b"[" + b",".join(rows[k : k + ROWS_A_POST]) + b"]" for k in range(0, len(rows), ROWS_A_POST)]
        for rows in bodies
    ]


async def one_client(port: int, bodies: list[bytes], until: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/rows HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for body in bodies:
        started = time.perf_counter()
        if started > until:
            break
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if b" 200 " not in answer[:20]:
            raise RuntimeError(answer.decode())
        latencies.append(time.perf_counter() - started)
    writer.close()


async def load(port: int, bodies: list[list[bytes]], seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    started = time.perf_counter()
    await asyncio.gather(*(one_client(port, own, started + seconds, latencies) for own in bodies))
    spent = time.perf_counter() - started
    p50, p99 = np.percentile(latencies, [50, 99])
    return {
        "posts": len(latencies),
        "posts_per_s": len(latencies) / spent,
        "p50_in_ms": 1000 * p50,
        "p99_in_ms": 1000 * p99,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(command: list[str], port: int, bodies: list[list[bytes]], seconds: float, core: int) -> dict[str, float]:
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(child.pid, {core})
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                time.sleep(0.1)
        warm = [own[:5] for own in bodies]
        asyncio.run(load(port, warm, 10.0))
        process = psutil.Process(child.pid)
        busy = sum(process.cpu_times()[:2])
        result = asyncio.run(load(port, [own[5:] for own in bodies], seconds))
        busy = sum(process.cpu_times()[:2]) - busy
        return {**result, "posts_per_processor_s": result["posts"] / busy}
    finally:
        child.terminate()
        child.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--neurons", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--life", action="store_true", help="a model of whole lives instead of windows of 30 rows")
    options = parser.parse_args()
    fleet = synthetic_engines(sites=1, units_per_site=4, seed=0)[0]
    bundle = bundle_of(fleet, options.neurons, life=options.life)
    bodies = bodies_of(fleet, bundle.recipe, options.clients, 2000)
    os.environ["OMP_NUM_THREADS"] = "1"
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    results: dict[str, list[dict[str, float]]] = {"echo": [], "service": [], "100 rows": [], "shadow": []}
    with tempfile.TemporaryDirectory() as folder:
        path = bundle.save(Path(folder) / "bundle")
        second = bundle_of(fleet, options.neurons, seed=1, life=options.life).save(Path(folder) / "second")
        for k in range(options.repeats):
            port = free_port()
            results["echo"].append(
                measure([sys.executable, "-c", ECHO, str(port)], port, bodies, options.seconds, cores[0])
            )
            for name, requests in (("service", bodies), ("shadow", bodies), ("100 rows", posts_of(bodies))):
                port = free_port()
                command = [sys.executable, "-m", "fedprognos", "serve", str(path), "--port", str(port), "--rate", "0"]
                command += ["--state", str(Path(folder) / f"state-{name}-{k}")]
                command += ["--shadow", str(second)] if name == "shadow" else []
                results[name].append(measure(command, port, requests, options.seconds, cores[0]))
    best = {name: max(runs, key=lambda run: run["posts_per_processor_s"]) for name, runs in results.items()}
    for name, run in best.items():
        rows = ROWS_A_POST if name == "100 rows" else 1
        run |= {f"rows_per_{per}": run[f"posts_per_{per}"] * rows for per in ("s", "processor_s")}
        print(
            f"{name:8} {run['rows_per_s']:7.0f} rows/s {run['rows_per_processor_s']:7.0f} a processor second   "
            f"p50 {run['p50_in_ms']:6.1f} ms   p99 {run['p99_in_ms']:6.1f} ms"
        )

    def ratio_of(name: str, other: str, per: str = "processor_s") -> float:
        return best[name][f"rows_per_{per}"] / best[other][f"rows_per_{per}"]

    ratios = {
        "service / echo": ratio_of("service", "echo"),
        "service / echo by the clock": ratio_of("service", "echo", "s"),
        "100 rows a post / one": ratio_of("100 rows", "service"),
        "with a second model / without": ratio_of("shadow", "service"),
    }
    for name, ratio in ratios.items():
        print(f"{name} {ratio:.2f}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    setup = {
        "clients": options.clients,
        "neurons": options.neurons,
        "history": "life" if options.life else 30,
        "sensors": len(bundle.recipe.sensors),
    }
    OUT.write_text(
        json.dumps(
            {"setup": setup, "best": best, "runs": results, "ratios": ratios},
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
