"""Prediction intervals along the lives of some test units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedprognos.report.entries import Entry
from fedprognos.report.looks import Chip, Figure, Palette, Panel, Trace, axis, hover, layout, line, thin, tidy
from fedprognos.report.material import BOUNDS, Material, Setting
from fedprognos.report.words import number as in_digits
from fedprognos.report.words import percent

UNITS = 9
LINE_POINTS = 110


def interval_figure(
    material: Material, setting: Setting, found: Sequence[Entry], palette: Palette, number: int
) -> Figure | None:
    """Prediction, interval and truth of some test units, first seed; None where the run made no intervals."""
    lines = setting.predictions
    lines = lines[np.isfinite(lines["low"].to_numpy(dtype=float))]
    measured = [e for e in found if e.honest and e.mean("coverage") is not None]
    if not len(lines) or not measured:
        return None
    entry = measured[0]
    mine = lines[(lines["method"] == entry.method) & (lines["head"] == (entry.head or ""))]
    mine = mine[mine["seed"] == mine["seed"].min()]
    whole = mine[~mine["scored"]]
    mine = whole if len(whole) else mine
    if not len(mine):
        return None
    units = list(mine.groupby(["test_client", "unit"], sort=True))
    top = float(mine[["truth", "prediction"]].max().max()) * 1.15
    panels = [_panel(units[k][0], units[k][1], entry, palette, top) for k in thin(len(units), UNITS)]
    coverage, width = entry.mean("coverage"), entry.mean("interval_width")
    asked = material.results.config.get("evaluation", {}).get("coverage", 0.9)
    caption = (
        f"{entry.short_label}, first seed: prediction with the interval that should hold {percent(asked)} of the true "
        f"values. Measured on the scored test points, mean over seeds: {percent(coverage or 0.0)}, mean width "
        f"{in_digits(width)} {material.unit}. Intervals come from units that models had not learnt from, each range of "
        "predictions by itself; they step where ranges meet."
    )
    colour = palette.colour(entry)
    legend = [
        Chip("truth", "truth", "ink", "solid"),
        Chip("prediction", "prediction", colour, "solid"),
        Chip("interval", "interval", "muted", "solid"),
    ]
    return Figure(f"intervals{number}", "Prediction intervals", caption, [("", panels)], chips=legend)


def _panel(pair: tuple[str, str], points: pd.DataFrame, entry: Entry, palette: Palette, top: float) -> Panel:
    ordered = points.sort_values("position")
    kept = ordered.iloc[thin(len(ordered), LINE_POINTS)]
    x = kept["position"].to_numpy(dtype=float)
    low, high = (np.clip(kept[bound].to_numpy(dtype=float), 0.0, 2 * top) for bound in BOUNDS)
    area: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": tidy([*x, *x[::-1]]),
        "y": tidy([*high, *low[::-1]]),
        "fill": "toself",
        "fillcolor": "band",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "meta": {"key": "interval"},
    }
    text = [f"{a:.4g} to {b:.4g}" for a, b in zip(kept["low"], kept["high"], strict=True)]
    told = hover(entry.short_label, " %{y} (%{text}) at %{x}")
    traces = [
        area,
        line(x, kept["truth"], "ink", width=2.2, hovertemplate=hover("truth", " %{y} at %{x}"), meta={"key": "truth"}),
        line(x, kept["prediction"], palette.colour(entry), text=text, hovertemplate=told, meta={"key": "prediction"}),
    ]
    title = pair[1] if pair[0] in ("all", pair[1]) else f"{pair[0]} · {pair[1]}"
    return Panel(title, traces, layout(axis("cycle"), axis(range=[0, float(f"{top:.4g}")])), 220)
