"""What reading a large table costs: CSV and Parquet, one pass over all numbers, the whole fleet, and `init`'s proposal.

The table is generated: machines that wear out, with sensors of six digits. Run from the root of the repository:

    python benchmarks/tables.py [--rows 1000000] [--columns 20] [--quick]

Seconds are processor time, which other programs on the machine change little. Prints a table and writes
build/benchmarks/tables.json.
"""

from __future__ import annotations

import argparse
import json
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

OUTPUT = Path("build/benchmarks/tables.json")
LIFE = 200
"""Rows of a machine."""


def write_tables(folder: Path, rows: int, columns: int) -> list[Path]:
    """The same table as CSV and as Parquet: machine, cycle, site, and sensors up to so many columns."""
    sensors = [
        f"round(100 + {k} + sqrt(i % {LIFE}) + (hash(i * 31 + {k}) % 1000000) / 1e6, 6) AS s{k}"
        for k in range(columns - 3)
    ]
    machine = f"'m' || (i // {LIFE}) AS machine, i % {LIFE} + 1 AS cycle, 'site' || (i // {LIFE}) % 5 AS plant"
    sql = f"SELECT {machine}, {', '.join(sensors)} FROM range({rows}) AS numbers(i)"  # noqa: S608 - numbers only
    paths = [folder / "fleet.csv", folder / "fleet.parquet"]
    duckdb.execute(f"COPY ({sql}) TO '{paths[0]}' (FORMAT csv, HEADER)")
    duckdb.execute(f"COPY ({sql}) TO '{paths[1]}' (FORMAT parquet)")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="50,000 rows")
    options = parser.parse_args()
    rows = 50_000 if options.quick else options.rows
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
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n")
    Console().print(shown)


if __name__ == "__main__":
    main()
