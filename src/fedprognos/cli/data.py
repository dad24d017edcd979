"""`fedprognos data`: which public data sets are here, fetching them, checking them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from fedprognos.cli.console import plain_console
from fedprognos.errors import DataError, DataNotFoundError

if TYPE_CHECKING:
    from fedprognos.fleet import Check

data_app = typer.Typer(help="Public data sets: list, download, check.", no_args_is_help=True)

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Look here, and nowhere else.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_STYLES = {"ok": "green", "partial": "yellow", "missing": "dim", "altered": "red", "wrong": "red"}


@data_app.command("list")
def list_data(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Say which data sets there are and where they were found.

    Example: fedprognos data list
    """
    from fedprognos.fleet import CATALOG, places

    folders = {name: _where(name, data_dir) for name in CATALOG}
    looked = [str(p) for p in places(data_dir)]
    if as_json:
        sets = [
            {"name": d.name, "title": d.title, "address": d.address, "folder": folders[d.name]}
            for d in CATALOG.values()
        ]
        _print_json({"looked_in": looked, "data_sets": sets})
        return
    table = Table("name", "what", "found in", box=None, pad_edge=False)
    for name, data in CATALOG.items():
        table.add_row(name, data.title, escape(folders[name] or "") or f"not here: fedprognos data get {name}")
    console = plain_console()
    console.print(table)
    console.print("looked in: " + ", ".join(looked), style="dim", markup=False, soft_wrap=True)


@data_app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="Data set; see `fedprognos data list`.")],
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Put it here.")] = None,
    address: Annotated[str | None, typer.Option("--address", help="Another address of the same archive.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Download again and replace what is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download a data set from its official address, unpack it and check it.

    Example: fedprognos data get cmapss
    """
    from fedprognos.fleet import data_set, get

    source = address or data_set(name).address
    errors = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as bars:
        done = get(name, data_dir, address=source, progress=_Bar(bars), force=force)
    _show(done, as_json)


@data_app.command("check")
def check_data(
    name: Annotated[str, typer.Argument(help="Data set; see `fedprognos data list`.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare the files that are here with what was published.

    The exit code is 3 where a file is not as published.

    Example: fedprognos data check cmapss
    """
    from fedprognos.fleet import check

    done = check(name, data_dir)
    _show(done, as_json)
    if not done.sound:
        raise typer.Exit(DataError.exit_code)


class _Bar:
    """A rich progress bar that pooch can drive."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task = bars.add_task("download", total=None)

    @property
    def total(self) -> int:
        return int(self._bars.tasks[0].total or 0)

    @total.setter
    def total(self, value: int) -> None:
        self._bars.update(self._task, total=value or None)

    def update(self, amount: int) -> None:
        self._bars.advance(self._task, amount)

    def reset(self) -> None:
        self._bars.update(self._task, completed=0)

    def close(self) -> None:
        self._bars.refresh()


def _where(name: str, data_dir: Path | None) -> str | None:
    from fedprognos.fleet import find

    try:
        return str(find(name, data_dir))
    except DataNotFoundError:
        return None


def _show(done: Check, as_json: bool) -> None:
    if as_json:
        parts = [asdict(part) for part in done.parts]
        _print_json(
            {
                "name": done.name,
                "folder": str(done.folder),
                "complete": done.complete,
                "sound": done.sound,
                "parts": parts,
            }
        )
        return
    table = Table(
        "part", "status", "rows", "units", "published rows / units", "checksum", "note", box=None, pad_edge=False
    )
    for part in done.parts:
        published = " / ".join("?" if n is None else str(n) for n in (part.expected_rows, part.expected_units))
        counts = ("" if n is None else str(n) for n in (part.rows, part.units))
        status = f"[{_STYLES[part.status]}]{part.status}[/]"
        table.add_row(part.name, status, *counts, published, part.checksum, escape(part.detail))
    console = plain_console()
    console.print(f"{done.name} in {done.folder}", markup=False, soft_wrap=True)
    console.print(table)
    if not done.complete:
        console.print(
            f"not complete; the whole set: fedprognos data get {done.name} --force", markup=False, soft_wrap=True
        )


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=1))
