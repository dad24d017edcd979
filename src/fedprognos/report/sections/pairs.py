"""Neurons of different clients that extract the same: their outputs before and after one was absorbed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedprognos.evaluation import Pair
from fedprognos.report.parts import Chip, Column, Figure, Line, Panel, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, client_colours, hover, layout, line

MARGIN = {"l": 34, "r": 6, "t": 4, "b": 24}


def build(run: RunData) -> Section:
    """The pairs in pictures; in numbers where nobody could be shown a window."""
    absorbed = run.absorbed[0]
    pairs, colours = absorbed.pairs, client_colours(absorbed.neurons)
    first = pairs[0]
    lead = (
        f"Neuron {first.absorbed[1]} of {first.absorbed[0]} and neuron {first.kept[1]} of {first.kept[0]} "
        f"correlate at {_signed(first.correlation)}."
    )
    figures = _figures(pairs, colours)
    tables = [] if figures else [_table(pairs, colours)]
    return Section("Neurons that extract the same", lead, tables=tables, figures=figures, folded=True)


def _table(pairs: Sequence[Pair], colours: Mapping[str, str]) -> Table:
    lines = [
        Line(
            f"{pair.absorbed[0]}, neuron {pair.absorbed[1]}",
            [
                TableCell(f"{pair.kept[0]}, neuron {pair.kept[1]}"),
                TableCell(_signed(pair.correlation), abs(pair.correlation)),
            ],
            colours[pair.absorbed[0]],
        )
        for pair in pairs
    ]
    columns = [Column("Kept"), Column("Correlation", "of the two outputs over all training rows")]
    return Table("Pairs of neurons most alike, first seed.", "Absorbed", columns, lines)


def _signed(correlation: float) -> str:
    return f"{correlation:.2f}".replace("-", "\u2212")


def _figures(pairs: Sequence[Pair], colours: Mapping[str, str]) -> list[Figure]:
    drawn = [pair for pair in pairs if pair.before is not None and pair.after is not None]
    if not drawn:
        return []
    values = [v for pair in drawn for two in (pair.before, pair.after) for outputs in two or () for v in outputs]
    pad = 0.06 * (max(values) - min(values)) or 0.1
    style = layout(axis(nticks=4), axis(range=[min(values) - pad, max(values) + pad], nticks=4), margin=MARGIN)
    there = dict.fromkeys(name for pair in drawn for name, _ in (pair.absorbed, pair.kept))
    legend = [Chip(name, name, colours[name]) for name in there]
    before = [Panel(_title(pair), _lines(pair, pair.before, colours), style, 130) for pair in drawn]
    after = [Panel(_title(pair), _lines(pair, pair.after, colours), style, 130) for pair in drawn]
    start = "Outputs over one test unit\u2019s history, in the clients\u2019 own networks."
    end = "Solid: the kept neuron. Dashed: what stands in for the absorbed one."
    return [
        Figure("pairs-before", "Before absorption", start, [("", before)], "", legend, grid="small"),
        Figure("pairs-after", "After absorption", end, [("", after)], grid="small"),
    ]


def _title(pair: Pair) -> str:
    return f"{pair.absorbed[1]} and {pair.kept[1]} \u00b7 r = {_signed(pair.correlation)}"


def _lines(
    pair: Pair, two: tuple[tuple[float, ...], tuple[float, ...]] | None, colours: Mapping[str, str]
) -> list[dict[str, object]]:
    traces = []
    for (client, neuron), values, dash in zip((pair.absorbed, pair.kept), two or (), ("dash", "solid"), strict=True):
        tip = hover(f"{client}, neuron {neuron}", ": %{y} at step %{x}")
        style = {"dash": dash, "hovertemplate": tip, "key": client}
        traces.append(line(range(1, len(values) + 1), values, colours[client], **style))
    return traces


def applies(run: RunData) -> bool:
    """There must be a pair."""
    return any(absorbed.pairs for absorbed in run.absorbed)


sections.add(ReportSection("pairs", 94, "Neurons that extract the same", build, applies))
