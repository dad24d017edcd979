"""Figures of the report as still pictures: SVG, small, the same bytes for the same figure.

A figure is data for plotly, which needs a browser. What figures here are made of (lines, markers, bars, rules) is drawn
directly, in the report's own light colours.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from fedprognos.report.parts import Chip, Panel, Trace

WIDTH = 900
TITLE, BELOW, RIGHT, GAP = 26, 44, 14, 18
LEFT, NARROW_LEFT = 62, 36
"""Room for the labels of the vertical axis, in panels with and without a title there."""
LEGEND_LINE = 24
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
DASHES = {"solid": "", "dash": "7 4", "dot": "2 3"}
CHARACTER = 6.6
"""About the width of a letter of the legend."""


@cache
def colours() -> Mapping[str, str]:
    """The report's light colours by name."""
    style = (resources.files("fedprognos.report") / "style.css").read_text("utf-8")
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]+)", style[: style.index("}")]))


def picture(
    title: str, panels: Sequence[Panel], chips: Sequence[Chip] = (), columns: int = 3, height: int | None = None
) -> str:
    """Panels beside and below each other, with one legend above them."""
    off = {chip.key for chip in chips if not chip.shown}
    panels = [replace(p, data=[t for t in p.data if t.get("meta", {}).get("key") not in off]) for p in panels]
    legend, top = _legend([chip for chip in chips if chip.shown])
    columns = min(columns, len(panels))
    width = (WIDTH - GAP * (columns - 1)) / columns
    body = []
    for begin in range(0, len(panels), columns):
        row = panels[begin : begin + columns]
        tall = height or max(panel.height for panel in row)
        for k, panel in enumerate(row):
            body.append(_panel(panel, k * (width + GAP), top, width, tall))
        top += tall + TITLE + 8
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {top:g}' width='{WIDTH}' height='{top:g}' "
        f"{FONT} role='img'><title>{html.escape(title)}</title>\n<rect width='100%' height='100%' "
        f"fill='{colours()['paper']}'/>\n" + "\n".join([*legend, *body]) + "\n</svg>\n"
    )


def _legend(chips: Sequence[Chip]) -> tuple[list[str], float]:
    x, y, parts = 8.0, 6.0, []
    for chip in chips:
        need = 44 + CHARACTER * len(chip.label)
        if x + need > WIDTH and x > 8:
            x, y = 8.0, y + LEGEND_LINE
        colour = colours()[chip.colour]
        stroke = f"stroke='{colour}' stroke-width='3' stroke-dasharray='{DASHES.get(chip.dash, '')}'"
        parts.append(f"<path d='M{x:.0f} {y + 10:.0f}h22' {stroke}/>" + _text(x + 28, y + 14, chip.label, 12.5, "ink"))
        x += need
    return parts, y + (LEGEND_LINE + 4 if chips else 0)


def _panel(panel: Panel, x: float, y: float, width: float, height: float) -> str:
    margin = LEFT if panel.layout["yaxis"]["title"]["text"] else NARROW_LEFT
    margin = max([margin, *(12 + int(CHARACTER * len(name)) for name in panel.layout["yaxis"].get("ticktext", ()))])
    below = BELOW if panel.layout["xaxis"]["title"]["text"] else BELOW - 16
    box = Box(panel, x + margin, y + TITLE, width - margin - RIGHT, height - below)
    marks = [mark for trace in panel.data for mark in _trace(trace, box)]
    words = html.unescape(panel.title)
    size = min(13.0, (width - margin) / (0.58 * max(1, len(words))))
    title = _text(x + margin, y + 16, words, round(size, 1), "ink", weight=600)
    clip = f"c{x:.0f}-{y:.0f}"
    frame = f"<rect x='{box.left:.1f}' y='{box.top:.1f}' width='{box.width:.1f}' height='{box.height:.1f}'"
    inside = f"<clipPath id='{clip}'>{frame}/></clipPath><g clip-path='url(#{clip})'>" + "\n".join(marks) + "</g>"
    rules = [_rule(shape, box) for shape in panel.layout.get("shapes", ())]
    return "\n".join([title, *_axes(panel.layout, box), *rules, inside])


class Box:
    """Where a panel's plot lies, and how its numbers become places."""

    def __init__(self, panel: Panel, left: float, top: float, width: float, height: float) -> None:
        self.left, self.top, self.width, self.height = left, top, width, height
        self.x_range = _range(panel.layout["xaxis"], panel.data, "x")
        self.y_range = _range(panel.layout["yaxis"], panel.data, "y")

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.top + self.height * (high - value) / (high - low)


def _range(axis: Mapping[str, Any], traces: Sequence[Trace], name: str) -> tuple[float, float]:
    if "range" in axis:
        low, high = axis["range"]
        return float(low), float(high)
    values = [float(v) for t in traces for v in t[name] if v is not None]
    values += [0.0] if axis.get("rangemode") == "tozero" else []
    for trace in traces:
        if name == "y" and "error_y" in trace:
            values += [y + s * r for y, r in zip(trace["y"], trace["error_y"]["array"], strict=True) for s in (-1, 1)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    pad = 0.06 * (high - low) or 0.5
    return low - (pad if axis.get("rangemode") != "tozero" else 0), high + pad


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers within a range, at most about so many.

    >>> ticks(0, 130, 6)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
    >>> ticks(0.0, 1.0, 4)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = abs(high - low)
    raw = span / (most + 1)
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(m * scale for m in (1, 2, 5, 10) if m * scale >= raw - 1e-12)
    first = math.ceil(min(low, high) / step - 1e-9)
    last = math.floor(max(low, high) / step + 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


def _axes(layout: Mapping[str, Any], box: Box) -> list[str]:
    parts = []
    bottom = box.top + box.height
    for name in ("x", "y"):
        axis = layout[f"{name}axis"]
        low, high = box.x_range if name == "x" else box.y_range
        places = axis.get("tickvals") or ticks(low, high, min(int(axis.get("nticks", 6)), 6))
        if axis.get("tickformat") == "d":
            places = [value for value in places if value == int(value)]
        labels = axis.get("ticktext") or [f"{v:g}" for v in places]
        for value, label in zip(places, labels, strict=True):
            if name == "x":
                at = box.x(value)
                parts.append(_line([(at, bottom), (at, bottom + 4)], "line", 1))
                parts.append(_text(at, bottom + 17, label, 11.5, "muted", "middle"))
            else:
                at = box.y(value)
                parts.append(_line([(box.left, at), (box.left + box.width, at)], "grid", 1))
                parts.append(_text(box.left - 6, at + 4, label, 11.5, "muted", "end"))
        title = html.unescape(axis["title"]["text"])
        if title and name == "x":
            parts.append(_text(box.left + box.width / 2, bottom + 34, title, 12, "muted", "middle"))
        elif title:
            middle = box.top + box.height / 2
            turn = f" transform='rotate(-90 {box.left - 46:.1f} {middle:.1f})'"
            parts.append(_text(box.left - 46, middle, title, 12, "muted", "middle", more=turn))
    parts.append(_line([(box.left, bottom), (box.left + box.width, bottom)], "line", 1))
    return parts


def _trace(trace: Trace, box: Box) -> list[str]:
    xs, ys = trace["x"], trace["y"]
    if trace["type"] == "bar":
        return _bars(trace, box)
    parts = []
    opacity = float(trace.get("opacity", 1))
    if "lines" in trace.get("mode", "lines"):
        style = trace["line"]
        for piece in _pieces(xs, ys):
            points = [(box.x(x), box.y(y)) for x, y in piece]
            parts.append(_line(points, style["color"], style["width"], DASHES[style["dash"]], opacity))
    if "markers" in trace.get("mode", "lines"):
        marker = trace["marker"]
        radius, see = float(marker["size"]) / 2, float(marker.get("opacity", 1)) * opacity
        edge = f" stroke='{colours()['paper']}'" if marker.get("line") else ""
        dots = "".join(
            f"<circle cx='{box.x(x):.1f}' cy='{box.y(y):.1f}' r='{radius:g}'/>"
            for x, y in zip(xs, ys, strict=True)
            if x is not None and y is not None
        )
        parts.append(f"<g fill='{_colour(marker['color'])}' opacity='{see:g}'{edge}>{dots}</g>")
    if "error_y" in trace:
        for x, y, reach in zip(xs, ys, trace["error_y"]["array"], strict=True):
            ends = [(box.x(x), box.y(y - reach)), (box.x(x), box.y(y + reach))]
            parts.append(_line(ends, trace["marker"]["color"], 1.5))
    return parts


def _pieces(xs: Sequence[Any], ys: Sequence[Any]) -> list[list[tuple[float, float]]]:
    """A line without its gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if x is None or y is None:
            pieces.append([])
        else:
            pieces[-1].append((float(x), float(y)))
    return [piece for piece in pieces if piece]


def _bars(trace: Trace, box: Box) -> list[str]:
    half, base = float(trace["width"]) / 2, box.y(max(0.0, box.y_range[0]))
    parts = []
    for x, y in zip(trace["x"], trace["y"], strict=True):
        left, right, top = box.x(x - half), box.x(x + half), box.y(y)
        place = f"x='{left:.1f}' y='{top:.1f}' width='{right - left:.1f}' height='{base - top:.1f}'"
        parts.append(f"<rect {place} fill='{_colour(trace['marker']['color'])}'/>")
    return parts


def _rule(shape: Mapping[str, Any], box: Box) -> str:
    """A straight line; in paper's coordinates it spans the plot."""
    xs = [box.left + box.width * v if shape.get("xref") == "paper" else box.x(v) for v in (shape["x0"], shape["x1"])]
    ys = [box.top + box.height * v if shape.get("yref") == "paper" else box.y(v) for v in (shape["y0"], shape["y1"])]
    style = shape["line"]
    return _line(list(zip(xs, ys, strict=True)), style["color"], style["width"], DASHES[style.get("dash", "solid")])


def _line(points: Sequence[tuple[float, float]], colour: str, width: float, dash: str = "", opacity: float = 1) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    more = f" stroke-dasharray='{dash}'" if dash else ""
    more += f" opacity='{opacity:g}'" if opacity != 1 else ""
    return f"<polyline points='{path}' fill='none' stroke='{_colour(colour)}' stroke-width='{width:g}'{more}/>"


def _text(
    x: float, y: float, words: str, size: float, colour: str, anchor: str = "start", weight: int = 400, more: str = ""
) -> str:
    bold = f" font-weight='{weight}'" if weight != 400 else ""
    place = f"x='{x:.1f}' y='{y:.1f}' font-size='{size:g}' fill='{_colour(colour)}' text-anchor='{anchor}'"
    return f"<text {place}{bold}{more}>{html.escape(words)}</text>"


def _colour(name: str) -> str:
    return colours().get(name, name)
