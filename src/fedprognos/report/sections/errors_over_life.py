"""Where in life the errors are: by true remaining life, or by position in life where health is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from fedprognos.report.method_entries import Entry, drawn, points_of
from fedprognos.report.page_elements import Figure, Panel, Section, Trace
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, dots, hover, layout, tidy

BINS = 6


def build(run: RunData) -> Section:
    """One figure."""
    return Section("Where in life the errors are", figures=[errors_figure(run)], folded=True)


def errors_figure(run: RunData) -> Figure:
    """Mean error and its spread, binned; all seeds together."""
    every = {e: points_of(run, e) for e in drawn(run) if len(points_of(run, e))}
    by, what = ("truth", "true remaining life") if run.task == "rul" else ("position", "position in life")
    reference = max(every.values(), key=len)
    edges = _edges(reference[by].to_numpy(dtype=float), run.cap if by == "truth" else None)
    labels = _labels(reference, by, edges, run.cap)
    traces = [_trace(run, e, points, by, edges, labels) for e, points in every.items()]
    label = "true remaining life" if by == "truth" else "cycle"
    x = axis(label, type="category", categoryorder="array", categoryarray=labels, tickangle=0)
    y = axis(f"predicted − true, {run.measured}", zeroline=True, zerolinewidth=2, nticks=8)
    panel = Panel("", traces, layout(x, y, scattermode="group", scattergap=0.35), 360)
    caption = (
        "Mark: mean error; bar: the middle 80 % of errors, all seeds. Above zero, predictions promise too much. Below "
        "each range: its number of test points."
    )
    chips = run.palette.chips(list(every), run.roles.keys)
    return Figure("life", f"Errors by {what}", caption + run.with_head, [("", [panel])], chips=chips, grid="wide")


def _edges(values: np.ndarray[tuple[int], np.dtype[np.float64]], cap: float | None) -> list[float]:
    """Equal bins; with a cap, equal ones up to it and one for all beyond."""
    low, high = float(values.min()), float(values.max())
    if cap is not None and high > cap:
        return [*np.linspace(0.0, cap, BINS).tolist(), high + 1.0]
    first = 0.0 if 0 <= low < 0.3 * high else low
    return [float(v) for v in np.linspace(first, high + 1e-9 * max(1.0, abs(high)), BINS + 1)]


def _labels(points: pd.DataFrame, by: str, edges: Sequence[float], cap: float | None) -> list[str]:
    test_points = points.drop_duplicates(["test_client", "unit", "position"])
    counts, _ = np.histogram(test_points[by].to_numpy(dtype=float), edges)
    names = [f"{low:.0f}–{high:.0f}" for low, high in pairwise(edges)]
    if cap is not None and edges[-2] == cap:
        names[-1] = f"> {cap:.0f}"
    return [f"{name}<br>{count}" for name, count in zip(names, counts, strict=True)]


def _trace(
    run: RunData, entry: Entry, points: pd.DataFrame, by: str, edges: Sequence[float], labels: Sequence[str]
) -> Trace:
    error = (points["prediction"] - points["truth"]).to_numpy(dtype=float)
    which = np.clip(np.digitize(points[by].to_numpy(dtype=float), edges) - 1, 0, len(labels) - 1)
    groups = [error[which == k] for k in range(len(labels))]
    kept = [k for k, group in enumerate(groups) if group.size]
    means = np.array([groups[k].mean() for k in kept])
    low, high = np.array([np.quantile(groups[k], [0.1, 0.9]) for k in kept]).T
    bars = {"array": tidy(np.maximum(high - means, 0)), "arrayminus": tidy(np.maximum(means - low, 0))}
    style = {"type": "data", "symmetric": False, "color": run.palette.colour(entry.method), "thickness": 2, "width": 3}
    marks = dots([], means, run.palette.mark(entry, 9), key=entry.key)
    return {
        **marks,
        "x": [labels[k] for k in kept],
        "error_y": {**style, **bars},
        "offsetgroup": entry.key,
        "hovertemplate": hover(entry.label, ": mean error %{y}"),
    }


sections.add(
    ReportSection(
        "errors_over_life", 50, "Where in life the errors are", build, lambda run: any(map(len, run.scored.values()))
    )
)
