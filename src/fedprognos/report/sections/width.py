"""How wide the federation needs to be: error against width, with the width that was chosen."""

from __future__ import annotations

from fedprognos.evaluation import AbsorbedNeurons
from fedprognos.report.parts import Chip, Figure, Panel, Section
from fedprognos.report.run_data import RunData
from fedprognos.report.sections import ReportSection, sections
from fedprognos.report.style import TOGETHER, axis, dots, hover, layout, line
from fedprognos.report.words import plural


def build(run: RunData) -> Section:
    """One curve."""
    found = run.absorbed[0]
    total, clients = sum(found.neurons.values()), plural(len(found.neurons), "client")
    lead = f"{plural(total, 'neuron')} of {clients} became {found.width}."
    return Section("How wide the model needs to be", lead, figures=[_curve(run, found)], folded=True)


def _curve(run: RunData, found: AbsorbedNeurons) -> Figure:
    widths = sorted(found.predicted)
    errors = [found.predicted[width] for width in widths]
    told = f"%{{x}} neurons: %{{y}} {run.measure}"
    traces = [line(widths, errors, "muted", hovertemplate=hover("predicted, ", told), key="predicted")]
    legend = [Chip("predicted", "predicted, training data", "muted")]
    if found.measured:
        at = sorted(found.measured)
        mark = {"color": TOGETHER, "size": 9, "symbol": "circle"}
        values = [found.measured[width] for width in at]
        traces.append(dots(at, values, mark, hovertemplate=hover("measured, ", told), key="measured"))
        legend.append(Chip("measured", "measured, kept-out data", TOGETHER))
    top = 1.6 * max(found.predicted[max(widths)], *found.measured.values(), found.predicted.get(found.width, 0.0))
    chosen = {"type": "line", "yref": "paper", "x0": found.width, "x1": found.width, "y0": 0, "y1": 1}
    chosen |= {"line": {"color": TOGETHER, "width": 1.6, "dash": "dot"}}
    note = {"x": found.width, "y": 1, "yref": "paper", "text": f"chosen: {found.width}", "showarrow": False}
    note |= {"xanchor": "left", "yanchor": "top", "xshift": 5, "font": {"color": TOGETHER, "size": 12}}
    y = axis(f"RMSE {run.measured}", range=[0, top])
    style = layout(axis("neurons kept", range=[0, max(widths) * 1.02]), y, shapes=[chosen], annotations=[note])
    caption = "Neurons go one by one, the cheapest first. The curve leaves out how errors feed back through time."
    return Figure(
        "width", "Error against width", caption, [("", [Panel("", traces, style, 260)])], "", legend, grid="wide"
    )


sections.add(ReportSection("width", 93, "How wide the model needs to be", build, lambda run: bool(run.absorbed)))
