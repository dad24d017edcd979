"""`fedprognos send URL DATA`: rows of files to a running service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fedprognos.cli.console import escaped, plain_console, share_bar, warn_of_exposed
from fedprognos.errors import DataError


def send(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of `fedprognos serve`.")],
    data: Annotated[str, typer.Argument(help="CSV, Excel or Parquet: a file, a folder or a pattern.")],
    events: Annotated[
        bool, typer.Option("--events", help="DATA is a CSV of maintenance events: unit, kind, at, who, note, sensor.")
    ] = False,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; or set FEDPROGNOS_TOKEN.")] = None,
    unit: Annotated[str | None, typer.Option("--unit", help="Column of the unit; - where a file is one unit.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Column of the time.")] = None,
    cycle: Annotated[str | None, typer.Option("--cycle", help="Column of the cycle number.")] = None,
) -> None:
    """Send rows of files to a running service.

    Rows that it has already are passed over, so sending again is safe.

    Example: fedprognos send http://127.0.0.1:8080 new_rows.csv
    """
    from fedprognos.service import Link, read_token, send_files

    warn_of_exposed(token_file)
    link = Link(url, read_token(token_file, os.environ.get("FEDPROGNOS_TOKEN")))
    if events:
        answer = link.post_events(_events(Path(data)))
        counts = ", ".join(f"{answer[key]} {key}" for key in ("recorded", "duplicates", "refused"))
        reasons = [result["reason"] for result in answer["results"] if result["result"] == "refused"]
        for line in [f"{len(answer['results'])} events: {counts}", *(f"first refused: {why}" for why in reasons[:1])]:
            plain_console().print(escaped(line), soft_wrap=True)
        return
    with share_bar("sending") as progress:
        sent = send_files(link, data, unit=unit, time=time, cycle=cycle, progress=progress)
    counts = f"{sent.accepted} accepted, {sent.already_stored} known already, {sent.refused} refused"
    lines = [f"{sent.rows} rows: {counts}", *([f"first refused: {sent.first_refusal}"] if sent.first_refusal else [])]
    for line in lines:
        plain_console().print(escaped(line), soft_wrap=True)


def _events(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the events: {error}", where=str(path), hint="give a CSV in UTF-8") from None
