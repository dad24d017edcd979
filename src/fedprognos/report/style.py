"""How figures look: one colour and shape a method everywhere, and the parts every figure is made of.

Colours are names of CSS variables (`ink`, `c0`); the page's script fills in their values, so that figures follow the
light or dark scheme of the reader.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedprognos.evaluation import OWN, Method
from fedprognos.report.method_entries import Entry
from fedprognos.report.page_elements import Chip, Trace

ROLES = {"central": "c0", "local": "c1"}
"""Colours of kinds of methods; the published federated one is green, the others take turns."""
TOGETHER = "c2"
OTHERS = ("c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12")
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon"),
    *("star", "hexagon", "triangle-left", "triangle-right", "cross", "x"),
)
SHADES = ("s0", "s1", "s2", "s3", "s4", "s5")
"""Early to late, in as many steps as a picture of cycles has at most."""
CLIENTS = ("k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7")


class Palette:
    """Colour and symbol of every method: alone, central and the published one always the same, the others in turn.

    Parameters
    ----------
    methods
        Methods by name, in order.
    together
        The method that is published.
    head
        The head that figures are about.
    """

    def __init__(self, methods: Mapping[str, Method], together: str | None = None, head: str | None = None) -> None:
        self._head = head
        self._colours: dict[str, str] = {}
        for name, about in methods.items():
            role = TOGETHER if name == together else ROLES.get(about.kind, "")
            others = [c for c in OTHERS if c not in self._colours.values()] or OTHERS
            self._colours[name] = role if role and role not in self._colours.values() else others[0]

    def colour(self, method: str) -> str:
        """Variants of a method (`+personal`) share its colour."""
        return self._colours[method.partition("+")[0]]

    def symbol(self, method: str) -> str:
        """A method's shape."""
        return SYMBOLS[list(self._colours).index(method.partition("+")[0]) % len(SYMBOLS)]

    def dash(self, entry: Entry) -> str:
        """Baselines are dotted, personal and other heads than the main one dashed."""
        return "dot" if entry.is_baseline else "solid" if entry.head == self._head and entry.honest else "dash"

    def mark(self, entry: Entry, size: int) -> dict[str, Any]:
        """A marker: hollow where each client trained alone, dotted for variants."""
        colour, shape = self.colour(entry.method), self.symbol(entry.method)
        shape += "-open" if entry.data == OWN else "-dot" if "+" in entry.method else ""
        return {"color": colour, "size": size, "symbol": shape, "line": {"width": 2, "color": colour}}

    def line(self, entry: Entry, x: Iterable[float], y: Iterable[float], tip: str, **more: Any) -> Trace:
        """An entry's line, which its chip switches."""
        style = {"dash": self.dash(entry), "hovertemplate": tip, "key": entry.key, **more}
        return line(x, y, self.colour(entry.method), **style)

    def chips(self, entries: Iterable[Entry], shown: Iterable[str]) -> list[Chip]:
        """The legend of some entries, all with the same head; those that are shown come first."""
        keys = list(shown)
        ordered = sorted(entries, key=lambda e: keys.index(e.key) if e.key in keys else len(keys))
        return [Chip(e.key, e.short_label, self.colour(e.method), self.dash(e), e.key in keys) for e in ordered]


def client_colours(clients: Iterable[str]) -> dict[str, str]:
    """Every client's colour; they come round again where clients are many."""
    return {client: CLIENTS[k % len(CLIENTS)] for k, client in enumerate(sorted(clients))}


def plain(text: object) -> str:
    """Text escaped for plotly, so that the name of a unit is never markup."""
    return html.escape(str(text), quote=False)


def hover(text: object, rest: str = "") -> str:
    """A hover text in which names are neither markup nor placeholders; `rest` may hold placeholders."""
    return plain(text).replace("%{", "% {") + rest + "<extra></extra>"


def tidy(values: Iterable[float]) -> list[float | None]:
    """Four significant digits are enough for a picture; what is not a number leaves a gap."""
    return [float(f"{v:.4g}") if np.isfinite(v) else None for v in map(float, values)]


def thin(length: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices of at most so many points, evenly spread, the first and last included."""
    return np.unique(np.linspace(0, max(length - 1, 0), min(length, most)).round().astype(np.int64))


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis in the style of the page."""
    return {
        "title": {"text": plain(title), "standoff": 6, "font": {"size": 12, "color": "muted"}},
        "gridcolor": "grid",
        "linecolor": "line",
        "zerolinecolor": "line",
        "tickfont": {"size": 11, "color": "muted"},
        "automargin": True,
        "fixedrange": True,
        "nticks": 6,
        **more,
    }


def layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A plot in the style of the page."""
    return {
        "xaxis": x,
        "yaxis": y,
        "margin": {"l": 44, "r": 12, "t": 8, "b": 38},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "paper_bgcolor": "paper",
        "plot_bgcolor": "paper",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "ink"},
        "hoverlabel": {"bgcolor": "raised", "bordercolor": "line", "font": {"color": "ink", "size": 12}},
        **more,
    }


def one_scale(values: Sequence[float]) -> dict[str, Any]:
    """The layout of small panels that show these values: all have the same vertical scale."""
    pad = 0.06 * (max(values) - min(values)) or 0.1
    y = axis(range=[min(values) - pad, max(values) + pad], nticks=4)
    return layout(axis(nticks=4), y, margin={"l": 34, "r": 6, "t": 4, "b": 24})


def line(x: Iterable[float], y: Iterable[float], colour: str, **more: Any) -> Trace:
    """A line; `width` and `dash` go to the line, `key` names the chip that switches it, the rest to the trace."""
    style = {"color": colour, "width": more.pop("width", 1.8), "dash": more.pop("dash", "solid")}
    meta = {"meta": {"key": more.pop("key")}} if "key" in more else {}
    return {"type": "scatter", "mode": "lines", "x": tidy(x), "y": tidy(y), "line": style, **meta, **more}


def dots(x: Iterable[float], y: Iterable[float], marker: dict[str, Any], **more: Any) -> Trace:
    """Points; `key` names the chip that switches them."""
    meta = {"meta": {"key": more.pop("key")}} if "key" in more else {}
    return {"type": "scatter", "mode": "markers", "x": tidy(x), "y": tidy(y), "marker": marker, **meta, **more}


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], **more: Any) -> Trace:
    """The area between two lines."""
    area = line([*x, *x[::-1]], [*high, *low[::-1]], "band", width=0, hoverinfo="skip", **more)
    return {**area, "fill": "toself", "fillcolor": "band"}


def level(height: float) -> dict[str, Any]:
    """A dotted line across a plot, such as the cap of labels."""
    dotted = {"color": "muted", "width": 1.2, "dash": "dot"}
    ends = {"x0": 0, "x1": 1, "y0": height, "y1": height}
    return {"type": "line", "xref": "paper", **ends, "line": dotted, "layer": "below"}
