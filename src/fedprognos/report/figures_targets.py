"""What the network learns to say: remaining life, level at the cap while a unit is young, then falling to zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedprognos.report.looks import Chip, Figure, Panel, axis, client_colours, hover, layout, line

CLIENTS_DRAWN = 8


def targets_figure(fleet: Mapping[str, Any], name: str) -> Figure | None:
    """Labels of a short-lived, a middling and a long-lived training unit of every client, in one panel."""
    drawn = [d for d in fleet.get("degradation", []) if d["part"] == "train" and len(d["position"]) > 1]
    if not drawn:
        return None
    colours = client_colours(fleet["clients"])
    clients = list(dict.fromkeys(d["client"] for d in drawn))[:CLIENTS_DRAWN]
    unit = fleet["schema"]["time_unit"]
    traces = [
        line(
            d["position"],
            d["value"],
            colours[d["client"]],
            hovertemplate=hover(d["unit"], ": %{y} at %{x}"),
            meta={"key": d["client"]},
        )
        for d in drawn
        if d["client"] in clients
    ]
    shape = layout(axis(unit), axis(f"{unit} left", rangemode="tozero"))
    caption = (
        "Labels of a few training units: remaining life, held level while wear cannot be seen yet. Lines end where a "
        "unit failed, or where its record stops."
    )
    left = len({d["client"] for d in drawn}) - len(clients)
    notes = [f"{left} more clients are not drawn."] if left else []
    legend = [Chip(c, c, colours[c], "solid") for c in clients]
    return Figure(
        name,
        "Remaining life as it is learnt",
        caption,
        [("", [Panel("", traces, shape, 240)])],
        chips=legend,
        notes=notes,
        wide=True,
    )
