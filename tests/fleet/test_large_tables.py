"""A table that is larger than the memory its reader may use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

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
    monkeypatch.setattr("fedprognos.fleet.from_tables.MOST_IN_MEMORY", 100_000)
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
