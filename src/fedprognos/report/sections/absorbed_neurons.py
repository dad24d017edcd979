"""What absorption kept: what each client contributes, whose features repeat, how wide the model needs to be, and pairs
of neurons that extract the same, before and after one of them was absorbed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedprognos.evaluation import AbsorbedNeurons, Pair
from fedprognos.report.number_words import not_drawn, number, percent, plural
from fedprognos.report.page_elements import Chip, Column, Figure, Line, Panel, Section, Table, TableCell
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import TOGETHER, axis, client_colours, dots, hover, layout, line, one_scale, plain

TITLE = "What absorption kept"
CLIENTS_DRAWN = 40
CLIENTS_WITH_NUMBERS = 12
"""In a matrix of more clients there is no room for numbers."""


def build(run: RunData) -> Section:
    """One part for each question. A single client repeats nobody; where no two neurons are alike there is no pair."""
    absorbed = run.absorbed[0]
    total, clients = sum(absorbed.neurons.values()), plural(len(absorbed.neurons), "client")
    parts = [_contributions(run, absorbed)]
    if len(absorbed.neurons) > 1:
        parts.append(_repeats(absorbed))
    parts.append(Section("How wide the model needs to be", figures=[_width_figure(run, absorbed)]))
    if absorbed.pairs:
        parts.append(_pairs(absorbed))
    return Section(TITLE, f"{plural(total, 'neuron')} of {clients} became {absorbed.width}.", parts=parts, folded=True)


def _contributions(run: RunData, absorbed: AbsorbedNeurons) -> Section:
    """A bar for each client: the error of the head without its neurons."""
    rises = {name: 100 * (error / absorbed.whole - 1) for name, error in absorbed.without.items()}
    order = sorted(rises, key=lambda name: -rises[name])
    shown, colours = order[:CLIENTS_DRAWN], client_colours(absorbed.neurons)
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [float(f"{rises[name]:.4g}") for name in shown],
        "y": [plain(name) for name in shown],
        "text": [f"{absorbed.kept[name]} of {absorbed.neurons[name]} neurons kept" for name in shown],
        "textposition": "auto",
        "marker": {"color": [colours[name] for name in shown]},
        "hovertemplate": hover("", "%{y}: %{x} %, %{text}"),
    }
    y = axis(type="category", autorange="reversed", showgrid=False, nticks=len(shown))
    panel = Panel("", [bars], layout(axis("rise of the training error, %"), y), 70 + 26 * len(shown))
    caption = (
        f"Rise of the training error ({number(absorbed.whole)} {run.measure} with all neurons) without a client\u2019s."
    )
    notes = not_drawn(len(order) - len(shown), "client")
    figure = Figure(
        "contributions", "Without a client\u2019s neurons", caption, [("", [panel])], notes=notes, grid="wide"
    )
    lead = f"Without the neurons of {order[0]} the error would rise by {percent(max(rises[order[0]], 0.0) / 100)}."
    return Section("What each client contributes", words=[lead], figures=[figure])


def _repeats(absorbed: AbsorbedNeurons) -> Section:
    """How well the features of one client predict those of another."""
    names, r2 = list(absorbed.neurons), np.array(absorbed.repeats)
    apart = np.where(np.eye(len(names), dtype=bool), -1.0, r2)
    a, b = np.unravel_index(int(np.argmax(apart)), apart.shape)
    lead = f"Features of {names[a]} predict {percent(r2[a, b])} of the variance of those of {names[b]}."
    return Section("Whose features repeat", words=[lead], figures=[_repeats_figure(names, r2)])


def _repeats_figure(names: list[str], r2: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Figure:
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
    if len(shown) <= CLIENTS_WITH_NUMBERS:
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


def _width_figure(run: RunData, absorbed: AbsorbedNeurons) -> Figure:
    widths = sorted(absorbed.predicted)
    errors = [absorbed.predicted[width] for width in widths]
    tip = f"%{{x}} neurons: %{{y}} {run.measure}"
    traces = [line(widths, errors, "muted", hovertemplate=hover("predicted, ", tip), key="predicted")]
    legend = [Chip("predicted", "predicted, training data", "muted")]
    if absorbed.measured:
        at = sorted(absorbed.measured)
        mark = {"color": TOGETHER, "size": 9, "symbol": "circle"}
        values = [absorbed.measured[width] for width in at]
        traces.append(dots(at, values, mark, hovertemplate=hover("measured, ", tip), key="measured"))
        legend.append(Chip("measured", "measured, kept-out data", TOGETHER))
    top = 1.6 * max(
        absorbed.predicted[max(widths)], *absorbed.measured.values(), absorbed.predicted.get(absorbed.width, 0.0)
    )
    chosen = {"type": "line", "yref": "paper", "x0": absorbed.width, "x1": absorbed.width, "y0": 0, "y1": 1}
    chosen |= {"line": {"color": TOGETHER, "width": 1.6, "dash": "dot"}}
    note = {"x": absorbed.width, "y": 1, "yref": "paper", "text": f"chosen: {absorbed.width}", "showarrow": False}
    note |= {"xanchor": "left", "yanchor": "top", "xshift": 5, "font": {"color": TOGETHER, "size": 12}}
    y = axis(f"RMSE {run.measured}", range=[0, top])
    style = layout(axis("neurons kept", range=[0, max(widths) * 1.02]), y, shapes=[chosen], annotations=[note])
    caption = "Neurons go one by one, the cheapest first. The curve leaves out how errors feed back through time."
    return Figure(
        "width", "Error against width", caption, [("", [Panel("", traces, style, 260)])], "", legend, grid="wide"
    )


def _pairs(absorbed: AbsorbedNeurons) -> Section:
    """Pictures of the pairs; a table where no window may be shown."""
    pairs, colours = absorbed.pairs, client_colours(absorbed.neurons)
    first = pairs[0]
    lead = (
        f"Neuron {first.absorbed[1]} of {first.absorbed[0]} and neuron {first.kept[1]} of {first.kept[0]} "
        f"correlate at {_signed(first.correlation)}."
    )
    figures = _pair_figures(pairs, colours)
    tables = [] if figures else [_pair_table(pairs, colours)]
    return Section("Neurons that extract the same", words=[lead], tables=tables, figures=figures)


def _pair_table(pairs: Sequence[Pair], colours: Mapping[str, str]) -> Table:
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


def _pair_figures(pairs: Sequence[Pair], colours: Mapping[str, str]) -> list[Figure]:
    drawn = [pair for pair in pairs if pair.before is not None and pair.after is not None]
    if not drawn:
        return []
    values = [v for pair in drawn for two in (pair.before, pair.after) for outputs in two or () for v in outputs]
    style = one_scale(values)
    there = dict.fromkeys(name for pair in drawn for name, _ in (pair.absorbed, pair.kept))
    legend = [Chip(name, name, colours[name]) for name in there]
    before = [Panel(_pair_title(pair), _pair_lines(pair, pair.before, colours), style, 130) for pair in drawn]
    after = [Panel(_pair_title(pair), _pair_lines(pair, pair.after, colours), style, 130) for pair in drawn]
    start = "Outputs over one test unit\u2019s history, in the clients\u2019 own networks."
    end = "Solid: the kept neuron. Dashed: what stands in for the absorbed one."
    return [
        Figure("pairs-before", "Before absorption", start, [("", before)], "", legend, grid="small"),
        Figure("pairs-after", "After absorption", end, [("", after)], grid="small"),
    ]


def _pair_title(pair: Pair) -> str:
    return f"{pair.absorbed[1]} and {pair.kept[1]} \u00b7 r = {_signed(pair.correlation)}"


def _pair_lines(
    pair: Pair, two: tuple[tuple[float, ...], tuple[float, ...]] | None, colours: Mapping[str, str]
) -> list[dict[str, object]]:
    traces = []
    for (client, neuron), values, dash in zip((pair.absorbed, pair.kept), two or (), ("dash", "solid"), strict=True):
        tip = hover(f"{client}, neuron {neuron}", ": %{y} at step %{x}")
        style = {"dash": dash, "hovertemplate": tip, "key": client}
        traces.append(line(range(1, len(values) + 1), values, colours[client], **style))
    return traces


sections.add(ReportSection("absorbed_neurons", 91, TITLE, build, lambda run: bool(run.absorbed)))
