"""`python -m studies`: run presets, write their results, make the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedprognos.errors import FedprognosError
from studies.places import COMMITTED

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Worker processes.", show_default="processors")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder with the NASA data.")]
Neurons = Annotated[int | None, typer.Option("--neurons", min=1, help="Only networks of so many neurons.")]


@app.command()
def run(
    presets: Annotated[list[str], typer.Argument(help="Presets to run, or to go on with.")],
    workers: Workers = None,
    data_dir: DataDir = None,
) -> None:
    """Run presets and write their JSON; what was interrupted goes on."""
    from fedprognos.cli.terminal import EventView
    from studies.recording import run_preset

    console = Console()
    for preset in presets:
        with EventView(console) as view:
            run_preset(preset, COMMITTED, workers=workers, data_dir=data_dir, observers=(view,))
        console.print(COMMITTED.json(preset), highlight=False)


@app.command()
def page() -> None:
    """Make all pages and their pictures anew from the JSON files."""
    from fedprognos.files import write_text
    from studies.page import study_files, write_page

    for path, text in study_files().items():
        write_text(path, text)
    Console().print(write_page(COMMITTED), highlight=False)


@app.command()
def matching() -> None:
    """Make the pictures of docs/matching.md and print the numbers that the page quotes."""
    from studies.matching_pictures import write_matching_pictures

    Console().print_json(data=write_matching_pictures())


@app.command()
def poisoning(
    data_dir: DataDir = None, part: Annotated[list[str] | None, typer.Option(help="Only these.")] = None
) -> None:
    """One hostile client of five, or two of seven, by attack, method and mode; goes on where it was."""
    from studies.poisoning import PARTS, write_poisoning

    for name in part or PARTS:
        attacks, overrides = PARTS[name]
        out = Path("docs/results") / f"{name}.json"
        Console().print(write_poisoning(data_dir, out=out, overrides=overrides, attacks=attacks), highlight=False)


@app.command()
def own_tables(data_dir: DataDir = None, workers: Workers = None) -> None:
    """C-MAPSS as plain tables through init and run, untouched; NASA's test engines judge. Goes on where it was."""
    from studies.own_tables import write_own_tables

    Console().print(write_own_tables(data_dir, Path("build/own-tables"), workers), highlight=False)


@app.command()
def intervals(data_dir: DataDir = None) -> None:
    """Prediction intervals on training engines that draws of owners kept out; goes on where it was."""
    from studies.intervals import write_intervals

    Console().print(write_intervals(data_dir, Path("build/intervals")), highlight=False)


@app.command()
def privacy(data_dir: DataDir = None) -> None:
    """What differential privacy costs on FD004, for several epsilons, per unit and per row."""
    from studies.privacy import write_privacy

    Console().print(write_privacy(data_dir), highlight=False)


@app.command()
def paper_factors(data_dir: DataDir = None) -> None:
    """Why the re-run of the paper's batteries trains badly, one factor a row; goes on where it was."""
    from studies.paper_factors import write_factors

    Console().print(write_factors(data_dir), highlight=False)


@app.command()
def paper_batteries(data_dir: DataDir = None, neurons: Neurons = None) -> None:
    """The paper's Table IV on a time grid, with controls; goes on where it was cut off."""
    from studies.paper_controls import BATTERY_TABLE, write_table

    Console().print(write_table(BATTERY_TABLE, data_dir, neurons), highlight=False)


@app.command()
def paper_engines(data_dir: DataDir = None, neurons: Neurons = None) -> None:
    """The paper's Table VI, smaller and with controls; goes on where it was cut off."""
    from studies.paper_controls import ENGINE_TABLE, write_table

    Console().print(write_table(ENGINE_TABLE, data_dir, neurons), highlight=False)


@app.command()
def few_machines(data_dir: DataDir = None) -> None:
    """Alone, together, boosting and ridge over 2 to 40 engines an owner; goes on where it was."""
    from studies.few_machines import write_few_machines

    Console().print(write_few_machines(data_dir), highlight=False)


@app.command()
def merging_rivals(data_dir: DataDir = None) -> None:
    """Absorption beside other ways to merge the same networks; goes on where it was."""
    from studies.merging_rivals import write_merging_rivals

    Console().print(write_merging_rivals(data_dir), highlight=False)


@app.command()
def absorb_widths(data_dir: DataDir = None) -> None:
    """How wide absorption should leave a network, judged on kept-out engines; goes on where it was."""
    from studies.absorb_widths import write_absorb_widths

    Console().print(write_absorb_widths(data_dir), highlight=False)


@app.command()
def running(data_dir: DataDir = None) -> None:
    """Engines that still run: dropped, their certain rows used, and a survival model; goes on where it was."""
    from studies.still_running import write_still_running

    Console().print(write_still_running(data_dir), highlight=False)


@app.command()
def study(data_dir: DataDir = None) -> None:
    """The study of absorption: measure part by part on one core, or go on with it; `page` makes docs/study.md of it."""
    from studies.study.measure import FOLDER, measure
    from studies.study.summary import write_summary

    measure(data_dir)
    for path in write_summary(FOLDER, Path("docs/study")):
        Console().print(path, highlight=False)


@app.command()
def results(workers: Workers = None, data_dir: DataDir = None) -> None:
    """Everything: all presets, the pages and their pictures."""
    run(list(COMMITTED.presets), workers, data_dir)
    page()


def main() -> None:
    """Run the command; errors a user can act on come without a traceback."""
    try:
        app()
    except FedprognosError as error:
        Console(stderr=True).print(str(error), highlight=False, markup=False)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
