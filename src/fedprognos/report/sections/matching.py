"""What matching did: who shares which neuron, in numbers and pictures, and what matched neurons put out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fedprognos.evaluation import Extractors, LayerMatch, MatchRound
from fedprognos.report.number_words import not_drawn, percent, plural, whole
from fedprognos.report.page_elements import Chip, Column, Figure, Line, Panel, Section, Table, TableCell, Trace
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, client_colours, hover, layout, line, one_scale, plain, thin

CLIENTS_DRAWN = 40
LINES_DRAWN = 8
NEURONS_DRAWN = 1000
CELLS = 40_000
"""Cells of all heat-maps of a scenario together; with more, rounds are left out."""
KINDS = (
    ("all", "in every client", "s5"),
    ("some", "in several clients", "s2"),
    ("one", "in one client only", "c1"),
)
TITLES = ("Round", "Own neurons, all clients", "Federated neurons", "In all clients", "In several", "In one")


def build(run: RunData) -> Section:
    """The table, and for every method that matches a heat-map and its extractors."""
    figures = []
    for k, (method, rounds) in enumerate(run.matched.items()):
        figures.append(_heat_map(run.results.method(method).label, rounds, f"map{k}"))
        first = next((r.extractors for r in rounds if r.extractors is not None), None)
        if first is not None:
            figures += extractor_figures(run.clients, first, f"extractors{k}")
    return Section("Matching", _lead(run), tables=[_table(run)], figures=figures, folded=True)


def _lead(run: RunData) -> str:
    layers = [layer for rounds in run.matched.values() for r in rounds for layer in r.layers]
    merged = [layer for layer in layers if layer.width < sum(map(len, layer.assignments.values()))]
    if not merged:
        return "Matching merged nothing: each layer is the clients’ layers side by side."
    last = merged[-1]
    total = sum(map(len, last.assignments.values()))
    return f"{plural(total, 'neuron')} of {plural(len(last.assignments), 'client')} became {last.width}."


def _table(run: RunData) -> Table:
    several = len(run.matched) > 1
    lines = [
        Line(layer.layer, _cells(r.round, layer), remark=run.results.method(method).label if several else "")
        for method, rounds in run.matched.items()
        for r in rounds
        for layer in r.layers
    ]
    return Table("What became of the clients’ neurons, first seed.", "Layer", [Column(t) for t in TITLES], lines)


def _cells(round_: int, layer: LayerMatch) -> list[TableCell]:
    _, edges = sharing(layer)
    parts = [end - begin for begin, end in pairwise(edges)]
    total = sum(len(mine) for mine in layer.assignments.values())
    shares = [
        TableCell(percent(n / layer.width), n / layer.width, f"({n})") if layer.width else TableCell("–") for n in parts
    ]
    return [
        TableCell(str(round_), round_),
        TableCell(whole(total), total),
        TableCell(whole(layer.width), layer.width),
        *shares,
    ]


def sharing(layer: LayerMatch) -> tuple[list[int], list[int]]:
    """Federated neurons with the most shared first, and where those of all, several and one client begin and end."""
    holders = layer.holders()
    order = sorted(range(layer.width), key=lambda g: (-holders[g], g))
    everyone = len(layer.assignments)
    ranks = [0 if holders[g] == everyone > 1 else 1 if holders[g] > 1 else 2 for g in order]
    return order, [0, *(sum(rank <= k for rank in ranks) for k in range(3))]


def _heat_map(method: str, rounds: Sequence[MatchRound], name: str) -> Figure:
    every = [(r.round, layer) for r in rounds for layer in r.layers]
    largest = max(min(len(m.assignments), CLIENTS_DRAWN) * min(m.width, NEURONS_DRAWN) for _, m in every)
    kept = [every[k] for k in thin(len(every), max(1, CELLS // max(1, largest)))]
    choices = [(f"round {r}, {layer.layer}", [_map(layer)]) for r, layer in kept]
    caption = (
        f"Columns: neurons of the federated network ({method}, first seed). Filled: one of the client’s own neurons "
        "became part of it."
    )
    notes = [f"Drawn are {len(kept)} of {len(every)} matchings; the table has all."] if len(kept) < len(every) else []
    wide = max(layer.width for _, layer in kept)
    notes += [f"Only the first {NEURONS_DRAWN} of up to {wide} neurons are drawn."] if wide > NEURONS_DRAWN else []
    notes += not_drawn(max(len(layer.assignments) for _, layer in kept) - CLIENTS_DRAWN, "client")
    there = {trace["meta"]["key"] for _, panels in choices for panel in panels for trace in panel.data}
    legend = [Chip(key, label, colour, "block") for key, label, colour in KINDS if key in there]
    return Figure(name, "Who shares which neuron", caption, choices, "matching", legend, notes, "wide")


def _map(layer: LayerMatch) -> Panel:
    """One heat-map a kind of neuron, side by side."""
    order, edges = sharing(layer)
    clients = list(layer.assignments)[:CLIENTS_DRAWN]
    rows = [plain(client) for client in clients]
    client_neurons = [{g: k for k, g in enumerate(layer.assignments[client])} for client in clients]
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
                "z": [[1 if g in places else None for g in neurons] for places in client_neurons],
                "text": [[places.get(g, "") for g in neurons] for places in client_neurons],
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
    names = [plain(c if len(c) <= 24 else c[:23] + "…") for c in clients]
    order_: dict[str, Any] = {"type": "category", "categoryorder": "array", "categoryarray": rows}
    y = axis(**order_, tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.5, -0.5], showgrid=False)
    x = axis("federated neuron", range=[0.5, min(layer.width, NEURONS_DRAWN) + 0.5], zeroline=False, showgrid=False)
    total = sum(len(mine) for mine in layer.assignments.values())
    title = f"{plural(total, 'neuron')} of {plural(len(layer.assignments), 'client')} became {layer.width}"
    return Panel(title, traces, layout(x, y), 80 + max(16, 34 - len(clients)) * len(clients))


def extractor_figures(everyone: Sequence[str], extractors: Extractors, name: str) -> list[Figure]:
    """Ten small panels before, ten after, all on one scale."""
    colours = client_colours(everyone)
    clients = [c for c in extractors.before if c in colours][:LINES_DRAWN]
    values = [
        x
        for c in clients
        for v in (*extractors.before[c], *extractors.after.get(c, ()))
        if v
        for x in v
        if np.isfinite(x)
    ]
    if not values:
        return []
    style = one_scale(values)
    before = {c: extractors.before[c] for c in clients}
    after = {c: extractors.after.get(c, ()) for c in clients}
    first = [
        Panel(f"neuron {k}", _lines(before, k, colours), style, 130) for k in range(max(map(len, before.values())))
    ]
    drawn = [(neuron, _lines(after, k, colours)) for k, neuron in enumerate(extractors.neurons)]
    second = [
        Panel(f"federated {neuron} · {plural(len(traces), 'client')}", traces, style, 130)
        for neuron, traces in drawn
        if traces
    ]
    how = "Lines that run together: clients had learnt the same feature. Lines that part: unlike neurons were averaged."
    if max((len(traces) for _, traces in drawn), default=0) <= 1:
        how = "No neuron was merged with another, so every panel has the line of a single client."
    legend = [Chip(c, c, colours[c]) for c in clients]
    notes = not_drawn(len(extractors.before) - len(clients), "client")
    start = (
        f"Outputs of the first neurons of {extractors.layer} over one test window; each network numbers them by chance."
    )
    return [
        Figure(f"{name}-before", "Features before matching", start, [("", first)], "", legend, notes, "small"),
        Figure(f"{name}-after", "Features after matching", how, [("", second)], "", legend, grid="small"),
    ]


def _lines(outputs: Mapping[str, Sequence[Sequence[float] | None]], k: int, colours: Mapping[str, str]) -> list[Trace]:
    traces = []
    for client, neurons in outputs.items():
        values = neurons[k] if k < len(neurons) else None
        if values is not None:
            tip = hover(client, ": %{y} at step %{x}")
            traces.append(line(range(1, len(values) + 1), values, colours[client], hovertemplate=tip, key=client))
    return traces


sections.add(ReportSection("matching", 90, "Matching", build, lambda run: bool(run.matched)))
