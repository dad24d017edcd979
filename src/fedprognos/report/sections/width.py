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
    absorbed = run.absorbed[0]
    total, clients = sum(absorbed.neurons.values()), plural(len(absorbed.neurons), "client")
    lead = f"{plural(total, 'neuron')} of {clients} became {absorbed.width}."
    return Section("How wide the model needs to be", lead, figures=[_curve(run, absorbed)], folded=True)


def _curve(run: RunData, absorbed: AbsorbedNeurons) -> Figure:
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


sections.add(ReportSection("width", 93, "How wide the model needs to be", build, lambda run: bool(run.absorbed)))
