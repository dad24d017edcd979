"""The paper's pictures, drawn by the report's own figures from the JSON files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.lines import HEADS, NAMES
from experiments.lines import Setting as Lines
from experiments.lines import settings as lines_of
from experiments.record import Record
from experiments.svg import picture
from experiments.tables_paper import main_head
from fedprognos.evaluation import EVERYONE, trained_on
from fedprognos.evaluation.predictions import COLUMNS
from fedprognos.report.match_records import Extractors
from fedprognos.report.parts import Chip, Panel
from fedprognos.report.run_data import RunData
from fedprognos.report.sections.fleet import fleet_figures
from fedprognos.report.sections.matching import extractor_figures
from fedprognos.report.sections.predictions import scatter_figure, units_figure
from fedprognos.report.sections.rounds import rounds_figure
from fedprognos.report.style import Palette, axis, layout

COMPARED = {"soh": ("local", "fedma"), "rul": ("local", "fedavg", "fedma", "central")}
"""Whose predictions are drawn: too many lines hide each other, clouds have a panel each."""
SIGNALS, SIGNALS_OF = "discharges", "B0018"
DATA = (
    ("fade", "fade", "Capacity fade", 3),
    ("lifespans", "lifespans", "Lifespans", 3),
    ("targets", "targets", "Remaining life as it is learnt", 1),
)
"""Figures of the fleet by name: name and title of the picture, panels beside each other."""
CHANNELS = ("voltage", "temperature")
WIDTHS = ("fedavg", "concat", "fedma", "central", "single")


@dataclass(frozen=True)
class Picture:
    """A file of docs/results and what stands below it."""

    name: str
    title: str
    caption: str
    svg: str


def pictures(records: Mapping[str, Record]) -> list[Picture]:
    """All pictures the records allow."""
    found: list[Picture] = []
    for kind in ("battery", "turbofan"):
        rerun, tuned = records.get(f"{kind}-paper"), records.get(f"{kind}-tuned")
        first = rerun or tuned
        if first is not None:
            found += _fleet(kind, first)
        for record in (rerun, tuned):
            if record is not None:
                found += [*_rounds(record), *_predictions(record), *_extractors(record)]
        more = [r for name, r in records.items() if name.startswith(kind) and r is not rerun]
        found += _widths(kind, more)
    return found


def runs_of(record: Record) -> list[RunData]:
    """A record as the report reads it, one value a scenario."""
    runs = []
    for lines in lines_of(record):
        stored = record.pictures.get(lines.name, {})
        points = list(_points(stored.get("predictions", []), lines))
        frame = pd.DataFrame(points, columns=[*COLUMNS, "data"]).astype({"scored": bool})
        published = ("fedma", main_head(record, lines))
        runs.append(RunData(Path(), record.results, lines.name, frame, published, stored.get("fleet")))
    return runs


def _points(curves: Sequence[Mapping[str, Any]], lines: Lines) -> Iterator[dict[str, object]]:
    """Lines of a prediction file."""
    names = {"+".join(row.train_clients): row.train_clients for row in lines.rows}
    for curve in curves:
        shared = {key: curve[key] for key in ("method", "head", "train_clients", "test_client", "unit")}
        data = trained_on(names[curve["train_clients"]], lines.clients)
        for point in zip(curve["position"], curve["truth"], curve["prediction"], strict=True):
            numbers = dict(zip(("position", "truth", "prediction"), point, strict=True))
            yield {"scenario": lines.name, **shared, "seed": 0, **numbers, "scored": True, "data": data}


def _fleet(kind: str, record: Record) -> Iterator[Picture]:
    """What the data look like."""
    fleet = runs_of(record)[0].fleet
    figures = {} if fleet is None else {figure.name: figure for figure in fleet_figures(fleet)}
    if SIGNALS in figures:
        figure = figures[SIGNALS]
        label, panels = next((c for c in figure.choices if c[0].startswith(SIGNALS_OF)), figure.choices[-1])
        kept = [panel for panel in panels if panel.title.startswith(CHANNELS)]
        which = label.replace(f", unit {SIGNALS_OF}", "")
        text = f"Discharges of {which}: early in life pale, late strong."
        yield Picture(f"{kind}-signals", "Voltage and temperature", text, picture(figure.title, kept, columns=2))
    for name, what, title, columns in DATA:
        if name in figures:
            figure = figures[name]
            svg = picture(title, figure.choices[0][1], figure.chips, columns)
            yield Picture(f"{kind}-{what}", title, figure.caption, svg)


def _rounds(record: Record) -> Iterator[Picture]:
    """Test error over rounds with the head the preset publishes, a panel a test; none where nothing has rounds."""
    panels: list[Panel] = []
    chips: dict[str, Chip] = {}
    for run in runs_of(record):
        if max((h.round for h in run.history), default=1) < 2:
            continue
        figure = rounds_figure(run)
        chips |= {chip.key: chip for chip in figure.chips if chip.key != "fedprox"}
        several = len(figure.choices) > 1
        for label, choice in figure.choices[1:] if several else figure.choices:
            tests = [p for p in choice if p.title.startswith("test") and "MB" not in p.title]
            first = min(tests, key=lambda p: ("raw labels" not in p.title, f"{run.head} head" not in p.title))
            where = run.scenario if not several else label if run.scenario == EVERYONE else f"{label}, {run.scenario}"
            data = [trace for trace in first.data if trace["meta"]["key"] in chips]
            panels.append(replace(first, title=where, data=data))
    if panels:
        title = f"RMSE over rounds ({record.preset})"
        text = (
            "Test error after every round: thin lines are single seeds, thick ones their mean, marks the rounds that "
            "were chosen without the test. Dashed: training alone and central training, which know no rounds."
        )
        svg = picture(title, panels, _named(list(chips.values())), 2 if len(panels) in (2, 4) else 3)
        yield Picture(f"{record.preset}-rounds", title, text, svg)


def _predictions(record: Record) -> Iterator[Picture]:
    """The first setting's test predictions beside the truth."""
    run, head = runs_of(record)[0], main_head(record, lines_of(record)[0])
    wanted = [e for e in run.entries[EVERYONE] if e.method.partition("+")[0] in COMPARED[run.task] and e.honest]
    found = [e for e in wanted if e.head == head]
    if not len(run.predictions):
        return
    soh = run.task == "soh"
    figure = units_figure(run, found) if soh else scatter_figure(run, found)
    title = f"{figure.title} ({record.preset}, {head} head)"
    panels = [_test_part(panel) if soh else panel for panel in figure.choices[0][1]]
    drawn = ["truth", *(e.key for e in found)]
    chips = [replace(chip, shown=chip.key in drawn) for chip in figure.chips]
    svg = picture(title, panels, _named(chips), 3 if soh else 2)
    yield Picture(f"{record.preset}-predictions", title, f"Test data of seed 0, {run.measured}.", svg)


def _test_part(panel: Panel) -> Panel:
    """Without what training knew, and as large as the rest allows."""
    kept = [trace for trace in panel.data if trace["meta"]["key"] != "before"]
    axes = {name: {k: v for k, v in panel.layout[name].items() if k != "range"} for name in ("xaxis", "yaxis")}
    return replace(panel, data=kept, layout={**panel.layout, **axes})


def _named(chips: Sequence[Chip]) -> list[Chip]:
    """A legend by methods alone, each once."""
    found: dict[str, Chip] = {}
    for chip in chips:
        method = chip.key.partition("|")[0].partition("+")[0]
        found.setdefault(method, replace(chip, label=NAMES.get(method, chip.label)))
    return list(found.values())


def _extractors(record: Record) -> Iterator[Picture]:
    """Outputs of neurons before and after the first matching, in the first setting."""
    run = runs_of(record)[0]
    stored = record.pictures.get(run.scenario, {}).get("extractors")
    if stored is None:
        return
    for figure, when in zip(
        extractor_figures(run.clients, Extractors.model_validate(stored), "x"), ("before", "after"), strict=False
    ):
        title = f"{figure.title} ({record.preset})"
        panels = figure.choices[0][1]
        svg = picture(title, panels, figure.chips, 5, height=130)
        yield Picture(f"{record.preset}-extractors-{when}", title, figure.caption, svg)


def _widths(kind: str, records: Sequence[Record]) -> Iterator[Picture]:
    """Error against width of every federated model with the exact head; the bars are the spread over seeds."""
    if not records:
        return
    names = [s.name for s in lines_of(records[0])]
    palette = Palette({name: records[0].results.method(name) for name in WIDTHS}, "fedma")
    panels, drawn = [], set()
    for name in names[: 1 if kind == "battery" else 2]:
        traces = []
        found = [s for record in records for s in lines_of(record) if s.name == name]
        column = found[0].columns[-1 if kind == "battery" else 0]
        for line in (line for s in found for line in s.lines if line.base in WIDTHS and not line.own):
            sample, widths = line.sample(column), line.fact("width")
            if line.head != HEADS[1] or sample is None or not widths:
                continue
            drawn.add(line.base)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [sum(widths) / len(widths)],
                    "y": [sample.mean],
                    "error_y": {"array": [sample.spread or 0.0]},
                    "marker": {"color": palette.colour(line.base), "size": 9},
                }
            )
        if traces:
            shape = layout(axis("neurons of the recurrent layer"), axis(f"RMSE in {found[0].rows[0].measure}"))
            panels.append(Panel(f"{name}, {column.title}", traces, shape, 260))
    if "fedma" in drawn:
        chips = [Chip(m, NAMES[m], palette.colour(m), "solid") for m in WIDTHS if m in drawn]
        title = "Error against width, exact head"
        text = "Each mark is a method's mean over seeds, the line through it its spread."
        yield Picture(f"{kind}-widths", title, text, picture(title, panels, chips, 2))
