"""Every method's error: as dots with intervals, client by client, and in full."""

from __future__ import annotations

from collections.abc import Sequence

from fedprognos.evaluation import EVERYONE, OWN, Metric, metrics
from fedprognos.report.method_entries import Entry, comparable, drawn, of_head
from fedprognos.report.number_words import not_drawn, number, percent, plural
from fedprognos.report.page_elements import Column, Figure, Line, Panel, Section, Table, TableCell, Trace
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, client_colours, dots, hover, layout, line, plain

PANELS = 9
LONGEST = 34
"""Letters of a label beside an axis."""
SCORES = 60
"""Metrics from this place of their order on are scores that publications report; they have a table of their own."""
FACTS = (
    Column("MB", "Messages up to the chosen round; for central training the raw data."),
    Column("Round"),
    Column("Neurons"),
)


def build(run: RunData) -> Section:
    """Dots for all, a table by client, and behind a click every metric."""
    clients = [view for view in run.entries if view != EVERYONE and run.entries[view]]
    by_client = [_by_client(run)] if clients and run.roles.alone is not None else []
    figures = [error_figure(run, "clients", "Error client by client", clients)] if clients else []
    every = Section("Every metric, every client", tables=metrics_tables(run), figures=figures, folded=True)
    first = error_figure(run, "rmse", "Error of every method", [EVERYONE])
    return Section("Methods", tables=by_client, figures=[first], parts=[every])


def error_figure(run: RunData, name: str, title: str, views: Sequence[str]) -> Figure:
    """The error of every entry, a panel a view, a choice an error and head."""
    heads: list[str | None] = [*run.shared_heads] or [run.head]
    choices = []
    for head in heads:
        for field, label in run.errors:
            entries_by_view = {view: of_head(run.entries[view], head) for view in views[:PANELS]}
            scale = [e for entries in entries_by_view.values() for e in entries]
            panels = [
                _dots(run, "" if v == EVERYONE else v, entries, field, scale) for v, entries in entries_by_view.items()
            ]
            named = f"{head} head" if len(heads) > 1 else ""
            choices.append((", ".join(part for part in (label, named) if part), panels))
    caption = (
        "Large: mean over seeds, hollow where each client trained alone. Small: single seeds. Bar: 95 % "
        "interval for other test units."
    )
    notes, grid = not_drawn(len(views) - PANELS, "client"), "wide" if len(views) == 1 else ""
    return Figure(name, title, caption if grid else "", choices, "RMSE", notes=notes, grid=grid)


def _dots(run: RunData, title: str, entries: Sequence[Entry], field: str, scale: Sequence[Entry]) -> Panel:
    """One line an entry, the best first; `scale` shares the axis."""
    ordered = sorted((e for e in entries if e.mean(field) is not None), key=lambda e: float(e.mean(field) or 0.0))
    top = max((max([*e.values(field), *e.intervals.get(field, ())], default=0.0) for e in scale), default=0.0) or 1.0
    traces: list[Trace] = []
    for k, e in enumerate(ordered):
        values, bounds, colour = e.values(field), e.intervals.get(field), run.palette.colour(e.method)
        text = f": {values.mean():.4g}"
        if bounds is not None:
            traces.append(line(bounds, [k, k], colour, width=3, opacity=0.45, hoverinfo="skip"))
        if len(values) > 1:
            small = {"color": colour, "size": 4.5, "opacity": 0.9}
            traces.append(dots(values, [k + 0.34] * len(values), small, hovertemplate=hover("one seed: ", "%{x}")))
            text += f" ± {values.std():.2g} over {len(values)} seeds"
        text += f"<br>95 % interval {bounds[0]:.4g} to {bounds[1]:.4g}" if bounds is not None else ""
        mark = run.palette.mark(e, 11)
        traces.append(dots([float(values.mean())], [k], mark, hovertemplate=hover(e.label, text)))
    labels = [e.short_label for e in ordered]
    names = [plain(name if len(name) <= LONGEST else name[: LONGEST - 1] + "…") for name in labels]
    y = axis(tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.4, -0.6], zeroline=False)
    x = axis(f"RMSE {run.measured}", range=[-0.0156 * top, 1.04 * top])
    return Panel(title, traces, layout(x, y, margin={"l": 20, "r": 12, "t": 4, "b": 38}), 64 + 25 * len(names))


def _by_client(run: RunData) -> Table:
    """What each client has from training together; marked is the better of together and alone."""
    r = run.roles
    parts = (
        ("Together", r.together),
        ("Alone", r.alone),
        ("All data in one place", r.central),
        ("Baseline", r.baseline),
    )
    shown = {title: entry for title, entry in parts if entry is not None}
    colours = client_colours(run.clients)
    lines = []
    for client in run.clients:
        error_of = {e.key: e.mean(run.error) for e in run.entries[client]}
        means = {title: error_of.get(entry.key) for title, entry in shown.items()}
        both = [m for title in ("Together", "Alone") if (m := means.get(title)) is not None]
        lowest = min(both) if len(both) > 1 else None
        cells = [
            TableCell(number(m), m, best=m is not None and m == lowest and t in ("Together", "Alone"))
            for t, m in means.items()
        ]
        lines.append(Line(client, cells, colours[client]))
    caption = f"The error on each client’s own test units, {run.measured}. ★ the better of together and alone."
    return Table(caption, "Client", [Column(title) for title in shown], lines)


def metrics_tables(run: RunData) -> list[Table]:
    """Every entry with every metric that tells them apart: first errors and costs, then scores of the literature."""
    weaker = _weaker_alone(run)
    entries = [e for e in run.entries[EVERYONE] if e.key not in weaker]
    least = min(2, len(entries))  # what only one of them has, such as intervals, is in the first section
    shown = [m for m in metrics.values() if sum(e.values(m.name).size > 0 for e in entries) >= least]
    seeds = max(e.seeds for e in entries)
    mean = f"{f'Mean of {seeds} seeds' if seeds > 1 else 'A single seed'}. ★ best of a column."
    errors, scores = ([m for m in shown if (m.order < SCORES) == first] for first in (True, False))
    tables = [_metrics_table(run, f"Errors and costs. {mean}", entries, errors, costs=True)]
    # The others have their errors in the first table; that is enough.
    r = run.roles
    compared = [e for e in drawn(run) if e in (r.together, r.alone, r.central, r.baseline)]
    return tables + (
        [_metrics_table(run, "Other scores.", compared, scores, costs=False)] if scores and compared else []
    )


def _weaker_alone(run: RunData) -> set[str]:
    """Keys of all baselines on a client's own data but the best: one line shows what a simple model can do alone."""
    alone = [e for e in run.entries[EVERYONE] if e.is_baseline and e.data == OWN]
    errors = {e.key: error for e in alone if (error := e.mean(run.error)) is not None}
    return set(errors) - {min(errors, key=lambda key: errors[key])} if errors else set()


def _metrics_table(
    run: RunData, caption: str, entries: Sequence[Entry], shown: Sequence[Metric], *, costs: bool
) -> Table:
    """A line for each entry, the best of each column marked."""
    fair, everything = comparable(entries), max(e.n_test for e in entries)
    best = {}
    for m in shown if len(fair) > 1 else ():
        best[m.name] = min((m.badness(mean) for e in fair if (mean := e.mean(m.name)) is not None), default=None)
    lines = []
    for e in entries:
        collapsed = sum(row.collapsed for row in e.rows)
        cells = [_cell(e, m, best.get(m.name) if e in fair else None) for m in shown]
        if costs:
            moved = e.mean("bytes")
            cells += [TableCell("–") if moved is None else TableCell(number(moved / 1e6), moved)]
            cells += [_range(e, "round"), _range(e, "width")]
        warning = f"collapsed ({plural(collapsed, 'seed')})" if collapsed else ""
        remark = f"on {e.n_test} of {everything} test points" if e.n_test < everything else ""
        quiet = not e.is_baseline and e.head != run.head
        lines.append(Line(e.label, cells, run.palette.colour(e.method), remark, warning, quiet))
    columns = [Column(m.label, f"{m.meaning[0].upper()}{m.meaning[1:]}.") for m in shown]
    return Table(caption, "Method", [*columns, *(FACTS if costs else ())], lines)


def _cell(entry: Entry, metric: Metric, best: float | None) -> TableCell:
    mean, spread = entry.mean(metric.name), entry.spread(metric.name)
    if mean is None:
        return TableCell("–")
    note = f"±{float(f'{spread:.2g}'):g}" if spread is not None and metric.headline else ""
    marked = metric.best is not None and metric.badness(mean) == best
    return TableCell(percent(mean) if metric.percent else number(mean), mean, note, marked)


def _range(entry: Entry, field: str) -> TableCell:
    """Widths and rounds, from the least to the most over seeds."""
    values = [value if isinstance(value, tuple) else (value,) for row in entry.rows if (value := getattr(row, field))]
    if not values:
        return TableCell("–")
    first, last = (" + ".join(map(str, choose(values, key=sum))) for choose in (min, max))
    return TableCell(first if first == last else f"{first} to {last}", float(min(map(sum, values))))


sections.add(ReportSection("methods", 20, "Methods", build))
