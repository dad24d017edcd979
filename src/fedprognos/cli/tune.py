"""`fedprognos tune`: search the hyper-parameters of an experiment, judged on what training keeps out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedprognos.cli.run import INTERRUPTED, DataDir, Quiet, Set, Source, Workers

if TYPE_CHECKING:
    from fedprognos.experiment import Search

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

    To resume an interrupted search, repeat the command.

    Example: fedprognos tune fleet.toml --trials 50
    """
    from fedprognos.cli.terminal import EventView
    from fedprognos.experiment import tune as search

    console = Console(quiet=quiet)
    try:
        with EventView(console) as view:
            outcome = search(
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
        Console(stderr=True).print("Stopped. Finished trials are kept; to resume, repeat the command.", highlight=False)
        raise typer.Exit(INTERRUPTED) from None
    _show(console, outcome)


def _show(console: Console, outcome: Search) -> None:
    """The best trials, what mattered, and where the files are."""
    from fedprognos.experiment import BEST_FILE, TRIALS_FILE, short_key

    counts = ", ".join(f"{sum(t.state == s for t in outcome.trials)} {s}" for s in ("pruned", "failed"))
    title = f"Best of {len(outcome.trials)} trials ({counts}): validation RMSE in {outcome.measure}"
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True
    for name in ("trial", "RMSE", *(short_key(name) for name in outcome.space)):
        table.add_column(escape(name), justify="right")
    rows: dict[tuple[str, ...], tuple[str, str]] = {}  # by their values: what was tried twice is shown once
    for trial in sorted((t for t in outcome.trials if t.state == "complete"), key=lambda t: (t.error or 0.0, t.number)):
        values = tuple(str(trial.values[name]) for name in outcome.space)
        rows.setdefault(values, (str(trial.number), f"{trial.error:.4g}"))
    for values, facts in list(rows.items())[:SHOWN]:
        table.add_row(*facts, *map(escape, values))
    console.print(table)
    if outcome.importances:
        shares = ", ".join(f"{short_key(name)} {share:.0%}" for name, share in outcome.importances.items())
        console.print(f"What mattered: {escape(shares)}", highlight=False, soft_wrap=True)
    else:
        console.print("What mattered: too few trials to tell", highlight=False)
    if outcome.best is not None:
        console.print(f"\nBest    {outcome.folder / BEST_FILE}", highlight=False, soft_wrap=True)
    console.print(f"Trials  {outcome.folder / TRIALS_FILE}", highlight=False, soft_wrap=True)
