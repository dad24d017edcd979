"""`fedprognos init FILE`: a first experiment file for one's own data."""

from __future__ import annotations

import difflib
import sys
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedprognos.cli.console import plain_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprognos.fleet import Fleet
    from fedprognos.tables import Columns, LoadedRows, Proposal

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
    unit: Annotated[str | None, typer.Option("--unit", help="Column of the machine; - if a file is one.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Column of the time.")] = None,
    site: Annotated[str | None, typer.Option("--site", help="Column of the owner; - for none.")] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Column of the remaining life, - for none; with --ahead what to predict."),
    ] = None,
    failed: Annotated[
        str | None, typer.Option("--failed", help="Column with 1 where a machine failed; - if all did.")
    ] = None,
    sensor: Annotated[list[str] | None, typer.Option("--sensor", help="A sensor's column; several times.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="rul (remaining life) or soh (health of cycles).")] = None,
    end_of_life: Annotated[
        str | None,
        typer.Option("--end-of-life", help="Share of the first health at which a life ends, 0.8; - for the last row."),
    ] = None,
    ahead: Annotated[
        float | None, typer.Option("--ahead", min=1e-9, help="Predict a column so far ahead: its value in 50 cycles.")
    ] = None,
) -> None:
    """Guess which column of a table is what, and write a commented experiment file.

    In a terminal it asks about the columns that matter; Enter takes the guess. The file is written if `fedprognos run`
    can read all rows with it.

    Example: fedprognos init pumps.csv --unit pump
    """
    from fedprognos.errors import ConfigError, DataError, unknown_name
    from fedprognos.experiment import deal_scenarios, load
    from fedprognos.fleet import fleet_from_tables, public_data_in
    from fedprognos.fleet.readers import Source
    from fedprognos.tables import TEST_FRACTION, default_path, experiment_toml, load_rows, write_experiment

    if (public := public_data_in(file)) == "cmapss":
        hint = f"a preset reads it as it is: fedprognos run turbofan-life --data-dir {file}"
        raise DataError(f"this folder holds the public data set '{public}', not tables", where=str(file), hint=hint)

    if task not in (None, "rul", "soh", "forecast"):
        raise unknown_name("task", task, ("rul", "soh", "forecast"))
    if (task == "forecast" and ahead is None) or (task in ("rul", "soh") and ahead is not None):
        raise ConfigError("task 'forecast' and --ahead go together", hint="say how far ahead, such as --ahead 50")
    options: dict[str, Any] = {
        "unit": unit,
        "time": time,
        "site": site,
        "target": target,
        "failed": failed,
        "sensors": sensor or None,
        "task": task,
        "ahead": ahead,
    }
    options["end_of_life"] = end_of_life if end_of_life in (None, _NONE) else _share(end_of_life)
    given = {role: None if value == _NONE else value for role, value in options.items() if value is not None}
    asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
    rows = load_rows(file)
    proposal = _first_proposal(file, rows, given, asks)
    console = plain_console()
    console.print(_summary(proposal))
    if asks:
        proposal = _asked(file, rows, proposal, given)
        console.print(_summary(proposal))
    tables = rows.as_tables(proposal.columns.text)
    fleet = fleet_from_tables(tables, proposal.columns, name=file.name)  # what `run` would refuse is refused now
    for note in fleet.notes:
        if note not in proposal.note:
            console.print(f"note: {note}", markup=False, soft_wrap=True)
    if rows.is_sample:
        proposal = _of_all(proposal, fleet)
        console.print(f"note: the run's reader has checked all {proposal.rows} rows of {_units(proposal.units)}")
    path = out or default_path(file)
    experiment = load(tomllib.loads(experiment_toml(proposal, path.parent)))[1]
    with warnings.catch_warnings(record=True, action="always") as remarks:
        deal_scenarios(experiment, Source(fleet, test_fraction=TEST_FRACTION))
    for remark in remarks:
        console.print(f"note: {remark.message}", markup=False, soft_wrap=True)
    write_experiment(proposal, path, force)
    console.print(f"wrote {path}; check the guesses in it, then: fedprognos run {path}", markup=False, soft_wrap=True)


def _first_proposal(file: Path, rows: LoadedRows, given: dict[str, Any], asks: bool) -> Proposal:
    """The proposal for a table; in a terminal a person is asked for machine and time where they are not found."""
    from fedprognos.errors import DataError
    from fedprognos.tables import NoTimeError, propose_columns

    try:
        return propose_columns(rows, file, given)
    except NoTimeError as error:
        if not asks:
            raise
        typer.echo(str(error))
    names = rows.tables[0].names
    while True:
        given |= {role: _answer(_QUESTIONS[role], given.get(role), role, names) for role in ("unit", "time")}
        try:
            return propose_columns(rows, file, given)
        except DataError as error:
            typer.echo(str(error))


def _of_all(proposal: Proposal, fleet: Fleet) -> Proposal:
    """A proposal that was made from some machines, with the counts and the owners of all."""
    sites = {unit.attributes.get("site") for unit in fleet} - {None}
    if proposal.separator is not None:
        sites = {unit.id.split(proposal.separator)[0] for unit in fleet}
    counts: dict[str, Any] = {"units": len(fleet), "rows": fleet.rows, "sites": tuple(sorted(map(str, sites)))}
    if proposal.worn is not None:
        counts["worn"] = sum(unit.failed for unit in fleet)
    return replace(proposal, **counts)


def _asked(file: Path, rows: LoadedRows, proposal: Proposal, given: dict[str, Any]) -> Proposal:
    """The proposal after a person's answers; a changed answer makes a new one, so that the other roles follow."""
    from fedprognos.tables import propose_columns

    names = rows.tables[0].names
    given = dict(given)
    if proposal.columns.task == "soh" and "task" not in given and typer.prompt(_TASK, default="soh").strip() == "rul":
        given["task"] = "rul"
        proposal = propose_columns(rows, file, given)
    if (health := proposal.columns.health) is not None and not {"end_of_life", "ahead"} & given.keys():
        given["end_of_life"] = _asked_end(health, proposal.columns.end_of_life)
        proposal = propose_columns(rows, file, given)
    for role, question in _QUESTIONS.items():
        if role in given:
            continue
        shown = getattr(proposal.columns, role)
        answer = _answer(f"{question} ({_NONE} for none)" if role != "time" else question, shown, role, names)
        if answer != shown:
            given[role] = answer
            proposal = propose_columns(rows, file, given)
    return proposal


def _answer(question: str, shown: str | None, role: str, names: Sequence[str]) -> str | None:
    from fedprognos.tables import MEASURES

    valid, kind = (MEASURES, "measure") if role == "time_measure" else (names, "column")
    while True:
        answer = str(typer.prompt(question, default=shown or _NONE)).strip()
        if answer == _NONE and role != "time":
            return None
        if answer in (*valid, shown):
            return answer
        close = difflib.get_close_matches(answer, valid, n=1, cutoff=0.5)
        typer.echo(f"There is no {kind} '{answer}'" + (f"; did you mean '{close[0]}'?" if close else "."))
        typer.echo(f"Choose one of: {', '.join(valid)}")


def _asked_end(health: str, share: float) -> float | None:
    """The share of the first health at which a life ends; None where it ends with the last row."""
    from fedprognos.errors import ConfigError

    question = f"At which share of its first {health} does a life end? ({_NONE}: with the last row)"
    while True:
        answer = str(typer.prompt(question, default=f"{share:g}")).strip()
        try:
            return None if answer == _NONE else _share(answer)
        except ConfigError as error:
            typer.echo(str(error))


def _share(text: str) -> float:
    """A share between 0 and 1, also written as 80 %.

    >>> _share("0.8"), _share("80 %")
    (0.8, 0.8)
    """
    from fedprognos.errors import ConfigError

    try:
        number = float(text.strip().rstrip("%").replace(",", "."))
    except ValueError:
        number = float("nan")
    share = number / 100 if text.strip().endswith("%") else number
    if not 0.0 < share < 1.0:
        raise ConfigError(f"'{text}' is not a share between 0 and 1", hint="give 0.8, or - for the last row")
    return share


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _time(columns: Columns) -> str:
    joined = f" with {columns.clock}" if columns.clock else ""
    measure = f", in {columns.time_measure}" if columns.time_measure else ", in steps"
    return f"{columns.time}{joined}{measure}" + ("; rows are sorted by it" if columns.sort else "")


def _units(count: int) -> str:
    return f"{count} unit{'' if count == 1 else 's'}"


def _whole(proposal: Proposal) -> str:
    """What a unit is where no column names it."""
    return "each sheet" if proposal.file_format.sheet else "each file" if proposal.units > 1 else "the whole file"


def _place(proposal: Proposal) -> str:
    """What names the owner where no column does."""
    if proposal.separator:
        return f"the beginning of {proposal.columns.unit or 'the name'}, up to '{proposal.separator}'"
    return (
        "each folder" if proposal.columns.unit is None else "each sheet" if proposal.file_format.sheet else "each file"
    )


def _task(columns: Columns) -> str:
    if columns.ahead is not None:
        return f"forecast: {columns.health} in {columns.ahead:g} {columns.time_measure or 'steps'}"
    if columns.task == "rul":
        return "rul: the remaining life"
    other = (
        "; --task rul: the cycles until it is worn; --ahead 50: in 50 cycles" if columns.cycle == columns.time else ""
    )
    return f"soh: {columns.target} of each cycle{other}"


def _end(proposal: Proposal) -> str:
    """Where lives end, if no column says it."""
    columns = proposal.columns
    if columns.ahead is not None:
        return ""
    if columns.health is not None:
        return (
            f"where {columns.health} stays below {columns.end_of_life:.0%} of its first value "
            f"({proposal.worn} of {proposal.units} units); another share: --end-of-life"
        )
    if columns.target is not None or columns.failed is not None:
        return ""
    return (
        "with the last row of each unit; if some still run, add a column with 1 where a unit failed, else 0 (--failed)"
    )


def _summary(proposal: Proposal) -> Table:
    from fedprognos.tables import WHY_LEFT_OUT

    columns = proposal.columns
    table = Table("role", "guess", box=None, pad_edge=False)
    again = {"time": f"a new one where {columns.time} goes back", "failed": "a new one after a row that says failed"}
    lives = columns.life or (columns.new_life and again[columns.new_life])
    rows = {
        "file": proposal.note,
        "task": _task(columns),
        "unit": f"{columns.unit or _whole(proposal)} ({_units(proposal.units)}, {proposal.rows} rows)",
        "lives of a unit": lives,
        "time": _time(columns),
        "cycle": columns.cycle,
        "owner (site)": proposal.sites and f"{columns.site or _place(proposal)} ({_listed(proposal.sites)})",
        "target": columns.target,
        "end of life": _end(proposal),
        "failed": columns.failed,
        "operating settings": ", ".join(columns.settings),
        "sensors": _listed(columns.sensors or ()),
        "blanks, filled": "; ".join(f"{column}: {gap}" for column, gap in proposal.gaps.items()),
        "count as blank": ", ".join(proposal.file_format.blanks),
    }
    for role, value in rows.items():
        if value:
            table.add_row(role, escape(value))
    for reason, unfit in proposal.left_out.items():
        table.add_row("left out", escape(f"{WHY_LEFT_OUT[reason]}: {_listed(unfit)}"))
    return table
