"""What a section of the report is made of: words, large numbers, tables and plots, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Trace = dict[str, Any]


@dataclass(frozen=True)
class Card:
    """A large number: its role, who reached it, and its bar as a share of the longest beside it."""

    role: str
    value: str
    measure: str
    detail: str
    colour: str
    share: float


@dataclass(frozen=True)
class Column:
    """A column of numbers and, where its title does not say it, what they mean."""

    title: str
    meaning: str = ""


@dataclass(frozen=True)
class TableCell:
    """A number as shown, the value it is sorted by, and whether it is the best of its column."""

    text: str
    sort: float | None = None
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a table: who, the numbers, a colour, what to remark or warn about; a quiet one is less important."""

    name: str
    cells: Sequence[TableCell]
    colour: str = ""
    remark: str = ""
    warning: str = ""
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """Lines under headings that sort; `what` heads the first column."""

    caption: str
    what: str
    columns: Sequence[Column]
    lines: Sequence[Line]

    @property
    def meanings(self) -> list[tuple[str, str]]:
        """Titles that need a word, and that word."""
        return [(column.title, column.meaning) for column in self.columns if column.meaning]


@dataclass(frozen=True)
class Chip:
    """An entry of a figure's legend, which is also a switch for the traces with this key."""

    key: str
    label: str
    colour: str
    dash: str = "solid"
    shown: bool = True


@dataclass(frozen=True)
class Panel:
    """One plot, as plotly takes it."""

    title: str
    data: Sequence[Trace]
    layout: dict[str, Any]
    height: int = 230


@dataclass(frozen=True)
class Figure:
    """Panels under one caption, with a name unique in its section; of several choices the reader picks one.

    `grid` says how panels lie: three beside each other, in "pairs", "small", or "wide": the first across all.
    """

    name: str
    title: str
    caption: str
    choices: Sequence[tuple[str, Sequence[Panel]]]
    chooser: str = ""
    chips: Sequence[Chip] = ()
    notes: Sequence[str] = ()
    grid: str = ""

    def as_json(self) -> list[list[dict[str, Any]]]:
        """What the page's script draws."""
        return [
            [{"title": p.title, "data": list(p.data), "layout": p.layout, "height": p.height} for p in panels]
            for _, panels in self.choices
        ]


@dataclass(frozen=True)
class Section:
    """What a section shows, in this order; of a folded one only title and lead are seen before a click.

    `warnings` are what nobody may miss, `terms` words and what they mean, `parts` sections within this one.
    """

    title: str
    lead: str = ""
    cards: Sequence[Card] = ()
    warnings: Sequence[str] = ()
    words: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    code: str = ""
    terms: Sequence[tuple[str, str]] = ()
    parts: Sequence[Section] = ()
    folded: bool = False
