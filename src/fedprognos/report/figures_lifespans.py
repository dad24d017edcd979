"""Lifespans of the units, client by client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprognos.report.looks import Figure, Panel, Trace, axis, client_colours, layout, plain, tidy

PANELS = 9


def lifespans_figure(fleet: Mapping[str, Any], name: str) -> Figure | None:
    """Histograms side by side for a few clients with many units, else a row of dots a client."""
    cyclic = fleet["schema"]["task"] == "soh"
    source = fleet["tests"] if cyclic and set(fleet["tests"]) == set(fleet["clients"]) else fleet["clients"]
    lives = {client: np.array(facts["lifespans"], dtype=float) for client, facts in source.items()}
    lives = {client: values[np.isfinite(values)] for client, values in lives.items() if len(values)}
    if not lives:
        return None
    every = np.concatenate(list(lives.values()))
    if cyclic and (np.ptp(every) == 0 or max(len(v) for v in lives.values()) == 1):
        return None  # the table says it all
    unit = "cycles" if cyclic else fleet["schema"]["time_unit"]
    censored = sum(f["units"] - f["failed"] for f in source.values())
    what = "Cycles observed of every cell" if cyclic else "Length of life of every training unit"
    caption = f"{what}, in {unit}."
    if censored and not cyclic:
        caption += f" {censored} of {len(every)} units were stopped before they failed; theirs is the length observed."
    few = len(lives) <= PANELS and np.median([len(v) for v in lives.values()]) >= 8
    panels = _histograms(lives, every, unit, client_colours(fleet["clients"])) if few else [_strips(lives, every, unit)]
    return Figure(name, "Lifespans", caption, [("", panels)], wide=not few)


def _histograms(
    lives: Mapping[str, np.ndarray[Any, Any]], every: np.ndarray[Any, Any], unit: str, colours: Mapping[str, str]
) -> list[Panel]:
    edges = np.histogram_bin_edges(every, bins=min(24, max(8, int(np.sqrt(len(every)) * 1.5))))
    middle, width = (edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0])
    counts = {client: np.histogram(values, edges)[0] for client, values in lives.items()}
    top = max(int(c.max()) for c in counts.values()) * 1.08
    panels = []
    for client, count in counts.items():
        bars: Trace = {
            "type": "bar",
            "x": tidy(middle),
            "y": count.tolist(),
            "width": width * 0.92,
            "marker": {"color": colours.get(client, "accent")},
            "hovertemplate": "about %{x:.0f} " + plain(unit) + ": %{y} units<extra></extra>",
        }
        median = float(np.median(lives[client]))
        rule = {"type": "line", "x0": median, "x1": median, "yref": "paper", "y0": 0, "y1": 1}
        rule["line"] = {"color": "ink", "width": 1.5, "dash": "dot"}
        x, y = axis(unit, range=[float(edges[0]) - width, float(edges[-1]) + width]), axis("units", range=[0, top])
        title = f"{client} · {len(lives[client])} units, median {median:.0f}"
        panels.append(Panel(title, [bars], layout(x, y, shapes=[rule], bargap=0), 190))
    return panels


def _strips(lives: Mapping[str, np.ndarray[Any, Any]], every: np.ndarray[Any, Any], unit: str) -> Panel:
    names = list(lives)
    xs = np.concatenate([lives[name] for name in names])
    rows = np.concatenate([np.full(len(lives[name]), k) for k, name in enumerate(names)])
    jitter = np.random.default_rng(0).uniform(-0.18, 0.18, len(rows)) * (len(rows) > len(names))
    dots: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": tidy(xs),
        "y": tidy(rows + jitter),
        "marker": {"color": "accent", "size": 8, "opacity": 0.65},
        "hovertemplate": "%{x} " + plain(unit) + "<extra></extra>",
    }
    medians: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": tidy(np.median(lives[name]) for name in names),
        "y": list(range(len(names))),
        "marker": {"symbol": "line-ns", "size": 18, "line": {"color": "ink", "width": 2}},
        "hovertemplate": "median %{x}<extra></extra>",
    }
    pad = float(np.ptp(every)) * 0.06 or float(every[0]) * 0.1 or 1.0
    x = axis(unit, range=[max(0.0, float(every.min()) - pad), float(every.max()) + pad])
    y = axis(
        tickvals=list(range(len(names))),
        ticktext=[plain(n) for n in names],
        range=[len(names) - 0.5, -0.5],
        zeroline=False,
    )
    return Panel("", [dots, medians], layout(x, y), 90 + max(26, 34 - len(names)) * len(names))
