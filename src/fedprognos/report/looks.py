"""How figures look: colours by name, one a method everywhere, and the parts every figure is made of.

Colours are names of CSS variables (`ink`, `c0`); the page's script fills in their values, so that
figures follow the light or dark scheme of the reader.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprognos.report.entries import Entry
from fedprognos.report.material import OWN

Trace = dict[str, Any]
COLOURS = {
    "central": "c0",
    "local": "c1",
    "fedma": "c2",
    "fedavg": "c3",
    "ridge": "c4",
    "boosting": "c5",
    "age": "c6",
    "constant": "c7",
    "last": "c8",
    "fedprox": "c9",
    "concat": "c10",
    "mean-of-locals": "c11",
    "single": "c12",
}
SPARE = ("c5", "c8", "c4", "c6")
SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon"),
    *("star", "hexagon", "triangle-left", "triangle-right", "cross", "x"),
)
SHADES = ("s0", "s1", "s2", "s3", "s4", "s5")
"""Early to late, in as many steps as a picture of cycles has at most."""
CLIENTS = ("k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7")


class Palette:
    """Gives every method of a report its colour and symbol; an unknown method gets the next free ones."""

    def __init__(self, methods: Iterable[str], head: str | None = None) -> None:
        self._head = head
        self._colours = dict(COLOURS)
        for method in methods:
            base = method.partition("+")[0]
            if base not in self._colours:
                unknown = len(self._colours) - len(COLOURS)
                self._colours[base] = SPARE[unknown % len(SPARE)]
        self._order = list(self._colours)

    def colour(self, entry: Entry) -> str:
        """Variants of a method (`+personal`) share its colour."""
        return self.colour_of(entry.method)

    def colour_of(self, method: str) -> str:
        """The colour of a method by name."""
        return self._colours[method.partition("+")[0]]

    def dash(self, entry: Entry) -> str:
        """Yardsticks are dotted, personal and other heads than the main one dashed."""
        if entry.is_yardstick:
            return "dot"
        return "solid" if entry.head == self._head and not entry.remark else "dash"

    def symbol(self, entry: Entry) -> str:
        """A method's shape; hollow where a client trained alone, dotted for variants."""
        shape = self.symbol_of(entry.base)
        if entry.scope == OWN:
            return f"{shape}-open"
        return f"{shape}-dot" if "+" in entry.method else shape

    def symbol_of(self, method: str) -> str:
        """The shape of a method by name."""
        return SYMBOLS[self._order.index(method.partition("+")[0]) % len(SYMBOLS)]


@dataclass(frozen=True)
class Chip:
    """An entry of a figure's legend, which is also a switch."""

    key: str
    label: str
    colour: str
    dash: str
    shown: bool = True


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str
    data: Sequence[Trace]
    layout: dict[str, Any]
    height: int = 230


@dataclass(frozen=True)
class Figure:
    """Panels under one caption; with several choices the reader picks one from a list.

    Parameters
    ----------
    grid
        How panels lie: three beside each other, "pairs", or "small" ones, as many as there is room for.
    """

    id: str
    title: str
    caption: str
    choices: Sequence[tuple[str, Sequence[Panel]]]
    chooser: str = ""
    chips: Sequence[Chip] = ()
    notes: Sequence[str] = ()
    wide: bool = False
    grid: str = ""

    def as_json(self) -> list[list[dict[str, Any]]]:
        """What the page's script draws."""
        return [
            [{"title": p.title, "data": list(p.data), "layout": p.layout, "height": p.height} for p in panels]
            for _, panels in self.choices
        ]


def client_colours(clients: Iterable[str]) -> dict[str, str]:
    """Every client's colour; they come round again where clients are many."""
    return {client: CLIENTS[k % len(CLIENTS)] for k, client in enumerate(sorted(clients))}


def plain(text: object) -> str:
    """Text as plotly shall show it: its own markup language must not see names of units as markup."""
    return html.escape(str(text), quote=False)


def tidy(values: Iterable[float]) -> list[float | None]:
    """Four significant digits are enough for a picture; what is not a number leaves a gap."""
    return [float(f"{v:.4g}") if np.isfinite(v) else None for v in map(float, values)]


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


def line(x: Iterable[float], y: Iterable[float], colour: str, **more: Any) -> Trace:
    """A line; `width` and `dash` go to the line, the rest to the trace."""
    style = {"color": colour, "width": more.pop("width", 1.8), "dash": more.pop("dash", "solid")}
    return {"type": "scatter", "mode": "lines", "x": tidy(x), "y": tidy(y), "line": style, **more}


def hover(text: object, rest: str = "") -> str:
    """A hover text in which names are neither markup nor placeholders; `rest` may hold placeholders."""
    return plain(text).replace("%{", "% {") + rest + "<extra></extra>"


def chips(found: Sequence[Entry], palette: Palette, shown: Iterable[str]) -> list[Chip]:
    """The legend of some entries, all with the same head."""
    visible = set(shown)
    return [Chip(e.key, e.short_label, palette.colour(e), palette.dash(e), e.key in visible) for e in found]


def thin(length: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices of at most so many points, evenly spread, the first and last included."""
    return np.unique(np.linspace(0, max(length - 1, 0), min(length, most)).round().astype(np.int64))
