"""Predictions beside the truth: units on their way through life with their intervals, and all test points at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.evaluation import ALPHA
from fedprognos.report.method_entries import Entry, drawn, points_of
from fedprognos.report.number_words import not_drawn, percent
from fedprognos.report.page_elements import Chip, Figure, Panel, Section, Trace
from fedprognos.report.run_data import BOUNDS, RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, band, dots, hover, layout, level, line, plain, thin

PANELS = 9
CLIENTS_DRAWN = 12
SCATTER_POINTS = 600
LINE_POINTS = 110
LINES_A_METHOD = 6
INTERVAL, NEAR, BEFORE = "interval", "near", "before"
TrainingPart = Mapping[str, Mapping[str, Any]]
"""What training knew of a client's test units: the first part of every cell's fade, by unit."""


def build(run: RunData) -> Section:
    """Units along their lives; remaining life also as clouds of points, behind a click."""
    entries = _with_points(run)
    clouds = Section("Every test point", figures=[scatter_figure(run, entries)], folded=True)
    return Section("Predictions", figures=[units_figure(run, entries)], parts=[clouds] if run.task == "rul" else [])


def _with_points(run: RunData) -> list[Entry]:
    return [e for e in drawn(run) if len(points_of(run, e))]


def scatter_figure(run: RunData, entries: Sequence[Entry]) -> Figure:
    """One panel a method, the best first, all on the same axes; of many the telling ones are kept."""
    kept = sorted(entries, key=lambda e: e.key not in run.roles.keys)[:PANELS]
    clouds = {}
    for e in sorted(kept, key=lambda e: float(e.mean(run.error) or 0.0)):
        points = points_of(run, e)
        clouds[e] = points[points["seed"] == points["seed"].min()]
    right = max(float(c["truth"].max()) for c in clouds.values()) * 1.05
    top = max(float(c["prediction"].max()) for c in clouds.values()) * 1.12
    diagonal = {"type": "line", "x0": 0, "y0": 0, "x1": min(right, top), "y1": min(right, top), "layer": "below"}
    shapes = [{**diagonal, "line": {"color": "ink", "width": 1.2}}, *([level(run.cap)] if run.cap else [])]
    panels = []
    for e, cloud in clouds.items():
        points = cloud.iloc[thin(len(cloud), SCATTER_POINTS)]
        names = [plain(f"{c} · {u}") for c, u in zip(points["test_client"], points["unit"], strict=True)]
        marker = {"color": run.palette.colour(e.method), "size": 7, "opacity": 0.7}
        tip = hover("", "%{text}<br>truth %{x}, predicted %{y}")
        trace = dots(points["truth"], points["prediction"], marker, text=names, hovertemplate=tip)
        x, y = axis("true remaining life", range=[0, right]), axis("predicted", range=[0, top])
        title = f"{e.short_label} · RMSE {e.mean(run.error):.3g}"
        panels.append(Panel(title, [trace], layout(x, y, shapes=shapes), 260))
    caption = f"First seed, {run.measured}. On the diagonal a prediction is right, above it promises too much."
    caption += f" No prediction passes the cap of {run.cap:g} (dotted)." if run.cap else ""
    notes = not_drawn(len(entries) - len(clouds), "method")
    if any(len(cloud) > SCATTER_POINTS for cloud in clouds.values()):
        notes.append(f"At most {SCATTER_POINTS} points a method are drawn.")
    title = "Predicted against true remaining life"
    return Figure("scatter", title, caption + run.with_head, [("", panels)], notes=notes)


def units_figure(run: RunData, entries: Sequence[Entry]) -> Figure:
    """Truth and predictions of units, cycle by cycle; chosen by client where there are many."""
    along = run.predictions[~run.predictions["scored"]]
    along = along if len(along) else run.predictions
    along = along[along["seed"] == along["seed"].min()]
    clients = {str(client): mine for client, mine in along.groupby("test_client", sort=True)}
    few = sum(mine["unit"].nunique() for mine in clients.values()) <= PANELS
    degradation = run.fleet.get("degradation", []) if run.fleet is not None and run.task == "soh" else []
    choices: list[tuple[str, list[Panel]]] = []
    for client, mine in list(clients.items())[: None if few else CLIENTS_DRAWN]:
        before = {d["unit"]: d for d in degradation if d["client"] == client and d["part"] == "train"}
        span, units = _span(run, mine, before), sorted(mine["unit"].unique())
        title = f"{client} · " if few and len(clients) > 1 else ""
        shown = [units[k] for k in thin(len(units), PANELS)]
        panels = [_panel(run, entries, mine[mine["unit"] == u], before.get(u), span, title, u) for u in shown]
        choices.append((client, panels))
    if few:
        choices = [("", [panel for _, panels in choices for panel in panels])]
    notes = [] if few else not_drawn(len(clients) - CLIENTS_DRAWN, "client")
    if any(mine["unit"].nunique() > PANELS for mine in clients.values()):
        notes.append(f"At most {PANELS} units a client are drawn.")
    soh, has_bounds = run.task == "soh", np.isfinite(along["low"].to_numpy(dtype=float)).any()
    chips = [Chip("truth", "truth", "ink"), *([Chip(BEFORE, "truth, training", "muted")] if degradation else [])]
    chips += [Chip(INTERVAL, "interval", "muted", "block")] if has_bounds else []
    chips += run.palette.chips(entries, run.roles.keys)
    chips += [] if soh else [Chip(NEAR, f"within {percent(ALPHA)} of the truth", "muted", "block", shown=False)]
    caption = f"Test units {'cycle by cycle' if soh else 'on their way to failure'}; first seed, {run.measured}."
    caption += f" Dotted: the cap of {run.cap:g}." if run.cap else ""
    title = run.forecast or ("Health by cycle" if soh else "Remaining life, predicted and true")
    return Figure("units", title, caption + run.with_head, choices, "client", chips, notes)


def _span(run: RunData, along: pd.DataFrame, before: TrainingPart) -> list[float]:
    """The height of a client's panels; wild predictions do not flatten the others."""
    truth = np.concatenate([along["truth"].to_numpy(dtype=float), *(np.array(d["value"]) for d in before.values())])
    low, high, prediction = float(truth.min()), float(truth.max()), along["prediction"]
    if run.task == "rul":
        ceiling = high if run.cap is None else min(high, 1.3 * run.cap)
        return [0.0, max(ceiling, float(prediction.quantile(0.99))) * 1.05]
    pad, reach = 0.08 * (high - low) or 0.1, 0.25 * (high - low)
    low = max(low - reach, min(low, float(prediction.quantile(0.01))))
    high = min(high + reach, max(high, float(prediction.quantile(0.99))))
    return [float(f"{low - pad:.4g}"), float(f"{high + pad:.4g}")]


def _panel(
    run: RunData,
    entries: Sequence[Entry],
    mine: pd.DataFrame,
    before: Mapping[str, Any] | None,
    span: list[float],
    title: str,
    unit: str,
) -> Panel:
    truth = mine.drop_duplicates("position").sort_values("position")
    kept = truth.iloc[thin(len(truth), LINE_POINTS)]
    x, tip = kept["position"].tolist(), hover("truth", " %{y} at %{x}")
    near = ((kept["truth"] * (1 + sign * ALPHA)).tolist() for sign in (-1, 1))
    traces: list[Trace] = [band(x, *near, key=NEAR)] if run.task == "rul" else []
    if before is not None:
        k = thin(len(before["position"]), LINE_POINTS)
        was = {"width": 1.6, "hovertemplate": hover("training", " %{y} at %{x}"), "key": BEFORE}
        traces.append(line(np.array(before["position"])[k], np.array(before["value"])[k], "muted", **was))
    traces.append(line(x, kept["truth"], "ink", width=2.2, hovertemplate=tip, key="truth"))
    for e in entries:
        entry_points = mine[(mine["method"] == e.method) & (mine["data"] == e.data) & (mine["head"] == (e.head or ""))]
        traces += _predicted(run, e, entry_points, 2 * span[1])
    shapes = [level(run.cap)] if run.cap else []
    title = unit if title == f"{unit} · " else title + unit
    return Panel(title, traces, layout(axis("cycle"), axis(range=span), shapes=shapes), 220)


def _predicted(run: RunData, entry: Entry, entry_points: pd.DataFrame, top: float) -> list[Trace]:
    """An entry's lines for one unit, one a model, with the interval where the model has any."""
    traces: list[Trace] = []
    several = entry_points["train_clients"].nunique() > 1
    for trained_by, points in list(entry_points.groupby("train_clients", sort=True))[:LINES_A_METHOD]:
        ordered = points.sort_values("position")
        part = ordered.iloc[thin(len(ordered), LINE_POINTS)]
        low, high = (part[bound].clip(upper=top).tolist() for bound in BOUNDS)
        if np.isfinite(low).all():
            traces.append(band(part["position"].tolist(), low, high, key=INTERVAL))
        tip = hover(f"{entry.label} ({trained_by})" if several else entry.label, " %{y} at %{x}")
        width = 1.2 if several else 1.8
        traces.append(run.palette.line(entry, part["position"], part["prediction"], tip, width=width))
    return traces


sections.add(ReportSection("predictions", 40, "Predictions", build, lambda run: bool(_with_points(run))))
