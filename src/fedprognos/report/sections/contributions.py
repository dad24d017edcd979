"""What every client contributes: the error of the head without its neurons, and how many of them were kept."""

from __future__ import annotations

from fedprognos.report.match_records import Absorbed
from fedprognos.report.parts import Cell, Column, Figure, Line, Panel, Section, Table
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import axis, client_colours, hover, layout, plain
from fedprognos.report.words import not_drawn, number, percent, whole

CLIENTS_DRAWN = 40


def build(run: RunData) -> Section:
    """A bar a client, and the numbers."""
    found = run.absorbed[0]
    rise = {name: found.without[name] / found.whole - 1 for name in found.without}
    most = max(rise, key=lambda name: rise[name])
    lead = f"Without the neurons of {most} the error would rise by {percent(max(rise[most], 0.0))}."
    return Section(
        "What each client contributes", lead, tables=[_table(run, found)], figures=[_bars(run, found)], folded=True
    )


def _bars(run: RunData, found: Absorbed) -> Figure:
    order = sorted(found.without, key=lambda name: -found.without[name])
    shown, colours = order[:CLIENTS_DRAWN], client_colours(found.neurons)
    rises = [100 * (found.without[name] / found.whole - 1) for name in shown]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [float(f"{rise:.4g}") for rise in rises],
        "y": [plain(name) for name in shown],
        "marker": {"color": [colours[name] for name in shown]},
        "hovertemplate": hover("", "%{y}: %{x} %"),
    }
    y = axis(type="category", autorange="reversed", showgrid=False, nticks=len(shown))
    panel = Panel("", [bars], layout(axis("rise of the error without its neurons, %"), y), 70 + 26 * len(shown))
    caption = (
        f"All clients\u2019 neurons side by side give a training error of {number(found.whole)} {run.measure}. "
        "A bar shows by how much it rises when one client\u2019s neurons are left out and the head is solved again."
    )
    notes = not_drawn(len(order) - len(shown), "client")
    return Figure(
        "contributions", "Error without a client\u2019s neurons", caption, [("", [panel])], notes=notes, grid="wide"
    )


def _table(run: RunData, found: Absorbed) -> Table:
    columns = [
        Column("Own neurons"),
        Column("Kept", "neurons that the federated network has"),
        Column(f"Error without, {run.measure}", "training error when its neurons are left out"),
    ]
    colours = client_colours(found.neurons)
    lines = []
    for name in sorted(found.neurons, key=lambda name: -found.without[name]):
        own, kept, without = found.neurons[name], found.kept[name], found.without[name]
        cells = [
            Cell(whole(own), own),
            Cell(whole(kept), kept, f"({percent(kept / max(own, 1))})"),
            Cell(number(without), without),
        ]
        lines.append(Line(name, cells, colours[name]))
    return Table("Clients by what they contribute, first seed.", "Client", columns, lines)


sections.add(ReportSection("contributions", 91, "What each client contributes", build, lambda run: bool(run.absorbed)))
