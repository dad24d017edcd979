"""Figures of the fleet: lifespans, sensors on their way to failure, discharge curves, capacity fade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedprognos.report.figures_lifespans import lifespans_figure
from fedprognos.report.figures_targets import targets_figure
from fedprognos.report.looks import SHADES, Chip, Figure, Panel, Trace, axis, layout, line, plain, thin
from fedprognos.report.material import Setting, measured_in

CLIENTS_DRAWN = 12
CHANNELS_DRAWN = 6
PANELS = 9
POINTS = 140


def fleet_figures(setting: Setting, number: int) -> list[Figure]:
    """All figures of one setting's fleet; none where there is no portrait."""
    fleet = setting.fleet
    if fleet is None:
        return []
    found = [lifespans_figure(fleet, f"fleet{number}-lifespans")]
    if fleet["schema"]["task"] == "soh":
        found += [_fade(fleet, f"fleet{number}-fade"), _discharges(fleet, f"fleet{number}-discharges")]
    else:
        found += [targets_figure(fleet, f"fleet{number}-targets"), _series(fleet, f"fleet{number}-series")]
    return [figure for figure in found if figure is not None]


def _by_client(items: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[Mapping[str, Any]]], list[str]]:
    """Items a client, for the clients drawn, and a note about the others."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        grouped.setdefault(item["client"], []).append(item)
    left = len(grouped) - CLIENTS_DRAWN
    notes = [f"{left} more clients are not drawn."] if left > 0 else []
    return dict(list(grouped.items())[:CLIENTS_DRAWN]), notes


def _series(fleet: Mapping[str, Any], name: str) -> Figure | None:
    series = [s for s in fleet.get("series", []) if len(s["position"]) > 1]
    if not series:
        return None
    every = list(series[0]["channels"])
    failed = all(f["failed"] == f["units"] for f in fleet["clients"].values())
    unit = fleet["schema"]["time_unit"]
    label = f"{unit} before failure" if failed else unit
    grouped, notes = _by_client(series)
    targets = {(d["client"], d["unit"]): d for d in fleet.get("degradation", []) if d["part"] == "train"}
    channels = _moving(series, CHANNELS_DRAWN - bool(targets))
    if len(every) > len(channels):
        notes.insert(0, f"Shown are the {len(channels)} of {len(every)} channels that move most.")
    ranges = {c: _range(series, c) for c in channels}
    choices = []
    for client, units in grouped.items():
        known = [targets[key] for u in units if (key := (client, u["unit"])) in targets]
        target = [_life(d["position"], d["value"], k, d["unit"], False) for k, d in enumerate(known)]
        panels = [Panel("target: remaining life", target, layout(axis(unit), axis(rangemode="tozero")), 190)]
        for channel in channels:
            traces: list[Trace] = []
            for k, u in enumerate(units):
                values = np.array(u["channels"][channel], dtype=float)
                traces.append(_life(u["position"], values, k, u["unit"], failed, width=0.8, opacity=0.3))
                traces.append(_life(u["position"], _smooth(values), k, u["unit"], failed))
            panels.append(Panel(channel, traces, layout(axis(label), axis(range=ranges[channel])), 190))
        choices.append((client, panels if known else panels[1:]))
    caption = (
        "A short-lived, a middling and a long-lived training unit (pale to strong). Sensors as the network sees "
        "them, scaled within each operating condition; thin the raw values, thick their running mean."
    )
    labels = ("short-lived", "middling", "long-lived")
    legend = [Chip(f"u{k}", label, SHADES[2 * k], "solid") for k, label in enumerate(labels)]
    several = max(len(units) for units in grouped.values()) == len(labels)
    return Figure(name, "Sensors over life", caption, choices, "client", legend if several else (), notes)


def _life(position: Sequence[float], values: Any, k: int, unit: str, failed: bool, **style: Any) -> Trace:
    x, y = np.array(position, dtype=float), np.array(values, dtype=float)
    kept = thin(len(x), POINTS)
    x = x - x[-1] if failed else x
    hover = plain(unit).replace("%{", "% {") + ": %{y} at %{x}<extra></extra>"
    return line(x[kept], y[kept], SHADES[min(2 * k, 5)], hovertemplate=hover, meta={"key": f"u{k}"}, **style)


def _smooth(values: np.ndarray[Any, Any], window: int = 15) -> np.ndarray[Any, Any]:
    padded = np.pad(values, window // 2, mode="edge")
    result: np.ndarray[Any, Any] = np.lib.stride_tricks.sliding_window_view(padded, window).mean(axis=1)
    return result


def _moving(series: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """The channels whose last tenth of life differs most from the first, in their own order."""
    strength: dict[str, list[float]] = {}
    for s in series:
        for channel, values in s["channels"].items():
            v = np.array(values, dtype=float)
            tenth = max(1, len(v) // 10)
            strength.setdefault(channel, []).append(abs(float(v[-tenth:].mean() - v[:tenth].mean())))
    names = list(strength)
    chosen = sorted(names, key=lambda c: (-float(np.mean(strength[c])), names.index(c)))[:most]
    return [c for c in names if c in chosen]


def _range(series: Sequence[Mapping[str, Any]], channel: str) -> list[float]:
    values = np.concatenate([np.array(s["channels"][channel], dtype=float) for s in series])
    low, high = np.quantile(values[np.isfinite(values)], [0.002, 0.998])
    pad = 0.08 * float(high - low) or 1.0
    return [float(f"{low - pad:.4g}"), float(f"{high + pad:.4g}")]


def _fade(fleet: Mapping[str, Any], name: str) -> Figure | None:
    lines = fleet.get("degradation", [])
    if not lines:
        return None
    schema = fleet["schema"]
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for item in lines:
        grouped.setdefault(item["client"], []).append(item)
    values = np.concatenate([np.array(d["value"], dtype=float) for d in lines])
    pad = 0.06 * float(np.ptp(values)) or 0.1
    y = axis(
        f"{schema['target']} {measured_in(schema['target_unit'])}",
        range=[float(values.min()) - pad, float(values.max()) + pad],
    )
    panels = []
    for client, parts in list(grouped.items())[:PANELS]:
        traces = [
            line(
                d["position"],
                d["value"],
                "accent" if d["part"] == "test" else "ink",
                width=2.2 if d["part"] == "test" else 1.3,
                hovertemplate=plain(f"{d['unit']}, {d['part']}").replace("%{", "% {")
                + ": %{y} at cycle %{x}<extra></extra>",
                meta={"key": d["part"]},
            )
            for d in parts
        ]
        units = len({d["unit"] for d in parts})
        title = f"{client} · {units} unit{'s' if units > 1 else ''}"
        panels.append(Panel(title, traces, layout(axis("cycle"), y), 220))
    left = len(grouped) - PANELS
    caption = (
        f"Measured {schema['target']} of every unit, cycle by cycle: what was trained on, what was kept for the test."
    )
    legend = [Chip("train", "training", "ink", "solid"), Chip("test", "test", "accent", "solid")]
    notes = [f"{left} more clients are not drawn."] if left > 0 else []
    return Figure(name, "Fade", caption, [("", panels)], chips=legend, notes=notes)


def _discharges(fleet: Mapping[str, Any], name: str) -> Figure | None:
    cycles = fleet.get("cycles", [])
    if not cycles:
        return None
    grouped, notes = _by_client(cycles)
    choices = []
    for client, drawn in grouped.items():
        panels = []
        for channel in drawn[0]["channels"]:
            traces = []
            for k, c in enumerate(drawn):
                kept = thin(len(c["time"]), POINTS)
                x, y = np.array(c["time"], dtype=float)[kept], np.array(c["channels"][channel], dtype=float)[kept]
                shade = SHADES[round(k * (len(SHADES) - 1) / max(1, len(drawn) - 1))]
                hover = f"cycle {c['cycle']}: " + "%{y} at %{x}<extra></extra>"
                traces.append(line(x, y, shade, hovertemplate=hover, width=1.6))
            panels.append(Panel(channel, traces, layout(axis(fleet["schema"]["time"]), axis()), 230))
        numbers = ", ".join(str(c["cycle"]) for c in drawn)
        choices.append((f"{client}, unit {drawn[0]['unit']}, cycles {numbers}", panels))
    which = f" ({choices[0][0]})" if len(choices) == 1 else ""
    caption = (
        f"Cycles of one unit a client{which} from the beginning of its life (pale) to the end of training (strong)."
    )
    return Figure(name, "Cycles", caption, choices, "client", notes=notes)
