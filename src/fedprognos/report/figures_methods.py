"""Errors of the methods as dots with intervals, and the course of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedprognos.evaluation import HistoryRow
from fedprognos.report.choosing import of_head
from fedprognos.report.entries import Entry
from fedprognos.report.looks import Figure, Palette, Panel, Trace, axis, hover, layout, line, plain, tidy
from fedprognos.report.material import EVERYONE, PERSONAL, Material, Setting

PANELS = 9
LINES = 60


def error_figure(
    material: Material, setting: Setting, seen: dict[str, list[Entry]], palette: Palette, number: int
) -> Figure | None:
    """RMSE of every entry, from everybody's side and from each client's."""
    if not seen.get(EVERYONE):
        return None
    clients = [view for view in seen if view != EVERYONE and seen[view]]
    whole = "on the common test" if setting.shared_test else "all clients' tests together"
    fields = [("rmse", "against raw labels")]
    if material.cap is not None and any(e.values("rmse_capped").size for e in seen[EVERYONE]):
        fields.append(("rmse_capped", f"against labels capped at {material.cap:g}"))
    heads: list[str | None] = [head for head in material.heads if head != PERSONAL]
    heads = heads or [material.head]
    choices = []
    for head in heads:
        for field, label in fields:
            own = f", {head} head" if len(heads) > 1 else ""
            mine = {view: [e for e in of_head(seen[view], head) if e.honest] for view in (EVERYONE, *clients[:PANELS])}
            data, style, height = _dots(
                mine[EVERYONE], field, material.measured, _top(mine[EVERYONE], field), palette, 15
            )
            panels = [Panel(whole if clients else "", data, style, height)]
            top = _top([e for client in clients[:PANELS] for e in mine[client]], field)
            for client in clients[:PANELS]:
                data, style, height = _dots(mine[client], field, material.measured, top, palette, 13)
                panels.append(Panel(f"seen from {client}", data, style, height))
            choices.append((label + own, panels))
    left = len(clients) - PANELS
    caption = (
        "Large mark: mean over seeds (hollow: a client trained on its own data). Bar: 95 % interval when the test "
        "units are drawn anew. Small dots: single seeds. Lower is better."
    )
    if len(heads) > 1:
        caption += f" Every method ends in the {heads[0]} head unless another is chosen; the table has them all."
    notes = [f"{left} more clients are not drawn; their numbers are in the tables."] if left > 0 else []
    return Figure(f"methods{number}-rmse", "Error of every method", caption, choices, "RMSE", notes=notes, wide=True)


def _top(found: Sequence[Entry], field: str) -> float:
    return max((_reach(e, field) for e in found), default=0.0) * 1.04 or 1.0


def _reach(entry: Entry, field: str) -> float:
    bounds = entry.interval(field == "rmse_capped")
    return float(max([*entry.values(field).tolist(), *(bounds or ()), 0.0]))


def _dots(
    found: Sequence[Entry], field: str, measured: str, top: float, palette: Palette, size: int
) -> tuple[list[Trace], dict[str, Any], int]:
    ordered = sorted((e for e in found if e.mean(field) is not None), key=lambda e: float(e.mean(field) or 0.0))
    traces: list[Trace] = []
    for k, e in enumerate(ordered):
        values, bounds, colour = e.values(field), e.interval(field == "rmse_capped"), palette.colour(e)
        if bounds is not None:
            traces.append(line(bounds, [k, k], colour, width=3, opacity=0.45, hoverinfo="skip"))
        if len(values) > 1:
            dots = {"color": colour, "size": 4.5, "opacity": 0.9}
            small = {"type": "scatter", "mode": "markers", "x": tidy(values), "y": [k + 0.34] * len(values)}
            traces.append({**small, "marker": dots, "hovertemplate": "one seed: %{x}<extra></extra>"})
        text = f": {values.mean():.4g}"
        text += f" ± {values.std():.2g} over {len(values)} seeds" if len(values) > 1 else ""
        text += f"<br>95 % interval {bounds[0]:.4g} to {bounds[1]:.4g}" if bounds is not None else ""
        mark = {"color": colour, "size": size - 3, "symbol": palette.symbol(e), "line": {"width": 2, "color": colour}}
        large = {"type": "scatter", "mode": "markers", "x": tidy([float(values.mean())]), "y": [k]}
        traces.append({**large, "marker": mark, "hovertemplate": hover(e.label, text)})
    names = [plain(_short(e.short_label)) for e in ordered]
    y = axis(tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.4, -0.6], zeroline=False)
    x = axis(f"RMSE {measured}", range=[-0.015 * top, top])
    return traces, layout(x, y, margin={"l": 20, "r": 12, "t": 4, "b": 38}), 64 + 25 * len(names)


def _short(label: str, most: int = 34) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def history_figure(material: Material, setting: Setting, palette: Palette, number: int) -> Figure | None:
    """Error over the epochs, a thin line a client and seed and their median."""
    rows = [r for r in material.results.history if r.scenario == setting.name and r.epoch is not None]
    if not rows:
        return None
    held = any(row.validation_rmse is not None for row in rows)
    runs: dict[str, dict[tuple[str, int], list[HistoryRow]]] = {}
    for row in rows:
        runs.setdefault(row.method, {}).setdefault((row.client, row.seed), []).append(row)
    curves = {method: {key: _curve(run, held) for key, run in found.items()} for method, found in runs.items()}
    values = [v for found in curves.values() for c in found.values() for v in c if np.isfinite(v)]
    if not values:
        return None
    top = float(np.quantile(values, 0.995)) * 1.05
    rounds = any(row.round > 1 for row in rows)
    x = axis("epoch, over all rounds" if rounds else "epoch")
    panels, left = [], 0
    for method, found in curves.items():
        colour = palette.colour_of(method)
        drawn = list(found.items())[:LINES]
        left += len(found) - len(drawn)
        traces = [
            line(
                range(1, len(curve) + 1),
                curve,
                colour,
                width=1 if len(found) > 1 else 2,
                opacity=0.45 if len(found) > 1 else 1,
                hovertemplate=hover(f"{client}, seed {seed}", ": %{y}"),
            )
            for (client, seed), curve in drawn
        ]
        if len(found) > 1:
            longest = max(len(c) for c in found.values())
            padded = np.array([[*c, *[np.nan] * (longest - len(c))] for c in found.values()])
            known = np.isfinite(padded).sum(axis=0) * 2 > len(found)
            middle = np.nanmedian(padded[:, known], axis=0)
            steps = np.flatnonzero(known) + 1
            traces.append(line(steps, middle, colour, width=3, hovertemplate=hover("median", ": %{y}")))
        y = axis(f"RMSE {material.measured}", range=[0, top])
        panels.append(
            Panel(f"{method} · {len(found)} training{'s' if len(found) > 1 else ''}", traces, layout(x, y), 230)
        )
    part = "the validation part" if held else "the training data (no validation part was held out)"
    caption = f"Error on {part} after every epoch, labels as in training: thin a client and seed, thick their median."
    notes = [f"{left} more trainings are not drawn."] if left else []
    return Figure(f"history{number}", "Course of training", caption, [("", panels)], notes=notes)


def _curve(rows: Sequence[HistoryRow], held: bool) -> list[float]:
    ordered = sorted(rows, key=lambda r: r.round)  # within a round as they were trained
    found = [row.validation_rmse if held else row.train_rmse for row in ordered]
    return [float("nan") if v is None else float(v) for v in found]
