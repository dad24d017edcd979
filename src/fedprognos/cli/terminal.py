"""What a run looks like in a terminal: progress bars while it works, a table at the end, plain lines elsewhere."""

from __future__ import annotations

import math
import statistics
import threading
from collections import defaultdict
from dataclasses import dataclass

from rich import box
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

from fedprognos.evaluation import Results, Row
from fedprognos.experiment.events import EpochDone, Event, JobDone, LayerMatched, LeftOut, Notice, RoundDone, RunStarted

SHOWN_CLIENTS = 12
LEFT = ("method", "head", "data")


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
        for scenario, clients in event.clients.items():
            table = Table(title=escape(f"Clients ({scenario})"), title_justify="left", box=None, padding=(0, 2))
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
    return f": RMSE {values} {rows[0].measure}" + (" [red](collapsed to the mean)[/]" if collapsed else "")


@dataclass(frozen=True)
class _Line:
    """A line of the table: a method with one head on one test, every client's own models pooled."""

    method: str
    head: str
    trained: str
    tested: str
    n: int
    errors: tuple[float, ...]
    capped: tuple[float, ...]
    neurons: str


def results_table(results: Results) -> list[Table]:
    """Tables of methods, one a scenario: mean and spread over seeds. The report has every client by itself."""
    scenarios = dict.fromkeys(row.scenario for row in results.rows)
    return [_scenario_table(scenario, [r for r in results.rows if r.scenario == scenario]) for scenario in scenarios]


def _lines(rows: list[Row]) -> list[_Line]:
    groups: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    several = len({row.test_client for row in rows}) > 1
    for row in sorted((r for r in rows if r.selected_on != "test"), key=lambda r: r.key):
        alone = len(row.train_clients) == 1
        if alone and row.test_client == row.train_clients[0] and several:
            trained, tested = "own", "all"
        elif several and row.test_client != "all":
            continue
        else:
            trained, tested = (row.train_clients[0] if alone else f"all {len(row.train_clients)}"), row.test_client
        groups[row.method, row.head or "", trained, tested].append(row)
    lines = []
    for (method, head, trained, tested), found in groups.items():
        by_seed = [[r for r in found if r.seed == seed] for seed in sorted({r.seed for r in found})]
        errors = tuple(_pooled([(r.n_test, r.rmse) for r in same]) for same in by_seed)
        capped = tuple(
            _pooled([(r.n_test, r.rmse_capped) for r in same if r.rmse_capped is not None])
            for same in by_seed
            if same[0].rmse_capped is not None
        )
        width = found[0].width
        neurons = "" if width is None else "+".join(map(str, width))
        lines.append(_Line(method, head, trained, tested, sum(r.n_test for r in by_seed[0]), errors, capped, neurons))
    return lines


def _pooled(parts: list[tuple[int, float]]) -> float:
    return math.sqrt(sum(n * rmse**2 for n, rmse in parts) / sum(n for n, _ in parts))


def _scenario_table(scenario: str, rows: list[Row]) -> Table:
    lines = _lines(rows)
    table = Table(
        title=escape(f"{scenario}: test RMSE in {rows[0].measure}"), title_justify="left", header_style="bold"
    )
    table.box, table.pad_edge, table.collapse_padding = box.SIMPLE_HEAD, False, True
    capped = any(line.capped for line in lines)
    for name in (*LEFT, "n", "RMSE", *(("capped",) if capped else ()), "width"):
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    best = {tested: min(_mean(x.errors) for x in lines if x.tested == tested) for tested in {x.tested for x in lines}}
    previous = ""
    for line in lines:
        if previous and line.method != previous:
            table.add_section()
        mark = "[bold green]" if _mean(line.errors) == best[line.tested] else ""
        table.add_row(
            line.method if line.method != previous else "",
            line.head,
            escape(line.trained if line.tested == "all" else f"{line.trained}, tested on {line.tested}"),
            str(line.n),
            f"{mark}{_spread(line.errors)}",
            *([_spread(line.capped)] if capped else []),
            line.neurons,
        )
        previous = line.method
    return table


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def _spread(values: tuple[float, ...]) -> str:
    if not values:
        return "-"
    return f"{_mean(values):.4g}" + (f" ± {statistics.pstdev(values):.2g}" if len(values) > 1 else "")
