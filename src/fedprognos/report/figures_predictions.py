"""Predictions beside the truth: all test points at once, and units on their way through life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedprognos.report.choosing import drawn, of_head, shown, with_points
from fedprognos.report.entries import Entry, scored
from fedprognos.report.looks import Chip, Figure, Palette, Panel, Trace, axis, chips, layout, line, plain, thin, tidy
from fedprognos.report.material import Material, Setting, with_head

PANELS = 9
CLIENTS_DRAWN = 12
SCATTER_POINTS = 600
LINE_POINTS = 110
LINES_A_METHOD = 6


def prediction_figures(
    material: Material, setting: Setting, found: Sequence[Entry], palette: Palette, number: int
) -> list[Figure]:
    """Figures of one setting's predictions; none where there are none."""
    chosen = with_points(setting, drawn(of_head(found, material.head)))
    if not chosen:
        return []
    visible = shown(chosen, material.head)
    figures = [_lives(material, setting, chosen, visible, palette, f"predictions{number}-lives")]
    if material.task == "rul":
        figures.insert(0, _scatter(material, setting, chosen, visible, palette, f"predictions{number}-scatter"))
    return figures


def _scatter(
    material: Material, setting: Setting, found: Sequence[Entry], visible: Sequence[str], palette: Palette, name: str
) -> Figure:
    """One panel a method, the best first, all on the same axes; of many the telling ones are kept."""
    ranked = sorted(found, key=lambda e: float(e.mean("rmse") or 0.0))
    kept = sorted(ranked, key=lambda e: e.key not in visible)[:PANELS]
    ordered = [e for e in ranked if e in kept]
    clouds, thinned = {}, False
    for e in ordered:
        points = scored(setting, e)
        points = points[points["seed"] == points["seed"].min()]
        thinned |= len(points) > SCATTER_POINTS
        clouds[e.key] = points.iloc[thin(len(points), SCATTER_POINTS)]
    truth_top = max(float(c["truth"].max()) for c in clouds.values()) * 1.05
    top = max(float(c["prediction"].max()) for c in clouds.values()) * 1.12
    guides = _diagonal(truth_top, top, material.cap)
    panels = []
    for e in ordered:
        points = clouds[e.key]
        names = [plain(f"{c} · {u}") for c, u in zip(points["test_client"], points["unit"], strict=True)]
        cloud: Trace = {
            "type": "scatter",
            "mode": "markers",
            "x": tidy(points["truth"]),
            "y": tidy(points["prediction"]),
            "text": names,
            "marker": {"color": palette.colour(e), "size": 7, "opacity": 0.7},
            "hovertemplate": "%{text}<br>truth %{x}, predicted %{y}<extra></extra>",
        }
        x, y = axis("true remaining life", range=[0, truth_top]), axis("predicted", range=[0, top])
        panels.append(Panel(f"{e.short_label} · RMSE {e.mean('rmse'):.3g}", [cloud], layout(x, y, shapes=guides), 260))
    left = len(found) - len(ordered)
    caption = (
        f"Every scored test point, first seed, {material.measured}. "
        "On the diagonal the prediction is right, above it late."
    ) + with_head(material)
    if material.cap is not None:
        caption += (
            f" Predictions cannot pass the cap of {material.cap:g} (dotted): right of it the best answer is the cap."
        )
    notes = [f"{left} more methods are not drawn."] if left else []
    if thinned:
        notes.append(f"At most {SCATTER_POINTS} points a method are drawn.")
    return Figure(name, "Predicted against true remaining life", caption, [("", panels)], notes=notes)


def _diagonal(right: float, top: float, cap: float | None) -> list[dict[str, Any]]:
    end = min(right, top)
    shapes: list[dict[str, Any]] = [
        {"type": "line", "x0": 0, "y0": 0, "x1": end, "y1": end, "line": {"color": "ink", "width": 1.2}}
    ]
    if cap is not None:
        dotted = {"color": "muted", "width": 1.2, "dash": "dot"}
        shapes.append({"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": cap, "y1": cap, "line": dotted})
    return [{**shape, "layer": "below"} for shape in shapes]


def _lives(
    material: Material, setting: Setting, found: Sequence[Entry], visible: Sequence[str], palette: Palette, name: str
) -> Figure:
    """Truth and predictions of units, cycle by cycle; chosen by client where there are many."""
    lines = setting.predictions
    whole = lines[~lines["scored"]]
    lives = whole if len(whole) else lines[lines["scored"]]
    lives = lives[lives["seed"] == lives["seed"].min()]
    units = list(lives.groupby(["test_client", "unit"], sort=True).groups)
    by_client: dict[str, list[str]] = {}
    for client, unit in units:
        by_client.setdefault(client, []).append(unit)
    history = _known_before(setting)
    spans = {client: _span(material, lives, history, client) for client in by_client}

    def panels(chosen: Sequence[tuple[str, str]], with_client: bool) -> list[Panel]:
        return [
            _life(material, lives, pair, found, visible, palette, history, spans[pair[0]], with_client)
            for pair in chosen
        ]

    if len(units) <= PANELS:
        choices = [("", panels(units, len(by_client) > 1))]
    else:
        choices = [
            (client, panels([(client, by_client[client][k]) for k in thin(len(by_client[client]), PANELS)], False))
            for client in list(by_client)[:CLIENTS_DRAWN]
        ]
    notes = []
    if len(units) > PANELS:
        if (left := len(by_client) - CLIENTS_DRAWN) > 0:
            notes.append(f"{left} more clients are not drawn.")
        if any(len(u) > PANELS for u in by_client.values()):
            notes.append(f"At most {PANELS} units a client are drawn.")
    soh = material.task == "soh"
    legend = [Chip("truth", "truth", "ink", "solid"), *chips(found, palette, visible)]
    if soh and history:
        legend.insert(1, Chip("before", "truth, training", "muted", "solid"))
    what = (
        "measured and predicted, cycle by cycle" if soh else "how the prediction follows a unit's true remaining life"
    )
    caption = (
        f"Test units, {what}; first seed, {material.measured}. Switch methods on and off in the legend."
        + with_head(material)
    )
    if material.cap is not None:
        caption += f" Dotted: the cap of {material.cap:g}; the truth comes from above where more life is left."
    title = "Capacity by cycle" if soh else "Units on their way through life"
    return Figure(name, title, caption, choices, "client", legend, notes)


def _known_before(setting: Setting) -> dict[tuple[str, str], Mapping[str, Any]]:
    """What training knew of the test units: the first part of every cell's fade."""
    fleet = setting.fleet
    if fleet is None or fleet["schema"]["task"] != "soh":
        return {}
    return {(d["client"], d["unit"]): d for d in fleet.get("degradation", []) if d["part"] == "train"}


def _span(
    material: Material, lives: pd.DataFrame, history: Mapping[tuple[str, str], Mapping[str, Any]], client: str
) -> list[float]:
    """The height of a client's panels."""
    lives = lives[lives["test_client"] == client]
    history = {pair: d for pair, d in history.items() if pair[0] == client}
    truth = np.concatenate([lives["truth"].to_numpy(dtype=float), *(np.array(d["value"]) for d in history.values())])
    low, high = float(truth.min()), float(truth.max())
    if material.task == "rul":
        ceiling = high if material.cap is None else min(high, 1.3 * material.cap)
        return [0.0, max(ceiling, float(lives["prediction"].quantile(0.99))) * 1.05]
    pad = 0.08 * (high - low) or 0.1
    reach = 0.25 * (high - low)
    guesses = lives[lives["method"] != "constant"]["prediction"]
    if len(guesses):
        low = max(low - reach, min(low, float(guesses.quantile(0.01))))
        high = min(high + reach, max(high, float(guesses.quantile(0.99))))
    return [float(f"{low - pad:.4g}"), float(f"{high + pad:.4g}")]


def _life(
    material: Material,
    lives: pd.DataFrame,
    pair: tuple[str, str],
    found: Sequence[Entry],
    visible: Sequence[str],
    palette: Palette,
    history: Mapping[tuple[str, str], Mapping[str, Any]],
    span: list[float],
    with_client: bool,
) -> Panel:
    mine = lives[(lives["test_client"] == pair[0]) & (lives["unit"] == pair[1])]
    truth = mine.drop_duplicates("position").sort_values("position")
    kept = truth.iloc[thin(len(truth), LINE_POINTS)]
    hover = "%{y} at %{x}<extra></extra>"
    traces = [
        line(kept["position"], kept["truth"], "ink", width=2.2, hovertemplate="truth " + hover, meta={"key": "truth"})
    ]
    if pair in history:
        before = history[pair]
        k = thin(len(before["position"]), LINE_POINTS)
        x, y = np.array(before["position"])[k], np.array(before["value"])[k]
        traces.insert(0, line(x, y, "muted", width=1.6, hovertemplate="training " + hover, meta={"key": "before"}))
    for e in found:
        own = mine[(mine["method"] == e.method) & (mine["scope"] == e.scope) & (mine["head"] == (e.head or ""))]
        for trained_by, points in list(own.groupby("train_clients", sort=True))[:LINES_A_METHOD]:
            ordered = points.sort_values("position")
            part = ordered.iloc[thin(len(ordered), LINE_POINTS)]
            several = own["train_clients"].nunique() > 1
            who = plain(f"{e.label} ({trained_by})" if several else e.label).replace("%{", "% {")
            traces.append(
                line(
                    part["position"],
                    part["prediction"],
                    palette.colour(e),
                    width=1.8 if not several else 1.2,
                    dash=palette.dash(e),
                    hovertemplate=f"{who} {hover}",
                    meta={"key": e.key},
                    visible=e.key in visible,
                )
            )
    shapes: list[dict[str, Any]] = []
    if material.cap is not None:
        dotted = {"color": "muted", "width": 1, "dash": "dot"}
        cap = material.cap
        shapes = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": cap, "y1": cap, "line": dotted}]
    title = f"{pair[0]} · {pair[1]}" if with_client and pair[0] != pair[1] else pair[1]
    return Panel(title, traces, layout(axis("cycle"), axis(range=span), shapes=shapes), 220)
