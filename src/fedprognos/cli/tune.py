"""`fedprognos tune`: search the hyper-parameters of an experiment, judged on what training keeps out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedprognos.cli.run import INTERRUPTED, DataDir, Quiet, Set, Source, Workers

if TYPE_CHECKING:
    from fedprognos.experiment.tuning import Search
    from fedprognos.experiment.tuning.events import Event, SearchStarted, TrialDone
    from fedprognos.experiment.tuning.space import Choice

SHOWN = 5


def tune(
    source: Source,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials in all, earlier ones included.")],
    method: Annotated[
        str | None, typer.Option("--method", show_default="first federated", help="Whose error is made small.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option("--scenario", show_default="first", help="One of several partitions.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Trainings a trial; their mean counts.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides what is tried.")] = 0,
    space: Annotated[
        list[str] | None, typer.Option("--space", metavar="name=[values]", help="Other choices; repeatable.")
    ] = None,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write.", show_default="runs/<name>-tune")] = None,
    overrides: Set = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Search hyper-parameters by the error on what training keeps out; the test is never looked at.

    A search that was interrupted goes on where it was when the same command is given again.

    Example: fedprognos tune fleet.toml --trials 50
    """
    from fedprognos.experiment.tuning import tune as search

    console = Console(quiet=quiet)
    try:
        with _View(console) as view:
            found = search(
                source,
                trials=trials,
                method=method,
                scenario=scenario,
                seeds=seeds,
                seed=seed,
                space=tuple(space or ()),
                data_dir=data_dir,
                out=out,
                overrides=tuple(overrides or ()),
                workers=workers,
                observers=(view,),
            )
    except KeyboardInterrupt:
        Console(stderr=True).print(
            "stopped; the trials that ended are kept, give the same command again to go on", highlight=False
        )
        raise typer.Exit(INTERRUPTED) from None
    _show(console, found)


class _View:
    """Shows the events of a search on a console; use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock = console, threading.Lock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._doing, self._epochs = "", 0
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("trials"))
            self._progress = Progress(*columns, TimeElapsedColumn(), console=console)

    def __enter__(self) -> _View:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: Event) -> None:
        from fedprognos.experiment.events import Notice
        from fedprognos.experiment.tuning.events import SearchStarted, TrialDone, TrialEpoch, TrialRound, TrialStarted

        with self._lock:
            match event:
                case SearchStarted():
                    self._start(event)
                case TrialStarted():
                    self._doing, self._epochs = f"trial {event.number}", 0
                case TrialEpoch():
                    self._epochs += 1
                    self._update(f"{self._doing}, epoch {self._epochs}")
                case TrialRound():
                    self._doing = f"trial {event.number}, seed {event.seed} round {event.round}: {event.error:.4g}"
                    self._update(self._doing)
                case TrialDone():
                    self._end(event)
                case Notice():
                    self._console.print(f"  [yellow]note[/] {escape(event.text)}", highlight=False, soft_wrap=True)

    def _start(self, event: SearchStarted) -> None:
        self._console.print(escape(event.what), highlight=False)
        for name, values in event.space.items():
            self._console.print(f"  {escape(name)}: {escape(', '.join(map(str, values)))}", highlight=False)
        if event.finished:
            self._console.print(f"  {event.finished} trials were done before", highlight=False)
        if self._progress is not None:
            completed = min(event.finished, event.trials)
            self._task = self._progress.add_task("searching", total=event.trials, completed=completed)

    def _end(self, event: TrialDone) -> None:
        trial = event.trial
        error = "" if trial.error is None else f" {trial.error:.4g}"
        state = {"complete": "[green]done[/]", "pruned": "[dim]pruned[/]", "failed": "[red]failed[/]"}[trial.state]
        mark = " [bold green]best so far[/]" if event.best else ""
        reason = f" {escape(trial.reason)}" if trial.reason else ""
        self._console.print(
            f"  {state} trial {trial.number}:{error}{reason} [dim]{escape(_said(trial.values))}[/]{mark}",
            highlight=False,
            soft_wrap=True,
        )
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=1)

    def _update(self, text: str) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=escape(text))


def _show(console: Console, found: Search) -> None:
    """The best trials, what mattered, and where the files are."""
    from fedprognos.experiment.tuning.outputs import BEST_FILE, TRIALS_FILE

    counts = ", ".join(f"{sum(t.state == s for t in found.trials)} {s}" for s in ("pruned", "failed"))
    title = f"Best of {len(found.trials)} trials ({counts}): validation RMSE in {found.measure}"
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True
    for name in ("trial", "RMSE", *(_short(name) for name in found.space)):
        table.add_column(escape(name), justify="right")
    rows: dict[tuple[str, ...], tuple[str, str]] = {}  # by their values: what was tried twice is shown once
    for trial in sorted((t for t in found.trials if t.state == "complete"), key=lambda t: (t.error or 0.0, t.number)):
        values = tuple(str(trial.values[name]) for name in found.space)
        rows.setdefault(values, (str(trial.number), f"{trial.error:.4g}"))
    for values, facts in list(rows.items())[:SHOWN]:
        table.add_row(*facts, *map(escape, values))
    console.print(table)
    if found.importances:
        shares = ", ".join(f"{_short(name)} {share:.0%}" for name, share in found.importances.items())
        console.print(f"What mattered: {escape(shares)}", highlight=False, soft_wrap=True)
    else:
        console.print("What mattered: too few trials to tell", highlight=False)
    if found.best is not None:
        console.print(f"\nBest    {found.folder / BEST_FILE}", highlight=False, soft_wrap=True)
    console.print(f"Trials  {found.folder / TRIALS_FILE}", highlight=False, soft_wrap=True)


def _said(values: Mapping[str, Choice]) -> str:
    return ", ".join(f"{_short(name)} {value}" for name, value in values.items())


def _short(name: str) -> str:
    """The last part of a key, as a table has room for it."""
    return name.rpartition(".")[2].replace("_", " ")
