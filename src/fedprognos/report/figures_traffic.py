"""Communication against accuracy: what every round cost in bytes and messages, and what it brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedprognos.evaluation import HistoryRow
from fedprognos.report.choosing import comparable
from fedprognos.report.entries import Entry
from fedprognos.report.figures_rounds import rounds_of, value
from fedprognos.report.looks import Chip, Figure, Palette, Panel, Trace, axis, hover, layout, line, tidy
from fedprognos.report.material import EVERYONE, PERSONAL, Material, Setting
from fedprognos.report.words import plural, size

MB = 1e6
ACROSS = {"overlaying": "x", "range": [0, 1], "visible": False, "fixedrange": True}
"""A second axis for levels that go across the whole figure."""


def traffic_figure(
    material: Material, setting: Setting, found: Sequence[Entry], palette: Palette, number: int
) -> Figure | None:
    """Bytes against test RMSE: a line through a method's rounds, a mark where it ended up."""
    fair = [e for e in comparable(found) if not e.is_yardstick]
    if not any(e.is_federated and e.values("bytes").size for e in fair):
        return None
    fields = [("rmse", "raw labels")]
    if material.cap is not None:
        fields.append(("rmse_capped", "capped labels"))
    heads = [h for h in material.heads if any(e.head == h and e.is_federated for e in fair)]
    choices = []
    for head in heads:
        runs = rounds_of(material, setting, head, EVERYONE)
        for field, label in fields:
            traces = [t for method, seeds in runs.items() for t in _way(method, seeds, field, palette)]
            for e in (e for e in fair if e.head == head and e.mean(field) is not None):
                traces += _end(e, field, palette, _messages(runs.get(e.method, {}), e))
            kind = f", {head} head{'s' if head == PERSONAL else ''}" if len(heads) > 1 else ""
            what = label if len(fields) > 1 else "test"
            x = axis("sent and received until then, in MB", type="log", dtick="D2", nticks=0, tickformat="~g")
            y = axis(f"test RMSE {material.measured}")
            choices.append((what + kind, [Panel("", traces, layout(x, y, xaxis2=ACROSS), 380)]))
    methods = dict.fromkeys(e.base for e in fair)
    alone = {"local": "local (sends nothing)", "central": "central (all raw data)"}
    dashes = {"local": "dash", "central": "dot"}
    legend = [Chip(m, alone.get(m, m), palette.colour_of(m), dashes.get(m, "solid")) for m in methods]
    caption = (
        "Every small dot is a round, as far to the right as all that was sent and received until then, mean over "
        "seeds; the large mark is the chosen round. Left and low is good; a message in the hover text "
        "is a question and its answer. Central training knows no messages: its mark "
        "stands at the size of the raw data that had to be brought together, which is what federation avoids."
    )
    return Figure(f"traffic{number}", "Bytes against error", caption, choices, "RMSE", legend, wide=True)


def _way(method: str, seeds: Mapping[int, Sequence[HistoryRow]], field: str, palette: Palette) -> list[Trace]:
    """The mean over seeds of every round that all seeds have."""
    curves = [{r.round: r for r in rows if r.bytes} for rows in seeds.values()]
    rounds = [r for r in sorted({r for c in curves for r in c}) if all(r in c for c in curves)]
    if len(rounds) < 2:
        return []
    x = [float(np.mean([c[r].bytes or 0 for c in curves])) / MB for r in rounds]
    y = [float(np.mean([value(c[r], field) for c in curves])) for r in rounds]
    notes = [f"{r}, {plural(round(np.mean([c[r].messages or 0 for c in curves])), 'message')}" for r in rounds]
    colour = palette.colour_of(method)
    text = hover(method, ", round %{text}<br>%{x} MB: RMSE %{y}")
    trace = line(x, y, colour, width=1.8, hovertemplate=text, text=notes, meta={"key": method})
    return [{**trace, "mode": "lines+markers", "marker": {"color": colour, "size": 5}}]


def _end(entry: Entry, field: str, palette: Palette, messages: float | None) -> list[Trace]:
    """Where a method ended up; without any traffic a level, because zero has no place on a logarithmic axis."""
    moved, mean, colour = entry.mean("bytes"), entry.mean(field), palette.colour(entry)
    if moved is None or mean is None:
        return []
    same = {"meta": {"key": entry.base}}
    if moved <= 0:
        text = hover(entry.label, f": nothing sent, RMSE {mean:.4g}")
        return [
            {
                **line([0, 1], [mean, mean], colour, dash="dash", width=1.6, hovertemplate=text, **same),
                "xaxis": "x2",
            }
        ]
    central = entry.base == "central"
    what = f"{size(moved)} of raw data" if central else size(moved)
    what += f", {plural(round(messages), 'message')}" if messages else ""
    mark = {"color": colour, "size": 13, "symbol": palette.symbol(entry), "line": {"width": 2, "color": colour}}
    trace: Trace = {
        "type": "scatter",
        "mode": "markers+text" if central else "markers",
        "x": tidy([moved / MB]),
        "y": tidy([mean]),
        "marker": mark,
        "hovertemplate": hover(entry.label, f"<br>{what}: RMSE {mean:.4g}"),
        **same,
    }
    if central:
        trace |= {"text": ["raw data"], "textposition": "bottom center", "textfont": {"color": "muted", "size": 12}}
    return [trace]


def _messages(seeds: Mapping[int, Sequence[HistoryRow]], entry: Entry) -> float | None:
    """Messages until the chosen round, mean over seeds."""
    ends = {row.seed: row.round for row in entry.rows}
    found = [r.messages for s, rows in seeds.items() for r in rows if r.round == ends.get(s) and r.messages is not None]
    return float(np.mean(found)) if found else None
