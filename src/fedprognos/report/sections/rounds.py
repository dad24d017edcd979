"""The course of training: the error after every round with its cost in messages, and after every epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedprognos.evaluation import EVERYONE, HistoryRow
from fedprognos.report.method_entries import PERSONAL, Entry, comparable
from fedprognos.report.number_words import not_drawn, plural, size
from fedprognos.report.page_elements import Chip, Figure, Panel, Section, Trace
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, dots, hover, layout, line

CLIENTS_DRAWN = 12
MB = 1e6
VALIDATION = "validation_rmse"
Rounds = Mapping[str, Mapping[int, Sequence[HistoryRow]]]
"""Rounds in order, by method and seed."""


def build(run: RunData) -> Section:
    """What the published model sent, and the figure."""
    together, central = run.roles.together, run.roles.central
    moved = together.mean("bytes") if together is not None else None
    raw = central.mean("bytes") if central is not None else None
    lead = "" if moved is None or together is None else f"{together.short_label} sent and received {size(moved)}"
    lead += "" if not lead else f". The raw data, which stay where they are, have {size(raw)}." if raw else "."
    return Section("Rounds and messages", lead, figures=[rounds_figure(run)], folded=True)


def rounds_of(run: RunData, head: str, view: str = EVERYONE) -> Rounds:
    """The federated methods after every round, tested on one client or on everybody."""
    federated = {e.method for e in run.entries[EVERYONE] if e.is_federated}
    rows = [r for r in run.history if r.epoch is None and r.head == head and r.method in federated]
    tested = {r.client for r in rows}
    wanted = view if view in tested else EVERYONE if EVERYONE in tested else next(iter(sorted(tested)), "")
    rows_by_method: dict[str, dict[int, list[HistoryRow]]] = {}
    for row in sorted((r for r in rows if r.client == wanted), key=lambda r: (r.seed, r.round)):
        rows_by_method.setdefault(row.method, {}).setdefault(row.seed, []).append(row)
    return rows_by_method


def rounds_figure(run: RunData) -> Figure:
    """RMSE by round and by bytes, a choice a test client; a row of panels a head."""
    heads = [head for head in run.shared_heads if rounds_of(run, head)]
    clients = [] if run.shared_test or len(run.clients) == 1 else list(run.clients)
    choices = []
    for view in (EVERYONE, *clients[:CLIENTS_DRAWN]):
        panels = [panel for head in heads for panel in _panels(run, head, view, len(heads) > 1)]
        choices.append(("all clients together" if view == EVERYONE else view, panels))
    methods = {e.method: "dash" for e in _levels(run, heads[0], EVERYONE)}
    methods = dict.fromkeys(rounds_of(run, heads[0]), "solid") | methods
    legend = [Chip(m, run.results.method(m).label, run.palette.colour(m), dash) for m, dash in methods.items()]
    caption = (
        "Thin: single seeds. Thick: their mean; the mark is the round chosen by the validation part alone. "
        "Dashed: alone and all data in one place, which have no rounds. MB count all that was sent and received."
    )
    notes = not_drawn(len(clients) - CLIENTS_DRAWN, "client")
    notes += ["Personal heads are made once, after the chosen round."] if PERSONAL in run.heads else []
    return Figure("error", "Error over rounds", caption, choices, "tested on", legend, notes, "pairs")


def _levels(run: RunData, head: str, view: str) -> list[Entry]:
    named = {e.method for e in (run.roles.alone, run.roles.central) if e is not None}
    return [e for e in comparable(run.entries[view]) if e.head == head and e.method in named]


def _panels(run: RunData, head: str, view: str, names_head: bool) -> list[Panel]:
    runs = rounds_of(run, head, view)
    last = max((r.round for seeds in runs.values() for rows in seeds.values() for r in rows), default=1)
    by_round = axis("round", range=[0.5, last + 0.5], tickformat="d", **({"dtick": 1} if last <= 12 else {}))
    by_bytes = axis("MB", type="log", dtick="D2", nticks=0, tickformat="~g")
    kinds = [(field, f"test{', ' if label else ''}{label}", by_round) for field, label in run.errors]
    kinds += [(VALIDATION, "validation part", by_round), (run.error, "test, by MB sent and received", by_bytes)]
    panels = []
    for field, label, x in kinds:
        courses = [t for method, seeds in runs.items() for t in _course(run, method, seeds, field, x is by_bytes)]
        spans = [v for trace in courses for v in trace["x"] if v is not None]
        ends = [min(spans), max(spans)] if x is by_bytes and spans else [0.5, last + 0.5]
        traces = []
        for e in _levels(run, head, view) if field != VALIDATION else ():
            tip = hover(e.label, ": %{y}")
            mean = [e.mean(field) or np.nan] * 2
            traces.append(line(ends, mean, run.palette.colour(e.method), dash="dash", hovertemplate=tip, key=e.method))
        if courses:
            title = f"{label}, {head} head" if names_head else label
            panels.append(Panel(title, traces + courses, layout(x, axis(f"RMSE {run.measured}")), 250))
    return panels


def _course(
    run: RunData, method: str, seeds: Mapping[int, Sequence[HistoryRow]], field: str, by_bytes: bool
) -> list[Trace]:
    """One method: seeds as one thin line with gaps, their mean over the rounds all have, and the chosen rounds."""
    curves = {s: {r.round: r for r in rows if r.bytes or not by_bytes} for s, rows in seeds.items()}
    rounds = [r for r in sorted({r for c in curves.values() for r in c}) if all(r in c for c in curves.values())]

    def at(row: HistoryRow) -> tuple[float, float]:
        error = getattr(row, field)
        return (row.bytes or 0) / MB if by_bytes else row.round, np.nan if error is None else error

    if not any(np.isfinite(at(row)[1]) for curve in curves.values() for row in curve.values()):
        return []
    colour, name = run.palette.colour(method), run.results.method(method).label
    traces: list[Trace] = []
    if len(curves) > 1 and not by_bytes:
        points = [point for c in curves.values() for point in (*map(at, c.values()), (np.nan, np.nan))]
        tip = hover(name, ", one seed: %{y}")
        x, y = np.array(points).T
        traces.append(line(x, y, colour, width=1, opacity=0.5, hovertemplate=tip, key=method))
    x, y = np.array([np.mean([at(c[r]) for c in curves.values()], axis=0) for r in rounds]).reshape(-1, 2).T
    sent = [plural(round(np.mean([c[r].messages or 0 for c in curves.values()])), "message") for r in rounds]
    text = [f"round {r}, {what}" for r, what in zip(rounds, sent, strict=True)]
    tip = hover(name, ", %{text}: %{y}")
    mean = line(x, y, colour, width=2.6, hovertemplate=tip, text=text, key=method)
    traces.append({**mean, "mode": "lines+markers", "marker": {"color": colour, "size": 5}} if by_bytes else mean)
    ends = {(r.method, r.seed): r.round for r in run.rows if r.selected_on != "test" and r.head == _head(seeds)}
    picked = [at(c[r]) for seed, c in curves.items() if (r := ends.get((method, seed))) in c and r is not None]
    mark = {"color": colour, "size": 10, "symbol": run.palette.symbol(method), "line": {"width": 1, "color": "paper"}}
    tip = hover(name, ", chosen: %{y} at %{x}")
    return [*traces, dots([p[0] for p in picked], [p[1] for p in picked], mark, hovertemplate=tip, key=method)]


def _head(seeds: Mapping[int, Sequence[HistoryRow]]) -> str | None:
    return next(iter(seeds.values()))[0].head


def _applies(run: RunData) -> bool:
    return any(rounds_of(run, head) for head in run.shared_heads)


sections.add(ReportSection("rounds", 70, "Rounds and messages", build, _applies))


LINES_DRAWN = 60


def build_epochs(run: RunData) -> Section:
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
        left += max(0, len(mine) - LINES_DRAWN)
        traces = [
            line(range(1, len(c) + 1), c, colour, hovertemplate=hover(f"{client}, seed {seed}", ": %{y}"), **style)
            for (client, seed), c in list(mine.items())[:LINES_DRAWN]
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
    part = "the validation part" if held else "the training data (nothing was held out)"
    caption = f"Error on {part} by epoch. Thin: a client and seed. Thick: their median."
    return Figure("epochs", "Course of training", caption, [("", panels)], notes=not_drawn(left, "training"))


def _curve(rows: Sequence[HistoryRow], held: bool) -> list[float]:
    ordered = sorted(rows, key=lambda r: r.round)  # within a round as they were trained
    errors = [row.validation_rmse if held else row.train_rmse for row in ordered]
    return [float("nan") if v is None else float(v) for v in errors]


sections.add(
    ReportSection("training", 110, "Training", build_epochs, lambda run: any(r.epoch is not None for r in run.history))
)
