"""What every client contributes: the error of the head without its neurons, and how many of them were kept."""

from __future__ import annotations

from fedprognos.report.parts import Figure, Panel, Section
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, client_colours, hover, layout, plain
from fedprognos.report.words import not_drawn, number, percent

CLIENTS_DRAWN = 40


def build(run: RunData) -> Section:
    """A bar a client, with how many of its neurons were kept."""
    absorbed = run.absorbed[0]
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
        f"By how much the training error, {number(absorbed.whole)} {run.measure} with all neurons side by side, rises "
        "when a client\u2019s are left out."
    )
    notes = not_drawn(len(order) - len(shown), "client")
    figure = Figure(
        "contributions", "Without a client\u2019s neurons", caption, [("", [panel])], notes=notes, grid="wide"
    )
    lead = f"Without the neurons of {order[0]} the error would rise by {percent(max(rises[order[0]], 0.0) / 100)}."
    return Section("What each client contributes", lead, figures=[figure], folded=True)


sections.add(ReportSection("contributions", 91, "What each client contributes", build, lambda run: bool(run.absorbed)))
