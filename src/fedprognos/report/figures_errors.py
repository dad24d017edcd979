"""Errors by true remaining life, or by position in life where health is what is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from fedprognos.report.choosing import drawn, of_head, shown, with_points
from fedprognos.report.entries import Entry, scored
from fedprognos.report.looks import Figure, Palette, Panel, Trace, axis, chips, hover, layout, tidy
from fedprognos.report.material import Material, Setting, with_head

BINS = 6


def errors_figure(
    material: Material, setting: Setting, found: Sequence[Entry], palette: Palette, number: int
) -> Figure | None:
    """Mean error and its spread, binned; all seeds together."""
    chosen = with_points(setting, drawn(of_head(found, material.head)))
    if not chosen:
        return None
    by = "truth" if material.task == "rul" else "position"
    every = {e.key: scored(setting, e) for e in chosen}
    reference = max(every.values(), key=len)
    edges = _edges(reference[by].to_numpy(dtype=float), material.cap if by == "truth" else None)
    labels = _labels(reference, by, edges, material.cap is not None and edges[-2] == material.cap)
    visible = shown(chosen, material.head)
    traces = [_trace(e, every[e.key], by, edges, labels, palette, e.key in visible) for e in chosen]
    label = "true remaining life" if by == "truth" else "cycle"
    x = axis(label, type="category", categoryorder="array", categoryarray=labels, tickangle=0)
    y = axis(f"predicted − true, {material.measured}", zeroline=True, zerolinewidth=2, nticks=8)
    panel = Panel("", traces, layout(x, y, scattermode="group", scattergap=0.35), 360)
    what = "true remaining life" if by == "truth" else "position in life"
    caption = (
        f"Errors by {what}: mean (mark) and the middle 80 % (bar) of all seeds. "
        "Above zero the unit is believed healthier than it is. Below each bin its number of test points."
    ) + with_head(material)
    return Figure(
        f"errors{number}",
        f"Errors by {what}",
        caption,
        [("", [panel])],
        chips=chips(chosen, palette, visible),
        wide=True,
    )


def _edges(values: np.ndarray[tuple[int], np.dtype[np.float64]], cap: float | None) -> list[float]:
    """Equal bins; with a cap, equal ones up to it and one for all beyond."""
    low, high = float(values.min()), float(values.max())
    if cap is not None and high > cap:
        return [*np.linspace(0.0, cap, BINS).tolist(), high + 1.0]
    first = 0.0 if low >= 0 and low < 0.3 * high else low
    return [float(v) for v in np.linspace(first, high + 1e-9 * max(1.0, abs(high)), BINS + 1)]


def _labels(points: pd.DataFrame, by: str, edges: Sequence[float], capped: bool) -> list[str]:
    one = points.drop_duplicates(["test_client", "unit", "position"])
    counts, _ = np.histogram(one[by].to_numpy(dtype=float), edges)
    names = [f"{low:.0f}–{high:.0f}" for low, high in pairwise(edges)]
    if capped:
        names[-1] = f"> {edges[-2]:.0f}"
    return [f"{name}<br>{count}" for name, count in zip(names, counts, strict=True)]


def _trace(
    entry: Entry,
    points: pd.DataFrame,
    by: str,
    edges: Sequence[float],
    labels: Sequence[str],
    palette: Palette,
    visible: bool,
) -> Trace:
    error = (points["prediction"] - points["truth"]).to_numpy(dtype=float)
    which = np.clip(np.digitize(points[by].to_numpy(dtype=float), edges) - 1, 0, len(labels) - 1)
    groups = [error[which == k] for k in range(len(labels))]
    kept = [k for k, group in enumerate(groups) if group.size]
    means = np.array([groups[k].mean() for k in kept])
    low, high = np.array([np.quantile(groups[k], [0.1, 0.9]) for k in kept]).T
    colour = palette.colour(entry)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [labels[k] for k in kept],
        "y": tidy(means),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": tidy(np.maximum(high - means, 0)),
            "arrayminus": tidy(np.maximum(means - low, 0)),
            "color": colour,
            "thickness": 2,
            "width": 3,
        },
        "marker": {"color": colour, "size": 9, "symbol": palette.symbol(entry), "line": {"width": 2, "color": colour}},
        "offsetgroup": entry.key,
        "meta": {"key": entry.key},
        "visible": visible,
        "hovertemplate": hover(entry.label, ": mean error %{y}"),
    }
