"""What a run or a search looks like in a terminal: a progress bar and lines while it works, tables at the end."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
from rich.text import Text

from fedprognos.evaluation import Metric, Results, Summary, metrics
from fedprognos.experiment import (
    SHOWN_CLIENTS,
    EpochDone,
    Event,
    JobDone,
    LayerMatched,
    LeftOut,
    NeuronsAbsorbed,
    Notice,
    RecipeTried,
    RoundDone,
    RunStarted,
    SearchEvent,
    SearchStarted,
    TrialDone,
    TrialEpoch,
    TrialRound,
    TrialStarted,
    event_words,
)
from fedprognos.federation.strategies import strategies

if TYPE_CHECKING:
    from fedprognos.report import RunData

LEFT = ("method", "head", "data")
"""Columns of words, which stand at the left."""
STATES = {"complete": "[green]done[/]", "pruned": "[dim]pruned[/]", "failed": "[red]failed[/]"}


class EventView:
    """Shows the events of a run or a search on a console; use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._trial, self._trial_epochs, self._searching = "", 0, False

    def __enter__(self) -> EventView:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: Event | SearchEvent) -> None:
        with self._lock:
            self._show(event)

    def _show(self, event: Event | SearchEvent) -> None:
        match event:
            case RunStarted():
                self._start_run(event)
            case SearchStarted():
                self._start_search(event)
            case RecipeTried():
                self._print("[cyan]search[/]", event)
                self._show_search(event)
            case EpochDone():
                self._advance(0 if self._searching else 1, f"{event.job.method} {event.client}")
            case JobDone():
                self._advance(event.epochs, str(event.job))
                collapsed = any(row.collapsed for row in event.rows)
                self._print("[green]done[/]", event, " [red](collapsed to the mean)[/]" if collapsed else "")
            case LayerMatched() | NeuronsAbsorbed():
                self._print("", event)
            case RoundDone() if strategies[event.job.method].federated:
                self._print("", event)
            case LeftOut():
                self._print("[yellow]left out[/]", event)
            case Notice():
                self._print("[yellow]note[/]", event)
            case TrialStarted():
                self._trial, self._trial_epochs = f"trial {event.number}", 0
            case TrialEpoch():
                self._trial_epochs += 1
                self._advance(0, f"{self._trial}, epoch {self._trial_epochs}")
            case TrialRound():
                self._trial = f"trial {event.number}, seed {event.seed} round {event.round}: {event.error:.4g}"
                self._advance(0, self._trial)
            case TrialDone():
                self._advance(1, f"trial {event.trial.number}")
                state = STATES[event.trial.state]
                self._print(state, event, " [bold green]best so far[/]" if event.best else "")

    def _print(self, mark: str, event: Event | SearchEvent, end: str = "") -> None:
        words = escape(event_words(event))
        text = f"  {mark} {words}{end}" if mark else f"  [dim]{words}[/]"
        self._console.print(text, highlight=False, soft_wrap=True)

    def _start_run(self, event: RunStarted) -> None:
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
        if event.epochs:
            self._start_bar("training", event.epochs, 0, "epochs")

    def _start_search(self, event: SearchStarted) -> None:
        self._console.print(escape(event.what), highlight=False)
        for name, values in event.space.items():
            self._console.print(f"  {escape(name)}: {escape(', '.join(map(str, values)))}", highlight=False)
        if event.finished:
            self._console.print(f"  {event.finished} trials were done before", highlight=False)
        self._start_bar("searching", event.trials, min(event.finished, event.trials), "trials")

    def _show_search(self, event: RecipeTried) -> None:
        """The search before a run has a bar of its own, in training steps."""
        if not self._searching:
            self._start_bar("searching", event.total, 0, "steps")
            self._searching = True
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=event.done, total=event.total)

    def _start_bar(self, what: str, total: int, completed: int, counted: str) -> None:
        """A progress bar, where the console can show one."""
        if self._progress is not None:
            self._progress.stop()
            self._progress, self._searching = None, False
        if not self._console.is_terminal:
            return
        left = (TextColumn("left"), TimeRemainingColumn())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(counted))
        self._progress = Progress(*columns, TimeElapsedColumn(), *left, console=self._console)
        self._task = self._progress.add_task(what, total=total, completed=completed)
        self._progress.start()

    def _advance(self, steps: int, what: str) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps, description=escape(what))


def answers(runs: Sequence[RunData]) -> Text:
    """What the report's first screen says, one paragraph a scenario, with the model that it is about."""
    from fedprognos.report import answer

    text = Text()
    for run in runs:
        verdict, together = answer(run), run.roles.together
        text.append(f"{run.scenario}: " if len(runs) > 1 else "")
        text.append(verdict.headline, style="bold")
        text.append(f" {verdict.beside} {' '.join(verdict.warnings)}".rstrip())
        why = f": {run.results.reason}" if run.results.reason else ""
        text.append(f" Together is {together.label}{why}.\n" if together is not None else "\n")
    text.rstrip()
    return text


def results_table(results: Results) -> list[Table]:
    """Tables of methods, one a scenario: mean and spread over seeds. The report has every client by itself."""
    return [_scenario_table(results, scenario) for scenario in dict.fromkeys(row.scenario for row in results.rows)]


def _scenario_table(results: Results, scenario: str) -> Table:
    summaries = [summary for summary in results.summary(scenario) if summary.selected_on != "test"]
    shown = [m for m in metrics.values() if m.headline and any(s.values(m.name).size for s in summaries)]
    title = f"{scenario}: test errors in {summaries[0].rows[0].measure}"
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    table.box, table.pad_edge, table.collapse_padding = box.SIMPLE_HEAD, False, True
    for name in (*LEFT, "n", *(metric.label for metric in shown), "width"):
        table.add_column(escape(name), justify="left" if name in LEFT else "right", no_wrap=True)
    best = {m.name: min((_badness(m, summary) for summary in summaries), default=math.inf) for m in shown}
    previous = ""
    for summary in summaries:
        if previous and summary.method != previous:
            table.add_section()
        width = summary.rows[0].width
        table.add_row(
            escape(summary.method) if summary.method != previous else "",
            escape(summary.head or ""),
            escape(summary.data),
            str(summary.n_test),
            *(_cell(summary, m, m.best is not None and _badness(m, summary) == best[m.name]) for m in shown),
            "" if width is None else "+".join(map(str, width)),
        )
        previous = summary.method
    return table


def _badness(metric: Metric, summary: Summary) -> float:
    mean = summary.mean(metric.name)
    return math.inf if mean is None else metric.badness(mean)


def _cell(summary: Summary, metric: Metric, best: bool) -> str:
    mean, spread = summary.mean(metric.name), summary.spread(metric.name)
    if mean is None:
        return "-"
    text = f"{mean:.1%}" if metric.percent else f"{mean:.4g}" + ("" if spread is None else f" ± {spread:.2g}")
    return f"[bold green]{text}[/]" if best else text
