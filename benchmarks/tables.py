"""What reading a large table costs: CSV and Parquet, one pass over all numbers, the whole fleet, and `init`'s proposal.

The table is generated: machines that wear out, with sensors of six digits. Run from the root of the repository:

    python benchmarks/tables.py [--rows 1000000] [--columns 20] [--quick]
    python benchmarks/tables.py --commands [init run predict lives] [--rows 10000000] [--owners 5] [--csv]

With `--commands` it takes a Parquet file through `init`, `run` (a reservoir with exact heads, no training), `predict`
and `lives` (a run that trains networks on whole lives for 300 steps), each a process of its own, and shows the most
memory that each held. Rows that are mapped from files are not in it: the system lets them go where memory is short.

Seconds are processor time, which other programs on the machine change little. Prints a table and writes
build/benchmarks/tables.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from rich.console import Console
from rich.table import Table

from fedprognos.fleet.from_tables import read_table
from fedprognos.tables import open_tables, propose
from fedprognos.tables.columns import Columns

OUTPUT = Path("build/benchmarks")
LIFE = 200
"""Rows of a machine."""


def write_tables(
    folder: Path, rows: int, columns: int, suffixes: tuple[str, ...] = (".csv", ".parquet"), owners: int = 5
) -> list[Path]:
    """The same table in several formats: machine, cycle, site, and sensors up to so many columns."""
    wear, noise = f"pow((i % {LIFE}) / {LIFE}, {{power}})", "(hash(i * 31 + {k}) % 1000000) / 1e6"
    sensors = [
        f"round(100 + {k} + 3 * {wear.format(power=1 + k % 3)} + {noise.format(k=k)}, 6) AS s{k}"
        for k in range(columns - 3)
    ]
    machine = f"'m' || (i // {LIFE}) AS machine, i % {LIFE} + 1 AS cycle, 'site' || (i // {LIFE}) % {owners} AS plant"
    sql = f"SELECT {machine}, {', '.join(sensors)} FROM range({rows}) AS numbers(i)"  # noqa: S608 - numbers only
    paths = [folder / f"fleet{suffix}" for suffix in suffixes]
    for path in paths:
        form = "csv, HEADER" if path.suffix == ".csv" else "parquet"
        duckdb.execute(f"COPY ({sql}) TO '{path}' (FORMAT {form})")
    return paths


def scan(path: Path) -> None:
    """One pass over all sensors as numbers."""
    table = open_tables(path)[0]
    sensors = {name: table.number(name) for name in table.names if name.startswith("s")}
    for _ in table.pieces(sensors):
        pass


def fleet(path: Path) -> None:
    read_table(path, Columns(unit="machine", time="cycle", site="plant"))


def seconds(step: Callable[[Path], object], path: Path) -> float:
    began = time.process_time()
    step(path)
    return round(time.process_time() - began, 2)


def commands(folder: Path, table: Path) -> dict[str, list[str]]:
    """`init`, `run` and `predict` for a table."""
    program = [sys.executable, "-m", "fedprognos"]
    changes = ["search=0", 'federation.heads=["exact"]', "evaluation.intervals=none", "evaluation.refit=false"]
    changes += ['evaluation.baselines=["constant","age","ridge"]']
    experiment, run = str(folder / "fleet.toml"), str(folder / "run")

    def run_with(out: str, *more: str) -> list[str]:
        changed = [part for change in (*changes, *more) for part in ("--set", change)]
        return [*program, "run", experiment, "--out", out, "--workers", "1", "--quiet", *changed]

    return {
        "init": [*program, "init", str(table), "--out", experiment, "--yes"],
        "run": run_with(run, 'federation.methods=["reservoir"]'),
        "predict": [*program, "predict", f"{run}/bundle", str(table), "--out", str(folder / "health.csv")],
        "lives": run_with(
            f"{run}-lives", 'federation.methods=["fedavg"]', "federation.fedavg.rounds=1", "train.steps=300"
        ),
    }


def measured(command: list[str]) -> tuple[float, float]:
    """Processor seconds of a command, and the most memory of its own that it held, in MB."""
    before, most = os.times(), 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status")
        held = re.search(r"RssAnon:\s+(\d+)", status.read_text()) if status.exists() else None
        most = max(most, int(held[1]) / 1024 if held else 0.0)
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {' '.join(command)}")
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return round(used, 1), round(most)


def measure_commands(rows: int, columns: int, owners: int, suffix: str, chosen: list[str]) -> list[dict[str, object]]:
    shown = Table(title=f"{rows:,} rows, {columns} columns, {owners} owners, {suffix}: commands as processes")
    for heading in ("command", "processor time in s", "memory in MB"):
        shown.add_column(heading, justify="left" if heading == "command" else "right")
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        table = write_tables(Path(folder), rows, columns, (suffix,), owners)[0]
        for name, command in commands(Path(folder), table).items():
            if chosen and name not in chosen:
                continue
            seconds_used, memory_in_mb = measured(command)
            results.append({"command": name, "rows": rows, "seconds": seconds_used, "memory_in_mb": memory_in_mb})
            shown.add_row(name, f"{seconds_used:.1f}", f"{memory_in_mb:.0f}")
            print(f"{name}: {seconds_used:.1f} s, {memory_in_mb:.0f} MB", flush=True)
    Console().print(shown)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="50,000 rows")
    parser.add_argument("--commands", nargs="*", help="init, run, predict and lives, or some of them: time and memory")
    parser.add_argument("--owners", type=int, default=5, help="of the machines, for --commands")
    parser.add_argument("--csv", action="store_true", help="a CSV file for --commands")
    options = parser.parse_args()
    rows = 50_000 if options.quick else options.rows
    if options.commands is not None:
        suffix = ".csv" if options.csv else ".parquet"
        results_by_command = measure_commands(rows, options.columns, options.owners, suffix, options.commands)
        return save(results_by_command, "tables-commands.json")
    steps: dict[str, Callable[[Path], object]] = {"all numbers": scan, "fleet": fleet, "proposal": propose}
    shown = Table(title=f"{rows:,} rows, {options.columns} columns: seconds of processor time")
    for heading in ("file", "size in MB", *steps):
        shown.add_column(heading, justify="left" if heading == "file" else "right")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for path in write_tables(Path(folder), rows, options.columns):
            size_in_mb = round(path.stat().st_size / 1e6, 1)
            times = {name: seconds(step, path) for name, step in steps.items()}
            results.append({"file": path.suffix, "rows": rows, "columns": options.columns, "size_in_mb": size_in_mb})
            results[-1]["seconds"] = times
            shown.add_row(path.suffix, str(size_in_mb), *(f"{value:.2f}" for value in times.values()))
    Console().print(shown)
    return save(results, "tables.json")


def save(results: object, name: str) -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / name).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
