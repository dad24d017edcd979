"""`fedprognos init FILE`: a first experiment file for one's own data."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedprognos.cli.data import plain_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprognos.fleet.columns import Columns
    from fedprognos.fleet.guess import Guess

_NONE = "-"
SHOWN = 20
_TASK = "What is to be predicted: soh (the health of each cycle) or rul (the remaining life)?"
_QUESTIONS = {
    "unit": "Which column names the machine?",
    "time": "Which column is the time?",
    "time_measure": "What is the time measured in?",
    "site": "Which column says who owns the machine?",
    "failed": "Which column says that a machine failed?",
}


def init(
    file: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet file with one row a measurement, or a folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="Experiment file to write; default: FILE.toml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an experiment file that is there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take the guesses.")] = False,
) -> None:
    """Guess which column of a table is what, and write a commented experiment file.

    In a terminal it asks about the columns that matter; Enter takes the guess.

    Example: fedprognos init pumps.csv
    """
    from fedprognos.fleet.experiment_file import default_path, write_experiment
    from fedprognos.fleet.inspect import inspect_table

    guess = inspect_table(file)
    console = plain_console()
    console.print(_summary(guess))
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        guess = _asked(file, guess)
        console.print(_summary(guess))
    target = write_experiment(guess, out or default_path(file), force)
    console.print(
        f"wrote {target}; check the guesses in it, then: fedprognos run {target}", markup=False, soft_wrap=True
    )


def _asked(file: Path, guess: Guess) -> Guess:
    """The guess after a person's answers; a changed answer makes a new one, so that the other roles follow."""
    from fedprognos.fleet.inspect import inspect_table
    from fedprognos.fleet.table_files import read_file, table_paths

    names = [str(c) for c in read_file(table_paths(file)[0]).frame.columns]
    given: dict[str, str | None] = {}
    if guess.columns.task == "soh" and typer.prompt(_TASK, default="soh").strip() == "rul":
        given["task"] = "rul"
        guess = inspect_table(file, given)
    for role, question in _QUESTIONS.items():
        shown = getattr(guess.columns, role)
        answer = _answer(f"{question} ({_NONE} for none)" if role != "time" else question, shown, role, names)
        if answer != shown:
            given[role] = answer
            guess = inspect_table(file, given)
    return guess


def _answer(question: str, shown: str | None, role: str, names: list[str]) -> str | None:
    while True:
        answer = str(typer.prompt(question, default=shown or _NONE)).strip()
        if answer == _NONE and role != "time":
            return None
        if role == "time_measure" or answer in names:
            return answer
        close = difflib.get_close_matches(answer, names, n=1, cutoff=0.5)
        typer.echo(f"There is no column '{answer}'" + (f"; did you mean '{close[0]}'?" if close else "."))
        typer.echo(f"Columns: {', '.join(names)}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _time(columns: Columns) -> str:
    joined = f" with {columns.clock}" if columns.clock else ""
    measure = f", in {columns.time_measure}" if columns.time_measure else ", in steps"
    return f"{columns.time}{joined}{measure}" + ("; rows are sorted by it" if columns.sort else "")


def _whole(guess: Guess) -> str:
    """What a unit is where no column names it."""
    return "each sheet" if guess.known.sheet else "each file" if guess.units > 1 else "the whole file"


def _place(guess: Guess) -> str:
    """What names the owner where no column does."""
    if guess.separator:
        return f"the beginning of {guess.columns.unit or 'the name'}, up to '{guess.separator}'"
    return "each folder" if guess.columns.unit is None else "each sheet" if guess.known.sheet else "each file"


def _summary(guess: Guess) -> Table:
    columns = guess.columns
    table = Table("role", "guess", box=None, pad_edge=False)
    again = {"time": f"a new one where {columns.time} goes back", "failed": "a new one after a row that says failed"}
    lives = columns.life or (columns.new_life and again[columns.new_life])
    rows = {
        "file": guess.note,
        "task": columns.task,
        "unit": f"{columns.unit or _whole(guess)} ({guess.units} units, {guess.rows} rows)",
        "lives of a unit": lives,
        "time": _time(columns),
        "cycle": columns.cycle,
        "owner (site)": guess.sites and f"{columns.site or _place(guess)} ({_listed(guess.sites)})",
        "target": columns.target,
        "failed": columns.failed,
        "operating settings": ", ".join(columns.settings),
        "sensors": _listed(columns.sensors or ()),
        "blanks, filled": "; ".join(f"{column}: {gap}" for column, gap in guess.gaps.items()),
        "count as blank": ", ".join(guess.known.blanks),
        "constant, left out": _listed(guess.constant),
        "number the rows, left out": _listed(guess.counters),
        "not numbers, left out": _listed(guess.text),
        "mostly blank, left out": "; ".join(f"{column}: {gap}" for column, gap in guess.sparse.items()),
    }
    for role, value in rows.items():
        if value:
            table.add_row(role, escape(value))
    return table
