"""What models cost, beside the paper's O() terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.lines import label
from studies.markdown import size, table
from studies.paper import PaperComplexity


def models_table(measured: Mapping[str, Any]) -> str:
    """Parameters, bytes and FLOPs of one model a line, and how long a prediction takes."""
    header = ["preset", "model", "network", "parameters", "float32", "FLOPs a window", "one window", "a window of many"]
    rows = []
    for m in measured["models"]:
        network = m["network"]
        entry = "" if network["input_width"] is None else f"{network['input_width']} + "
        widths = entry + ", ".join(str(w) for w in network["widths"])
        rows.append(
            [
                m["preset"],
                label(m["method"]),
                f"{network['cell'].upper()} {widths}, {m['steps']} × {network['inputs']}",
                f"{m['parameters']:,}",
                size(m["bytes"]),
                f"{m['flops'] / 1e6:.3g} M",
                f"{m['one_window_in_ms']:.3g} ms",
                f"{m['batch_in_ms'] / m['batch']:.3g} ms",
            ]
        )
    return table(header, rows, 3)


def matchings_table(measured: Mapping[str, Any]) -> str:
    """Time of one matching, a line a layer."""
    header = ["preset", "layer", "clients J", "neurons L", "dimensions D", "matched width L′", "time"]
    rows = [
        [
            m["preset"],
            m["layer"],
            *(f"{m[name]:,}" for name in ("clients", "neurons", "dimensions", "width")),
            f"{m['matching_in_ms']:.3g} ms",
        ]
        for m in measured["matchings"]
    ]
    return table(header, rows, 2)


def orders_table(printed: PaperComplexity) -> str:
    """The paper's terms: D dimensions of a neuron, L neurons a client, J clients."""
    return table(
        ["step", "paper"],
        [
            ["training, a client", printed.training],
            ["matching a layer, nothing in common", printed.matching_worst],
            ["matching a layer, all in common", printed.matching_best],
            ["prediction", printed.inference],
        ],
        2,
    )


def slip(printed: PaperComplexity) -> str:
    """The paper's memory figure against its own count."""
    right = 4 * printed.parameters / 1e6
    return (
        f"The paper gives its battery model {printed.megabytes:g} MB; {printed.parameters:,} parameters of four bytes "
        f"are {right:.2f} MB, so the printed figure is a slip by a factor of ten."
    )
