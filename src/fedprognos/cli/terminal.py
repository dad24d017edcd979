"""What a run looks like in a terminal: progress bars while it works, a table at the end, plain lines elsewhere."""

from __future__ import annotations

import threading

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedprognos.evaluation import Results, Summary
from fedprognos.federation.events import EpochDone, Event, JobDone, LayerMatched, LeftOut, Notice, RoundDone, RunStarted

SHOWN_CLIENTS = 12
LEFT = ("method", "head", "trained on", "tested on")


class RunView:
    """Shows the events of a run on a console; use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("epochs"),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
            )

    def __enter__(self) -> RunView:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case RunStarted():
                    self._start(event)
                case EpochDone():
                    self._advance(1, escape(f"{event.job.method} {event.client}"))
                case JobDone():
                    self._advance(event.epochs, escape(str(event.job)))
                    self._console.print(f"  [green]done[/] {escape(str(event.job))}{_verdict(event)}", highlight=False)
                case LayerMatched():
                    self._say(
                        f"{event.job} round {event.round}: {event.layer} matched to {event.width} neurons, "
                        f"{event.shared_by_all:.0%} shared by all, {sum(event.singletons.values())} held by one"
                    )
                case RoundDone() if event.round > 1 or event.job.method.startswith("fed"):
                    errors = ", ".join(f"{head} {rmse:.4g}" for head, rmse in event.rmse.items())
                    self._say(f"{event.job} round {event.round}: test RMSE {errors}; {event.bytes / 1e6:.1f} MB so far")
                case LeftOut():
                    self._console.print(
                        f"  [yellow]left out[/] {escape(f'{event.client} ({event.job}): {event.text}')}",
                        highlight=False,
                    )
                case Notice():
                    self._console.print(f"  [yellow]note[/] {escape(event.text)}", highlight=False)

    def _say(self, text: str) -> None:
        self._console.print(f"  [dim]{escape(text)}[/]", highlight=False)

    def _start(self, event: RunStarted) -> None:
        for setting, clients in event.clients.items():
            table = Table(title=escape(f"Clients ({setting})"), title_justify="left", box=None, padding=(0, 2))
            for column in ("client", "units", "rows", "lifespans"):
                table.add_column(column, justify="left" if column == "client" else "right")
            for name, fleet in sorted(clients.items())[:SHOWN_CLIENTS]:
                spans = [unit.lifespan for unit in fleet]
                table.add_row(escape(name), str(len(fleet)), f"{fleet.rows:,}", f"{min(spans):g}-{max(spans):g}")
            self._console.print(table)
            if len(clients) > SHOWN_CLIENTS:
                self._console.print(f"  and {len(clients) - SHOWN_CLIENTS} more")
        if event.reused:
            self._console.print(f"  {len(event.reused)} of {len(event.jobs)} jobs were done before and are reused")
        if self._progress is not None and event.epochs:
            self._task = self._progress.add_task("training", total=event.epochs, rate="")

    def _advance(self, epochs: int, what: str) -> None:
        if self._progress is None or self._task is None:
            return
        task = self._progress.tasks[0]
        rate = f"{task.speed:.1f}/s" if task.speed else ""
        self._progress.update(self._task, advance=epochs, description=what, rate=rate)


def _verdict(event: JobDone) -> str:
    rows = [row for row in event.rows if row.test_client == "all"] or list(event.rows)
    if event.job.method == "yardsticks" or not rows:
        return ""
    values = " / ".join(f"{row.rmse:.4g}" for row in rows[:6])
    collapsed = sum(row.collapsed for row in event.rows)
    return f": RMSE {values} {rows[0].unit}" + (" [red](collapsed to the mean)[/]" if collapsed else "")


def results_table(results: Results) -> list[Table]:
    """Tables of methods, one a setting: mean and spread over seeds."""
    tables = []
    summaries = results.summary()
    for setting in dict.fromkeys(s.setting for s in summaries):
        rows = [s for s in summaries if s.setting == setting]
        tables.append(_setting_table(setting, rows))
    return tables


def _setting_table(setting: str, rows: list[Summary]) -> Table:
    unit = rows[0].unit
    table = Table(title=escape(f"{setting}: test RMSE in {unit}"), title_justify="left", header_style="bold")
    capped = any(row.rmse_capped is not None for row in rows)
    for name in (
        "method",
        "head",
        "trained on",
        "tested on",
        "n",
        "RMSE",
        *(["RMSE capped"] if capped else []),
        "MAE",
        "bias",
        "neurons",
    ):
        table.add_column(name, justify="left" if name in LEFT else "right")
    best = {
        test: min(row.rmse for row in rows if row.test_client == test) for test in {row.test_client for row in rows}
    }
    previous = ""
    for row in rows:
        if previous and row.method != previous:
            table.add_section()
        trained = row.train_clients[0] if len(row.train_clients) == 1 else f"all {len(row.train_clients)}"
        mark = "[bold green]" if row.rmse == best[row.test_client] else ""
        table.add_row(
            row.method if row.method != previous else "",
            row.head or "",
            escape(trained),
            escape(row.test_client),
            str(row.n_test),
            f"{mark}{_spread(row.rmse, row.rmse_spread, row.seeds)}",
            *([_spread(row.rmse_capped, row.rmse_capped_spread, row.seeds)] if capped else []),
            f"{row.mae:.4g}",
            f"{row.bias:+.3g}",
            "-" if row.width is None else "+".join(map(str, row.width)),
        )
        previous = row.method
    return table


def _spread(value: float | None, spread: float | None, seeds: int) -> str:
    if value is None:
        return "-"
    return f"{value:.4g} ± {spread:.2g}" if seeds > 1 and spread is not None else f"{value:.4g}"
