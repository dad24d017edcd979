"""Federation round by round: the error after every round, and what it cost in messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedprognos.evaluation import HistoryRow
from fedprognos.report.choosing import comparable
from fedprognos.report.entries import NOT_FEDERATED, Entry
from fedprognos.report.looks import Chip, Figure, Palette, Panel, Trace, axis, hover, layout, line, tidy
from fedprognos.report.material import EVERYONE, PERSONAL, Material, Setting

CLIENTS_DRAWN = 12
Runs = Mapping[str, Mapping[int, Sequence[HistoryRow]]]
"""Rounds in order, by method and seed."""
Chosen = Mapping[tuple[str, int], int]
"""The round that was chosen, by method and seed."""


def rounds_of(material: Material, setting: Setting, head: str, view: str) -> dict[str, dict[int, list[HistoryRow]]]:
    """The federated methods after every round, tested on one client or on everybody."""
    rows = [
        r
        for r in material.results.history
        if r.scenario == setting.name and r.epoch is None and r.head == head and r.method not in NOT_FEDERATED
    ]
    tested = {r.client for r in rows}
    wanted = view if view in tested else EVERYONE if EVERYONE in tested else next(iter(sorted(tested)), "")
    found: dict[str, dict[int, list[HistoryRow]]] = {}
    for row in sorted((r for r in rows if r.client == wanted), key=lambda r: (r.seed, r.round)):
        found.setdefault(row.method, {}).setdefault(row.seed, []).append(row)
    return found


def chosen_rounds(setting: Setting, head: str) -> dict[tuple[str, int], int]:
    """The round whose model is in the table, by method and seed."""
    rows = [r for r in setting.rows if r.head == head and r.selected_on != "test" and r.round is not None]
    return {(r.method, r.seed): r.round for r in rows if r.round is not None}


def heads_with_rounds(material: Material, setting: Setting) -> list[str]:
    """Heads that were examined after every round."""
    return [h for h in material.heads if h != PERSONAL and rounds_of(material, setting, h, EVERYONE)]


def rounds_figure(
    material: Material, setting: Setting, seen: Mapping[str, Sequence[Entry]], palette: Palette, number: int
) -> Figure | None:
    """RMSE over rounds, a choice a test client; a row of panels a head."""
    heads = heads_with_rounds(material, setting)
    if not heads:
        return None
    clients = [] if setting.shared_test or len(setting.clients) == 1 else list(setting.clients)
    choices = []
    for view in (EVERYONE, *clients[:CLIENTS_DRAWN]):
        panels = []
        for head in heads:
            runs = rounds_of(material, setting, head, view)
            level = [e for e in comparable(seen[view]) if e.head == head and e.method in ("local", "central")]
            chosen = chosen_rounds(setting, head)
            panels += _panels(material, runs, chosen, level, palette, head if len(heads) > 1 else "")
        choices.append(("all clients together" if view == EVERYONE else view, panels))
    methods = list(rounds_of(material, setting, heads[0], EVERYONE))
    legend = [Chip(m, m, palette.colour_of(m), "solid") for m in methods]
    levels = dict.fromkeys(e.method for e in seen[EVERYONE] if e.method in ("local", "central"))
    legend += [Chip(m, m, palette.colour_of(m), "dash") for m in levels]
    caption = (
        "Thin lines are single seeds, thick ones their mean; a mark shows the round that was chosen. Dashed: each "
        "client alone and all data in one place, which know no rounds. The validation part is what the clients kept "
        "out of training, all of them together, whoever is tested; it decides about the round, the test does not."
    )
    left = len(clients) - CLIENTS_DRAWN
    notes = [f"{left} more clients are not drawn."] if left > 0 else []
    if PERSONAL in material.heads:
        notes.append("Personal heads are made once, after the chosen round, and have no course over rounds.")
    grid = "pairs" if material.cap is None else ""
    return Figure(f"rounds{number}", "Error over rounds", caption, choices, "tested on", legend, notes, grid=grid)


def _panels(
    material: Material, runs: Runs, chosen: Chosen, level: Sequence[Entry], palette: Palette, head: str
) -> list[Panel]:
    fields = [("rmse", "test"), ("validation_rmse", "validation part")]
    if material.cap is not None:
        fields = [("rmse", "test, raw labels"), ("rmse_capped", "test, capped"), ("validation_rmse", fields[1][1])]
    last = max((r.round for seeds in runs.values() for rows in seeds.values() for r in rows), default=1)
    x = axis("round", range=[0.5, last + 0.5], tickformat="d", **({"dtick": 1} if last <= 12 else {}))
    panels = []
    for field, label in fields:
        traces = []
        for entry in level:
            mean = entry.mean(field) if field != "validation_rmse" else None
            if mean is not None:
                text, colour = hover(entry.label, ": %{y}"), palette.colour(entry)
                both = [0.5, last + 0.5]
                traces.append(
                    line(both, [mean] * 2, colour, dash="dash", hovertemplate=text, meta={"key": entry.method})
                )
        for method, seeds in runs.items():
            traces += _course(method, seeds, chosen, field, palette)
        if any(t["mode"] != "lines" or t["line"]["dash"] == "solid" for t in traces):
            y = axis(f"RMSE {material.measured}")
            panels.append(Panel(f"{label}, {head} head" if head else label, traces, layout(x, y), 250))
    return panels


def _course(
    method: str, seeds: Mapping[int, Sequence[HistoryRow]], chosen: Chosen, field: str, palette: Palette
) -> list[Trace]:
    """One method: seeds as one thin line with gaps, their mean, and the chosen rounds."""
    colour, same = palette.colour_of(method), {"meta": {"key": method}}
    curves = {s: {r.round: value(r, field) for r in rows} for s, rows in seeds.items()}
    every = [v for curve in curves.values() for v in curve.values() if np.isfinite(v)]
    if not every:
        return []
    traces: list[Trace] = []
    if len(curves) > 1:
        x = [v for curve in curves.values() for v in (*curve, np.nan)]
        y = [v for curve in curves.values() for v in (*curve.values(), np.nan)]
        text = hover(method, ", one seed: %{y}")
        traces.append(line(x, y, colour, width=1, opacity=0.5, hovertemplate=text, **same))
    rounds = [r for r in sorted({r for c in curves.values() for r in c}) if all(r in c for c in curves.values())]
    mean = [float(np.mean([c[r] for c in curves.values()])) for r in rounds]
    label = hover(method, ", round %{x}: %{y}" + (" (mean)" if len(curves) > 1 else ""))
    traces.append(line(rounds, mean, colour, width=2.6, hovertemplate=label, **same))
    picked = [(r, c[r]) for seed, c in curves.items() if (r := chosen.get((method, seed), -1)) in c]
    mark = {"color": colour, "size": 10, "symbol": palette.symbol_of(method), "line": {"width": 1, "color": "paper"}}
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": [r for r, _ in picked],
            "y": tidy(v for _, v in picked),
            "marker": mark,
            "hovertemplate": hover(method, ", chosen: round %{x}: %{y}"),
            **same,
        }
    )
    return traces


def value(row: HistoryRow, field: str) -> float:
    """A metric as a number; not a number where there is none."""
    found: Any = getattr(row, field)
    return float("nan") if found is None else float(found)
