"""NASA's held-out engines and battery cycles, row by row over HTTP and MQTT: the numbers of the offline table."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pytest
from brokers import broker, payload, publisher, until, watching
from services import Json, free_port, process, rows_of, running, small_bundle

from fedprognos import load_fleets
from fedprognos.fleet import Fleet, Unit
from fedprognos.prognosis import Predictor
from fedprognos.service import DurableStream

Points = dict[tuple[str, float], float]
ENGINES = {"turbofan-fd001": 3, "turbofan": 3}
"""Test engines of each preset; of the batteries, the last cycles of each."""
CYCLES = 3


@cache
def held_out(preset: str) -> Fleet:
    """Units, or last cycles of units, that training never saw."""
    test = load_fleets(preset)[1]
    if preset == "battery":
        return test.select([_last_cycles(unit) for unit in test])
    return test.select(sorted(test, key=lambda unit: abs(unit.rows - 90))[: ENGINES[preset]])


def _last_cycles(unit: Unit) -> Unit:
    assert unit.cycles is not None and unit.cycle_numbers is not None
    start = unit.cycles[-1 - CYCLES]
    return replace(
        unit,
        time=unit.time[start:],
        sensors=unit.sensors[start:],
        settings=unit.settings[start:],
        cycles=unit.cycles[-1 - CYCLES :] - start,
        cycle_numbers=unit.cycle_numbers[-CYCLES:],
        target=None if unit.target is None else unit.target[-CYCLES:],
    )


def sent(unit: Unit, fleet: Fleet, predictor: Predictor) -> list[Json]:
    """Rows with what the model uses, the last of each cycle marked as such."""
    rows = rows_of(unit, fleet)
    for k, row in enumerate(rows):
        row["sensors"] = {name: row["sensors"][name] for name in predictor.sensors}
        if predictor.settings:
            row["settings"] = {name: row["settings"][name] for name in predictor.settings}
        else:
            row.pop("settings", None)
        if "cycle" in row:
            row["end"] = k + 1 == len(rows) or rows[k + 1]["cycle"] != row["cycle"]
    return rows


def points_of(healths: Iterable[tuple[str, float, float | None]]) -> Points:
    return {(unit, float(position)): float(value) for unit, position, value in healths if value is not None}


def assert_same(found: Points, expected: Points, scale: float) -> None:
    assert found.keys() == expected.keys() and expected
    worst = max(abs(found[key] - value) for key, value in expected.items())
    assert worst <= 1e-6 * scale, f"{worst / scale:.2g} of the labels' spread"


@pytest.mark.long
@pytest.mark.parametrize(
    ("preset", "options"),
    [
        pytest.param("battery", {"cycle": "grid", "grid_points": 171}, marks=pytest.mark.needs_data("nasa-battery")),
        pytest.param(
            "turbofan-fd001",
            {"window": 30, "short": "pad", "sensors": ["sensor_2", "sensor_4", "sensor_11", "sensor_15"]},
            marks=pytest.mark.needs_data("cmapss"),
        ),
    ],
)
def test_real_rows_one_by_one_over_http_give_the_offline_numbers(preset: str, options: dict[str, Any]) -> None:
    fleet = held_out(preset)
    fleet = fleet.select([fleet.units[-1]])
    bundle = small_bundle(fleet, conditions={}, **options)
    if bundle.recipe.cycle:  # so long that every cycle ends before it, as with a tester that stops early
        bundle = replace(bundle, recipe=bundle.recipe.model_copy(update={"grid_end_in_s": 3600.0}))
    predictor = Predictor.from_bundle(bundle)
    at = bundle.windows(fleet, stride=1).position.tolist()
    unit = fleet.units[0].id
    values = bundle.predict(fleet, last=False)[unit].tolist()
    expected = points_of((unit, position, value) for position, value in zip(at, values, strict=True))
    found: Points = {}
    with running(bundle) as client:
        for row in sent(fleet.units[0], fleet, predictor):
            result = client.post("/v1/rows", json=row).json()["results"][0]
            assert result["result"] == "accepted"
            health = result["health"]
            if health is not None and "padded" not in health["flags"]:
                found |= points_of([(row["unit"], health["position"], health["value"])])
    assert_same(found, expected, bundle.recipe.label_std)


@pytest.mark.long
@pytest.mark.parametrize(
    "preset",
    [
        pytest.param("battery", marks=pytest.mark.needs_data("nasa-battery")),
        pytest.param("turbofan-fd001", marks=pytest.mark.needs_data("cmapss")),
        pytest.param("turbofan", marks=pytest.mark.needs_data("cmapss")),
    ],
)
def test_a_trained_model_gives_the_same_numbers_in_the_run_from_files_over_http_and_over_mqtt(
    preset: str, tmp_path: Path
) -> None:
    run = trained(preset, tmp_path)
    bundle = run / "bundle"
    predictor = Predictor.load(bundle)
    scale = predictor.recipe.label_std
    fleet = held_out(preset)
    rows = [row for unit in fleet for row in sent(unit, fleet, predictor)]
    from_files = predicted(bundle, rows, tmp_path)
    evaluated = in_the_run(run, bundle, fleet)
    assert_same({key: from_files[key] for key in evaluated}, evaluated, scale)

    with process(bundle, tmp_path / "http") as (address, _), httpx.Client(base_url=address) as client:
        for row in rows:
            assert client.post("/v1/rows", json=row).json()["accepted"] == 1
    assert_same(kept(predictor, tmp_path / "http"), from_files, scale)

    port = free_port()
    with broker(port, tmp_path):
        asyncio.run(publish(rows, bundle, port, tmp_path))
    assert_same(kept(predictor, tmp_path / "mqtt"), from_files, scale)


def trained(preset: str, folder: Path) -> Path:
    """A run of the preset with little training."""
    changes = {
        "federation.methods": '["fedavg"]',
        "federation.fedavg.rounds": "1",
        "federation.fedavg.epochs": "2",
        "federation.heads": '["mean"]',
        "model.widths": "[16]",
    }
    command = ["run", preset, "--seeds", "1", "--workers", "1", "--quiet", "--out", str(folder / "run")]
    fedprognos(*command, *(part for key, value in changes.items() for part in ("--set", f"{key}={value}")))
    return folder / "run"


def fedprognos(*arguments: str) -> None:
    command = [sys.executable, "-m", "fedprognos", *arguments]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


def predicted(bundle: Path, rows: list[Json], folder: Path) -> Points:
    """What `fedprognos predict` makes of the same rows in a file."""
    first = rows[0]
    cycle = ["cycle"] if "cycle" in first else []
    names = [*first["sensors"], *first.get("settings", {})]
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["unit", "time", *cycle, *names])
        for row in rows:
            own = [row["unit"], repr(row["position"]), *(str(row[c]) for c in cycle)]
            writer.writerow([*own, *map(repr, [*row["sensors"].values(), *row.get("settings", {}).values()])])
    told = ["--unit", "unit", "--time", "time", *(("--cycle", "cycle") if cycle else ())]
    fedprognos("predict", str(bundle), str(folder / "rows.csv"), "--all", "--out", str(folder / "health.csv"), *told)
    with (folder / "health.csv").open() as file:
        read = list(csv.DictReader(file))
    return points_of((r["unit"], float(r["position"]), float(r["value"])) for r in read if r["value"])


def in_the_run(run: Path, bundle: Path, fleet: Fleet) -> Points:
    """The run's own table, for the model that it published and the units chosen."""
    own = (bundle / "weights.safetensors").read_bytes()
    (source,) = [p for p in (run / "bundles").glob("*/fedavg/seed0") if (p / "weights.safetensors").read_bytes() == own]
    table = run / "predictions" / f"{source.parts[-3]}~fedavg~seed0.csv"
    chosen = {(unit.id, float(position)) for unit in fleet for position in unit.positions}
    with table.open() as file:
        found = points_of((r["unit"], float(r["position"]), float(r["prediction"])) for r in csv.DictReader(file))
    return {key: value for key, value in found.items() if key in chosen}


def kept(predictor: Predictor, state: Path) -> Points:
    """Every health that a service or watcher told, from its state folder."""
    stream = DurableStream(predictor, state)
    found = points_of((h.unit, h.position, h.value) for n in stream.names().values() for h in stream.history(n)[0])
    stream.store.close()
    return found


async def publish(rows: list[Json], bundle: Path, port: int, folder: Path) -> None:
    """Send all rows to a real `fedprognos watch` and wait until the last is stored."""
    told: list[str] = []
    last = {row["unit"]: float(row.get("cycle", row["position"])) for row in rows}
    client = await publisher(port)
    await client.subscribe("fleet/+/health", qos=1)

    async def listen() -> None:
        positions: dict[str, float] = {}
        async for message in client.messages:
            unit = str(message.topic).split("/")[1]
            positions[unit] = float(json.loads(bytes(message.payload))["position"])
            if positions == last:
                told.append("all")

    task = asyncio.create_task(listen())
    with watching(bundle, port, folder / "mqtt"):
        log = folder / f"watch-{port}.log"
        await until(lambda: "connected to" in log.read_text(), 60)
        sender = await publisher(port)
        for row in rows:
            await sender.publish(f"fleet/{row['unit']}/sensors", payload(row), qos=1)
        await until(lambda: bool(told), 60)
    task.cancel()
    for each in (client, sender):
        with suppress(aiomqtt.MqttError):
            await each.__aexit__(None, None, None)
