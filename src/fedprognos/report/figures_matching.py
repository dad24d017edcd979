"""What matching did: who shares which neuron, and what matched neurons put out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from fedprognos.report.looks import (
    Chip,
    Figure,
    Panel,
    Trace,
    axis,
    client_colours,
    hover,
    layout,
    line,
    plain,
    thin,
)
from fedprognos.report.material import Setting
from fedprognos.report.records import Extractors, LayerMatch, MatchRound
from fedprognos.report.words import plural

CLIENTS_DRAWN = 40
LINES_DRAWN = 8
NEURONS_DRAWN = 1000
CELLS = 40_000
"""Cells of all heat-maps of a setting together; with more, rounds are left out."""
KINDS = (
    ("all", "in every client", "s5"),
    ("some", "in several clients", "s2"),
    ("one", "in one client only", "c1"),
)


def matching_figures(setting: Setting, number: int) -> list[Figure]:
    """A heat-map and the extractors, for every method that matches."""
    figures = []
    for k, (method, rounds) in enumerate(setting.matchings.items()):
        figures.append(_heat_map(method, rounds, f"matching{number}-map{k}"))
        first = next((r.extractors for r in rounds if r.extractors is not None), None)
        if first is not None:
            figures += extractor_figures(setting, first, f"matching{number}-extractors{k}")
    return figures


def _heat_map(method: str, rounds: Sequence[MatchRound], name: str) -> Figure:
    every = [(r.round, layer) for r in rounds for layer in r.layers]
    largest = max(min(len(m.assignments), CLIENTS_DRAWN) * min(m.width, NEURONS_DRAWN) for _, m in every)
    kept = [every[k] for k in thin(len(every), max(1, CELLS // max(1, largest)))]
    choices = [(f"round {r}, {layer.layer}", [_map(layer)]) for r, layer in kept]
    caption = (
        f"Columns are the neurons of the federated network ({method}, first seed), rows the clients. A filled cell: "
        "one of the client’s own neurons became part of that federated neuron. Neurons that all clients share come "
        "first, then those of several, then those that only one client has. Hover for which neuron it was."
    )
    notes = [f"Drawn are {len(kept)} of {len(every)} matchings; the table has all."] if len(kept) < len(every) else []
    wide = max(layer.width for _, layer in kept)
    if wide > NEURONS_DRAWN:
        notes.append(f"Only the first {NEURONS_DRAWN} of up to {wide} neurons are drawn.")
    most = max(len(layer.assignments) for _, layer in kept)
    if most > CLIENTS_DRAWN:
        notes.append(f"{most - CLIENTS_DRAWN} more clients are not drawn.")
    legend = [Chip(key, label, colour, "block") for key, label, colour in KINDS]
    return Figure(name, "Who shares which neuron", caption, choices, "matching", legend, notes, wide=True)


def sharing(layer: LayerMatch) -> tuple[list[int], list[int]]:
    """Global neurons with the most shared first, and where neurons of all, several and one client begin and end."""
    holders = layer.holders()
    order = sorted(range(layer.width), key=lambda g: (-holders[g], g))
    everyone = len(layer.assignments)
    ranks = [0 if holders[g] == everyone > 1 else 1 if holders[g] > 1 else 2 for g in order]
    return order, [0, *(sum(rank <= k for rank in ranks) for k in range(3))]


def _map(layer: LayerMatch) -> Panel:
    """One heat-map a kind of neuron, side by side."""
    order, edges = sharing(layer)
    clients = list(layer.assignments)[:CLIENTS_DRAWN]
    rows = [plain(client) for client in clients]
    own = [{g: k for k, g in enumerate(layer.assignments[client])} for client in clients]
    traces: list[Trace] = []
    for (key, _, colour), (begin, end) in zip(KINDS, pairwise(edges), strict=True):
        neurons = order[begin : min(end, NEURONS_DRAWN)]
        if not neurons:
            continue
        traces.append(
            {
                "type": "heatmap",
                "x0": begin + 1,
                "dx": 1,
                "y": rows,
                "z": [[1 if g in places else None for g in neurons] for places in own],
                "text": [[places.get(g, "") for g in neurons] for places in own],
                "zmin": 0,
                "zmax": 1,
                "colorscale": [[0, colour], [1, colour]],
                "showscale": False,
                "hoverongaps": False,
                "xgap": 1 if layer.width <= 200 else 0,
                "ygap": 2,
                "hovertemplate": "%{y}: its neuron %{text}<extra></extra>",
                "meta": {"key": key},
            }
        )
    y = axis(
        type="category",
        categoryorder="array",
        categoryarray=rows,
        tickvals=list(range(len(rows))),
        ticktext=[plain(c if len(c) <= 24 else c[:23] + "…") for c in clients],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )
    drawn = min(layer.width, NEURONS_DRAWN)
    x = axis("federated neuron", range=[0.5, drawn + 0.5], zeroline=False, showgrid=False)
    total = sum(len(mine) for mine in layer.assignments.values())
    title = f"{plural(total, 'neuron')} of {plural(len(layer.assignments), 'client')} became {layer.width}"
    return Panel(title, traces, layout(x, y), 80 + max(16, 34 - len(clients)) * len(clients))


def extractor_figures(setting: Setting, found: Extractors, name: str) -> list[Figure]:
    """Ten small panels before, ten after, all on one scale."""
    colours = client_colours(setting.clients)
    clients = [c for c in found.before if c in colours][:LINES_DRAWN]
    lines = [v for c in clients for v in (*found.before[c], *found.after.get(c, ())) if v]
    values = [x for v in lines for x in v if np.isfinite(x)]
    if not values:
        return []
    pad = 0.06 * (max(values) - min(values)) or 0.1
    y = axis(range=[min(values) - pad, max(values) + pad], nticks=4)
    legend = [Chip(c, c, colours[c], "solid") for c in clients]
    left = len(found.before) - len(clients)
    notes = [f"{left} more clients are not drawn."] if left > 0 else []
    before = {c: found.before[c] for c in clients}
    after = {c: found.after.get(c, ()) for c in clients}
    first = [
        Panel(f"neuron {k}", _lines(before, k, colours), layout(axis(nticks=4), y, margin=MARGIN), 130)
        for k in range(max(len(v) for v in before.values()))
    ]
    second, most = [], 0
    for k, neuron in enumerate(found.neurons):
        traces = _lines(after, k, colours)
        most = max(most, len(traces))
        title = f"federated {neuron} · {plural(len(traces), 'client')}"
        if traces:
            second.append(Panel(title, traces, layout(axis(nticks=4), y, margin=MARGIN), 130))
    how = (
        "Each panel holds the neurons that became one: lines that run together mean that the clients had learnt the "
        "same feature, lines that part mean that unlike neurons were averaged."
    )
    if most <= 1:
        how = "No neuron was merged with another, so every panel has the line of a single client."
    return [
        Figure(
            f"{name}-before",
            "Feature extractors before matching",
            f"Outputs of the first neurons of {found.layer} over one test window, a line a client. Networks trained "
            "apart number their features by chance, so lines in one panel have nothing to do with each other.",
            [("", first)],
            chips=legend,
            notes=notes,
            grid="small",
        ),
        Figure(
            f"{name}-after",
            "Feature extractors after matching",
            f"The same window, sorted by the matching: the most shared federated neurons of round 1. {how}",
            [("", second)],
            chips=legend,
            grid="small",
        ),
    ]


MARGIN = {"l": 34, "r": 6, "t": 4, "b": 24}


def _lines(outputs: Mapping[str, Sequence[Sequence[float] | None]], k: int, colours: Mapping[str, str]) -> list[Trace]:
    found = []
    for client, neurons in outputs.items():
        values = neurons[k] if k < len(neurons) else None
        if values is not None:
            text = hover(client, ": %{y} at step %{x}")
            steps = range(1, len(values) + 1)
            found.append(line(steps, values, colours[client], hovertemplate=text, meta={"key": client}))
    return found
