"""The course of training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedprognos.evaluation import HistoryRow
from fedprognos.report.number_words import not_drawn, plural
from fedprognos.report.page_elements import Figure, Panel, Section
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, hover, layout, line

LINES = 60


def build(run: RunData) -> Section:
    """One figure."""
    return Section("Training", figures=[history_figure(run)], folded=True)


def history_figure(run: RunData) -> Figure:
    """Error over the epochs, a thin line a client and seed and their median."""
    rows = [r for r in run.history if r.epoch is not None]
    held = any(row.validation_rmse is not None for row in rows)
    runs: dict[str, dict[tuple[str, int], list[HistoryRow]]] = {}
    for row in rows:
        runs.setdefault(row.method, {}).setdefault((row.client, row.seed), []).append(row)
    curves = {method: {key: _curve(epochs, held) for key, epochs in mine.items()} for method, mine in runs.items()}
    values = [v for mine in curves.values() for c in mine.values() for v in c if np.isfinite(v)]
    top = float(np.quantile(values, 0.995)) * 1.05 if values else 1.0
    x = axis("epoch, over all rounds" if any(row.round > 1 for row in rows) else "epoch")
    panels, left = [], 0
    for method, mine in curves.items():
        colour, several = run.palette.colour(method), len(mine) > 1
        style = {"width": 1, "opacity": 0.45} if several else {"width": 2}
        left += max(0, len(mine) - LINES)
        traces = [
            line(range(1, len(c) + 1), c, colour, hovertemplate=hover(f"{client}, seed {seed}", ": %{y}"), **style)
            for (client, seed), c in list(mine.items())[:LINES]
        ]
        if several:
            longest = max(len(c) for c in mine.values())
            padded = np.array([[*c, *[np.nan] * (longest - len(c))] for c in mine.values()])
            in_most = np.isfinite(padded).sum(axis=0) * 2 > len(mine)
            middle = np.nanmedian(padded[:, in_most], axis=0)
            tip = hover("median", ": %{y}")
            traces.append(line(np.flatnonzero(in_most) + 1, middle, colour, width=3, hovertemplate=tip))
        y = axis(f"RMSE {run.measured}", range=[0, top])
        panels.append(
            Panel(f"{run.results.method(method).label} · {plural(len(mine), 'training')}", traces, layout(x, y), 230)
        )
    part = "the validation part" if held else "the training data (no validation part was held out)"
    caption = f"Error on {part} after every epoch, labels as in training: thin a client and seed, thick their median."
    return Figure("epochs", "Course of training", caption, [("", panels)], notes=not_drawn(left, "training"))


def _curve(rows: Sequence[HistoryRow], held: bool) -> list[float]:
    ordered = sorted(rows, key=lambda r: r.round)  # within a round as they were trained
    errors = [row.validation_rmse if held else row.train_rmse for row in ordered]
    return [float("nan") if v is None else float(v) for v in errors]


sections.add(
    ReportSection("training", 110, "Training", build, lambda run: any(r.epoch is not None for r in run.history))
)
