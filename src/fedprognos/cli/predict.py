"""`fedprognos predict BUNDLE DATA`: health of units from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedprognos.cli.console import TrustFile, escaped, plain_console, read_trust, share_bar
from fedprognos.errors import unknown_name

if TYPE_CHECKING:
    from fedprognos.prognosis import FilePrediction, Health, Predictor

SHOWN = 30


def predict(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder, or a file that `fedprognos export` wrote.")],
    data: Annotated[str, typer.Argument(help="CSV, Excel or Parquet: a file, a folder or a pattern.")],
    out: Annotated[Path | None, typer.Option("--out", help="File to write: .csv, .csv.gz or .parquet.")] = None,
    head: Annotated[Path | None, typer.Option("--head", help="A site's personal head (.safetensors).")] = None,
    every: Annotated[bool, typer.Option("--all", help="Health at every row or cycle, not just now.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Name the sensors that changed each health most.")] = False,
    coverage: Annotated[float, typer.Option("--coverage", help="Share of true values in the interval.")] = 0.9,
    runtime: Annotated[str, typer.Option("--runtime", help="torch or onnx.")] = "torch",
    unit: Annotated[str | None, typer.Option("--unit", help="Column of the unit; - where a file is one unit.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Column of the time.")] = None,
    cycle: Annotated[str | None, typer.Option("--cycle", help="Column of the cycle number.")] = None,
    trust: TrustFile = None,
) -> None:
    """Turn files of sensor rows into the health of every unit.

    Columns are those of the training table: the model remembers them, how files were written, and what stands in for
    blank cells.

    Example: fedprognos predict runs/fleet/bundle new_rows.csv --out health.csv
    """
    from fedprognos.prognosis import predict_files

    predictor = _predictor(bundle, head, runtime, trust)
    with share_bar("predicting") as progress:
        done = predict_files(
            predictor,
            data,
            out,
            every=every,
            coverage=coverage,
            unit=unit,
            time=time,
            cycle=cycle,
            why=why,
            progress=progress,
        )
    console = plain_console()
    if out is None:
        console.print(_table(done, predictor))
    _summary(console, done, out)
    Console(stderr=True).print(escaped(predictor.signature), soft_wrap=True, highlight=False)
    if predictor.no_intervals:
        text = f"no intervals: {predictor.no_intervals} (docs/predict.md, Intervals)"
        console.print(escaped(text), markup=False, soft_wrap=True)
    if predictor.unchecked:
        text = f"not checked: {'; '.join(predictor.unchecked)} (docs/predict.md, How far to trust a value)"
        console.print(escaped(text), markup=False, soft_wrap=True)


def _predictor(bundle: Path, head: Path | None, runtime: str, trust: Path | None) -> Predictor:
    if runtime not in ("torch", "onnx"):
        raise unknown_name("runtime", runtime, ("torch", "onnx"))
    if runtime == "onnx" or bundle.suffix.lower() == ".onnx":
        from fedprognos.prognosis import OnnxPredictor

        return OnnxPredictor.load(bundle, head, read_trust(trust))
    from fedprognos.prognosis import Predictor

    return Predictor.load(bundle, head, read_trust(trust))


def _table(done: FilePrediction, predictor: Predictor) -> Table:
    """A line a unit: those in doubt first, because nobody knows how long they last, then the most urgent."""
    from fedprognos.prognosis import DISTRUSTED, dates

    until = ["until"] if done.measure is not None else []
    interval = "interval" if predictor.calibration is not None else "no intervals"
    value_name, causes = f"{predictor.target} ({predictor.target_measure})", ["why"] if done.why else []
    table = Table("unit", "at", value_name, *until, interval, *causes, "note", box=None)
    ahead = predictor.recipe.ahead
    ordered = sorted(done.now, key=lambda h: (h.value is None, DISTRUSTED.isdisjoint(h.flags), h.value or 0.0))
    for health in ordered[:SHOWN]:
        value, bounds = _value_and_bounds(health)
        note = ", ".join(x for x in (*health.flags, health.reason) if x)
        at, *end = (f"{health.position:g}",) if done.measure is None else dates(health, done.measure, ahead)
        explained = done.why[health.unit].words if health.unit in done.why else ""
        words = [escaped(explained)] if done.why else []
        table.add_row(escaped(health.unit), at, value, *(e or "" for e in end), bounds, *words, escaped(note))
    if len(ordered) > SHOWN:
        table.add_row(f"and {len(ordered) - SHOWN} more (--out FILE)")
    return table


def _value_and_bounds(health: Health) -> tuple[str, str]:
    """Value and interval of a health in words, with "or more" at the cap and a question mark in doubt."""
    from fedprognos.prognosis import AT_CAP, DISTRUSTED, WORN

    low, high = health.low, health.high
    if health.value is None or WORN in health.flags:
        return (health.state if health.value is None else WORN), ""
    value = f"{health.value:.4g}"
    if not DISTRUSTED.isdisjoint(health.flags):
        return f"{value} ?", "not known"
    bounds = "" if high is None else f"up to {high:.4g}" if low is None else f"{low:.4g} to {high:.4g}"
    if low is not None and high is None:
        bounds = f"{low:.4g} or more"
    return f"{value} or more" if AT_CAP in health.flags else value, bounds


def _summary(console: Console, done: FilePrediction, out: Path | None) -> None:
    from fedprognos.prognosis import Verdict

    states = ", ".join(f"{count} {state}" for state, count in sorted(done.states.items()))
    lines = [f"{done.rows} rows of {len(done.now)} units; {done.written} healths: {states}"]
    if done.past:
        lines.append(f"of repaired machines the latest life; {done.past} earlier ones are in --all")
    if done.flags:
        lines.append("flags: " + ", ".join(f"{count} {flag}" for flag, count in sorted(done.flags.items())))
    if done.first_refusal:
        listed = ", ".join(f"{count} {verdict}" for verdict, count in done.counts.items() if verdict != "accepted")
        lines.append(f"rows passed over: {listed}; the first: {done.first_refusal}")
    if 10 * done.counts[Verdict.LATE] > done.rows:
        lines.append("many rows are not in order of time: do not trust these healths; sort the file by time")
    if done.filled:
        lines.append("blank cells filled: " + ", ".join(f"{count} of {name}" for name, count in done.filled.items()))
    if out is not None:
        lines.append(f"wrote {out}")
    for line in lines:
        console.print(escaped(line), soft_wrap=True)
