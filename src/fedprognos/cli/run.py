"""`fedprognos run`, `demo`, `report`, `presets`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

INTERRUPTED = 130
QUICK = ("search=0", "train.steps=200", "evaluation.seeds=1", "evaluation.intervals=none")

Source = Annotated[str, typer.Argument(metavar="PRESET|FILE.toml", help="See `fedprognos presets`, or write your own.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder with the NASA data.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder to write.", show_default="runs/<name>")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, help="Repetitions with other random numbers.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="section.key=value", help="Change a key; repeatable.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Worker processes.", show_default="processors")]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="tcp://HOST:PORT|local", help="Let clients answer on a Dask cluster."),
]
Resume = Annotated[bool, typer.Option("--resume/--no-resume", help="Continue what the folder holds, or start over.")]
Budget = Annotated[
    str | None,
    typer.Option("--budget", metavar="10m", help="Time for the run; what is left of it searches the recipe."),
]
Quick = Annotated[bool, typer.Option("--quick", help="A first look: no search, 200 steps, one seed, no intervals.")]
TensorBoard = Annotated[Path | None, typer.Option("--tensorboard", help="Also write rounds for TensorBoard here.")]
MLflow = Annotated[str | None, typer.Option("--mlflow", metavar="URI", help="Also log jobs to this MLflow server.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print results.json instead of tables.")]


@contextmanager
def _stops_on_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends a run and says how to resume it."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped. To resume, repeat the command.", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


def run(
    source: Source,
    data_dir: DataDir = None,
    out: Out = None,
    seeds: Seeds = None,
    overrides: Set = None,
    workers: Workers = None,
    cluster: Cluster = None,
    resume: Resume = True,
    budget: Budget = None,
    quick: Quick = False,
    tensorboard: TensorBoard = None,
    mlflow: MLflow = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run an experiment: read the data, train with every method, evaluate, write a report.

    To resume an interrupted run, repeat the command.

    Example: fedprognos run fleet.toml --seeds 3 --set train.epochs=40
    """
    from fedprognos.cli.terminal import EventView, answers, results_table
    from fedprognos.experiment import run as run_experiment
    from fedprognos.experiment import tracking
    from fedprognos.report import read_run, write_report

    console = Console(quiet=quiet or as_json)
    changes = list(overrides or ())
    if budget is not None:
        changes.append(f'search="{budget}"')
    if quick:
        changes += QUICK
    watchers = []
    if tensorboard is not None:
        watchers.append(tracking.tensorboard(tensorboard))
    if mlflow is not None:
        watchers.append(tracking.mlflow(mlflow, Path(source).stem))
    with _stops_on_ctrl_c(), EventView(console) as view:
        finished = run_experiment(
            source,
            data_dir=data_dir,
            out=out,
            seeds=seeds,
            overrides=tuple(changes),
            workers=workers,
            cluster=cluster,
            resume=resume,
            observers=(view, *watchers),
        )
        data = read_run(finished.folder)
        report_file = write_report(finished.folder, data)
    for table in results_table(finished.results):
        console.print(table)
    console.print(answers(data), highlight=False)
    console.print(
        f"\nReport  {report_file}\nModel   {finished.folder / 'bundle'}\nTable   {finished.folder / 'results.json'}",
        highlight=False,
    )
    if as_json:
        typer.echo(json.dumps(finished.results.as_dict(), indent=1))


def demo(
    fleet: Annotated[str, typer.Option(help="engines or batteries.")] = "engines",
    out: Out = None,
    seeds: Seeds = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a small experiment on a made-up fleet and write a report; needs no data.

    Example: fedprognos demo --fleet batteries
    """
    names = {"engines": "demo", "batteries": "demo-battery"}
    if fleet not in names:
        from fedprognos.errors import unknown_name

        raise unknown_name("fleet", fleet, names)
    run(names[fleet], out=out, seeds=seeds, workers=workers, quiet=quiet, as_json=as_json)


def report(folder: Annotated[Path, typer.Argument(help="A folder that `fedprognos run` wrote.")]) -> None:
    """Write report.html again from the files of a finished run.

    Example: fedprognos report runs/fleet
    """
    from fedprognos.cli.terminal import answers
    from fedprognos.report import read_run, write_report

    data = read_run(folder)
    console = Console()
    console.print(answers(data), highlight=False)
    console.print(f"\nReport  {write_report(folder, data)}", highlight=False)


def presets() -> None:
    """List the experiments that come with fedprognos.

    Example: fedprognos presets
    """
    from fedprognos.experiment import config

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("preset")
    table.add_column("what it is")
    for name, title in config.presets().items():
        table.add_row(name, title)
    Console().print(table)
