"""`fedprognos init FILE.csv`: a first experiment file for one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedprognos.cli.data import plain_console
from fedprognos.fleet.experiment_file import default_path, write_experiment
from fedprognos.fleet.inspect import Guess, inspect_table


def init(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file with one row a measurement.")],
    out: Annotated[Path | None, typer.Option("--out", help="Experiment file to write; default: FILE.toml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an experiment file that is there.")] = False,
) -> None:
    """Look at a table, guess which column is what and write a commented experiment file."""
    guess = inspect_table(file)
    target = write_experiment(guess, out or default_path(file), force)
    console = plain_console()
    console.print(_summary(guess))
    console.print(
        f"wrote {target}; check the guesses in it, then: fedprognos run {target}", markup=False, soft_wrap=True
    )


def _summary(guess: Guess) -> Table:
    columns = guess.columns
    table = Table("role", "guess", box=None, pad_edge=False)
    rows = {
        "task": columns.task,
        "unit": f"{columns.unit or 'the whole file'} ({guess.units} units, {guess.rows} rows)",
        "time": columns.time,
        "cycle": columns.cycle,
        "site": columns.site and f"{columns.site} ({', '.join(guess.sites)})",
        "target": columns.target,
        "failed": columns.failed,
        "settings": ", ".join(columns.settings),
        "sensors": ", ".join(columns.sensors or ()),
        "constant, left out": ", ".join(guess.constant),
        "not numbers, left out": ", ".join(guess.text),
        "incomplete, left out": "; ".join(f"{column}: {gap}" for column, gap in guess.gaps.items()),
    }
    for role, value in rows.items():
        if value:
            table.add_row(role, escape(value))
    return table
