"""A figure of the report by itself, as plotly draws it in a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedprognos.errors import ConfigError, unknown_name
from fedprognos.report.page_elements import Figure, Section
from fedprognos.report.run_data import RunData, read_run
from fedprognos.report.sections import sections

COLUMNS = 3


def plot(folder: str | Path, figure: str, scenario: str | None = None, choice: int = 0) -> go.Figure:
    """One figure of a run's report, its panels beside each other."""
    runs = {run.scenario: run for run in read_run(folder)}
    if scenario is not None and scenario not in runs:
        raise unknown_name("scenario", scenario, runs)
    figures_by_name = figures(runs[scenario] if scenario is not None else next(iter(runs.values())))
    if figure not in figures_by_name:
        raise unknown_name("figure", figure, figures_by_name)
    chosen = figures_by_name[figure]
    if not 0 <= choice < len(chosen.choices):
        names = ", ".join(f"{k}: {name}" for k, (name, _) in enumerate(chosen.choices))
        raise ConfigError(f"figure '{figure}' has no choice {choice}", hint=names)
    return _drawn(chosen, choice)


def figures(run: RunData) -> dict[str, Figure]:
    """Every figure of a scenario's report by name."""
    built = [about.build(run) for about in sections.values() if about.applies(run)]
    return {figure.name: figure for section in built for figure in _within(section)}


def _within(section: Section) -> Iterator[Figure]:
    yield from section.figures
    for part in section.parts:
        yield from _within(part)


def _drawn(figure: Figure, choice: int) -> go.Figure:
    title, panels = figure.choices[choice]
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    drawn = make_subplots(rows, columns, subplot_titles=[panel.title for panel in panels])
    hidden = {chip.key for chip in figure.chips if not chip.shown}
    named = {chip.key: chip.label for chip in figure.chips}
    legend = set[str]()
    for k, panel in enumerate(panels):
        at = {"row": k // columns + 1, "col": k % columns + 1}
        for trace in panel.data:
            key = str(trace.get("meta", {}).get("key", ""))
            more: dict[str, Any] = {"visible": "legendonly"} if key in hidden else {}
            more |= {"name": named.get(key, ""), "legendgroup": key, "showlegend": key in named and key not in legend}
            legend.add(key)
            drawn.add_trace({**_painted(trace), **more}, **at)
        drawn.update_xaxes(_painted(panel.layout.get("xaxis", {})), **at)
        drawn.update_yaxes(_painted(panel.layout.get("yaxis", {})), **at)
    height = 90 + sum(max(p.height for p in panels[r * columns : (r + 1) * columns]) for r in range(rows))
    return drawn.update_layout(
        title={"text": f"{figure.title}{': ' if title else ''}{title}"}, template="plotly_white", height=height
    )


def _painted(value: Any, key: str = "") -> Any:
    """Colours as they are on the page in its light scheme; everything else as it is."""
    if isinstance(value, dict):
        return {k: _painted(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_painted(v, key) for v in value]
    return _colours().get(value, value) if isinstance(value, str) and re.search(r"color(scale)?$", key) else value


def _colours() -> dict[str, str]:
    style = (resources.files("fedprognos.report") / "style.css").read_text("utf-8")
    light = style[: style.index("@media")]
    return {name: colour.strip() for name, colour in re.findall(r"--([\w-]+):\s*([^;]+);", light)}
