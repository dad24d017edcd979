"""Whose features repeat: how well those of one client predict those of another."""

from __future__ import annotations

import numpy as np

from fedprognos.report.parts import Figure, Panel, Section
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, hover, layout, plain
from fedprognos.report.words import not_drawn, percent

CLIENTS_DRAWN = 40
LABELLED = 12


def build(run: RunData) -> Section:
    """One matrix."""
    names, r2 = list(run.absorbed[0].neurons), np.array(run.absorbed[0].repeats)
    apart = np.where(np.eye(len(names), dtype=bool), -1.0, r2)
    a, b = np.unravel_index(int(np.argmax(apart)), apart.shape)
    lead = f"Features of {names[a]} predict {percent(r2[a, b])} of the variance of those of {names[b]}."
    return Section("Whose features repeat", lead, figures=[_matrix(names, r2)], folded=True)


def _matrix(names: list[str], r2: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Figure:
    shown = [plain(name) for name in names[:CLIENTS_DRAWN]]
    values = np.round(100 * r2[: len(shown), : len(shown)]).astype(int).tolist()
    trace = {
        "type": "heatmap",
        "x": shown,
        "y": shown,
        "z": values,
        "zmin": 0,
        "zmax": 100,
        "colorscale": [[0, "raised"], [1, "c2"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hovertemplate": hover("", "%{y} predicts %{z} % of %{x}"),
    }
    if len(shown) <= LABELLED:
        trace |= {"text": [[f"{v} %" for v in row] for row in values], "texttemplate": "%{text}"}
    x = axis("is predicted", type="category", showgrid=False, nticks=len(shown), side="bottom")
    y = axis("predicts", type="category", autorange="reversed", showgrid=False, nticks=len(shown))
    height = 110 + max(14, 46 - len(shown)) * len(shown)
    caption = "How much of the variance of a column\u2019s features those of a row predict."
    return Figure(
        "repeats",
        "One client\u2019s features from another\u2019s",
        caption,
        [("", [Panel("", [trace], layout(x, y), height)])],
        notes=not_drawn(len(names) - len(shown), "client"),
        grid="pairs",
    )


def applies(run: RunData) -> bool:
    """There must be somebody to compare with."""
    return any(len(absorbed.neurons) > 1 for absorbed in run.absorbed)


sections.add(ReportSection("repeats", 92, "Whose features repeat", build, applies))
