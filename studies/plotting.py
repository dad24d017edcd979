"""How the docs' pictures look, and how they are written: equal data gives equal bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INK, QUIET, PALE, GRID = "#1f2933", "#66727f", "#b9c2cc", "#e4e8ec"
BLUE, ORANGE, GREEN, RED, PURPLE, BROWN = "#2563a8", "#e08a1e", "#2f8f5b", "#c8472b", "#7b4fa3", "#8a6d3b"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, BROWN)
WIDTH_IN_INCHES = 8.4
LONG = re.compile(r"\d+\.\d{3,}")
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "fedprognos",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": QUIET,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "path.simplify": False,
}


@contextmanager
def panels(count: int, columns: int, height: float = 2.1, **options: bool | str) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of so many panels, `height` inches each, in rows of `columns`."""
    with mpl.rc_context(STYLE):
        rows = -(-count // columns)
        figure = Figure(figsize=(WIDTH_IN_INCHES, height * rows + 0.35), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, **options)  # type: ignore[call-overload]
        axes: list[Axes] = list(grid.flat)
        for spare in axes[count:]:
            spare.set_axis_off()
        yield figure, axes[:count]


def legend(
    figure: Figure, entries: Sequence[tuple[str, str, Literal["-", "--", "o"]]], columns: int | None = None
) -> None:
    """Names above the panels: label, colour, and a line, a dashed line or a dot; all in one row by default."""
    handles = [
        Line2D([], [], color=colour, marker="o", linestyle="")
        if style == "o"
        else Line2D([], [], color=colour, linestyle=style)
        for _, colour, style in entries
    ]
    names = [label for label, *_ in entries]
    figure.legend(handles, names, loc="outside upper left", ncols=columns or len(entries), handlelength=1.6)


def named(ax: Axes, title: str, x: str, y: str) -> None:
    """Title and names of the axes."""
    ax.set_title(title)
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def svg(figure: Figure, title: str) -> str:
    """The figure as SVG text, without dates or versions, in hundredths of a point."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", metadata={**nothing, "Title": title})
    short = re.sub(r"<[^>]*>", _short, out.getvalue())
    return "\n".join(line.rstrip() for line in short.splitlines()) + "\n"


def _short(tag: re.Match[str]) -> str:
    """A tag on one line, its numbers in hundredths."""
    return LONG.sub(lambda number: f"{float(number[0]):.2f}", " ".join(tag[0].split()))
