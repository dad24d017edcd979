"""A table that is larger than the memory its reader may use."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from fedprognos.features import RecipeOptions, build_windows, recipe_for
from fedprognos.fleet import fleet_digest, load_fleet, save_fleet
from fedprognos.fleet.from_tables import read_table
from fedprognos.tables.columns import Columns

COLUMNS = Columns(unit="machine", time="cycle", site="plant")
WATCHED = """
import re, sys, threading, time
from pathlib import Path
from fedprognos.fleet.from_tables import read_table
from fedprognos.tables.columns import Columns

def in_bytes():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def watch():
    while True:
        peaks.append(max(peaks.pop(), in_bytes()))
        time.sleep(0.005)

before = in_bytes()
peaks = [before]
threading.Thread(target=watch, daemon=True).start()
fleet = read_table(sys.argv[1], Columns(unit="machine", time="cycle", site="plant"))
print(len(fleet), fleet.rows, max([*peaks, before]) - before)
"""


def write_table(path: Path, machines: int, sensors: int) -> None:
    """Machines of 200 rows each, of five owners."""
    values = ", ".join(f"(i * {k + 3}) % 1009 + i % 200 AS s{k}" for k in range(sensors))
    machine = "'m' || (i // 200) AS machine, i % 200 + 1 AS cycle, 'site' || (i // 200) % 5 AS plant"
    sql = f"SELECT {machine}, {values} FROM range({machines * 200}) AS numbers(i)"  # noqa: S608 - numbers only
    duckdb.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")


def test_a_fleet_in_a_file_has_the_bits_of_one_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "fleet.parquet", machines=120, sensors=3)
    here = read_table(tmp_path / "fleet.parquet", COLUMNS)
    monkeypatch.setattr("fedprognos.arrays.MOST_IN_MEMORY", 100_000)
    filed = read_table(tmp_path / "fleet.parquet", COLUMNS)
    assert filed.ids == here.ids
    for a, b in zip(filed, here, strict=True):
        np.testing.assert_array_equal(a.sensors, b.sensors)
        assert a.sensors.flags.writeable


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_two_million_rows_are_read_in_less_memory_than_their_numbers_take_twice(tmp_path: Path) -> None:
    write_table(tmp_path / "fleet.parquet", machines=10_000, sensors=40)
    command = [sys.executable, "-c", WATCHED, str(tmp_path / "fleet.parquet")]
    read = subprocess.run(command, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr[-2000:]
    units, rows, peak = map(int, read.stdout.split())
    assert (units, rows) == (10_000, 2_000_000)
    assert peak < 2 * rows * 40 * 8


def test_rows_in_the_order_of_time_are_a_fleet_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "fleet.parquet", machines=30, sensors=3)
    by_time = f"SELECT * FROM '{tmp_path / 'fleet.parquet'}' ORDER BY cycle, machine"  # noqa: S608 - a path of the test
    duckdb.execute(f"COPY ({by_time}) TO '{tmp_path / 'by_time.parquet'}' (FORMAT parquet)")
    here = read_table(tmp_path / "fleet.parquet", COLUMNS)
    for most in (64_000_000, 10_000):
        monkeypatch.setattr("fedprognos.arrays.MOST_IN_MEMORY", most)
        fleet = read_table(tmp_path / "by_time.parquet", COLUMNS)
        assert sorted(fleet.ids) == sorted(here.ids)
        for unit in fleet:
            np.testing.assert_array_equal(unit.sensors, here[unit.id].sensors)
            np.testing.assert_array_equal(unit.time, here[unit.id].time)


def test_windows_in_a_file_have_the_bits_of_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "fleet.parquet", machines=12, sensors=3)
    fleet = read_table(tmp_path / "fleet.parquet", COLUMNS)
    recipe = recipe_for(RecipeOptions(history=20), {"all": fleet})
    here = build_windows(recipe, fleet)
    monkeypatch.setattr("fedprognos.arrays.MOST_IN_MEMORY", 1_000)
    filed = build_windows(recipe, fleet)
    for name in ("features", "starts", "labels", "unit", "position"):
        np.testing.assert_array_equal(getattr(filed, name), getattr(here, name))


def test_a_saved_fleet_comes_back_bit_for_bit(tmp_path: Path) -> None:
    write_table(tmp_path / "fleet.parquet", machines=12, sensors=3)
    fleet = read_table(tmp_path / "fleet.parquet", COLUMNS)
    units = [replace(unit, target=np.arange(unit.rows)[::-1] * 1.0) if k % 2 else unit for k, unit in enumerate(fleet)]
    fleet = fleet.select(units)
    save_fleet(tmp_path / "saved", fleet)
    loaded = load_fleet(tmp_path / "saved")
    assert (fleet_digest(loaded), loaded.schema, loaded.notes) == (fleet_digest(fleet), fleet.schema, fleet.notes)
    loaded[fleet.ids[0]].sensors[:] = 0  # what somebody writes stays in that process
    assert fleet_digest(load_fleet(tmp_path / "saved")) == fleet_digest(fleet)
