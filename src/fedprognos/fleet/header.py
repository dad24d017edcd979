"""Where a table begins: the row that names its columns, below a title and above a row of measures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

NUMBER = re.compile(r"\s*[+-]?(\d[\d.,' \u00a0\u202f\u2019]*|\.\d+)([eE][+-]?\d+)?\s*")
"""What may be a number, whatever its marks."""
_TOP = 30
"""The names are looked for in so many rows."""
_UNKNOWN = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-", "--", "?")
_FILLED = 0.6
"""Share of the usual cells that a row of names has; titles have fewer."""


@dataclass(frozen=True)
class Heading:
    """The row that names the columns and the first one of data, counted from 0."""

    names: int
    first_row: int


def find_heading(rows: Sequence[Sequence[str]], names: int | None = None) -> Heading:
    """Look for the row of names; below it a row of measures (`h`, `°C`) may stand.

    Parameters
    ----------
    rows
        The beginning of a table; a blank cell is an empty text.
    names
        The row of names, where it is known.

    Examples
    --------
    >>> data = [["a", "1", "20"], ["a", "2", "21"]]
    >>> find_heading([["pump log", "", ""], ["pump", "hour", "heat"], ["", "h", "K"], *data])
    Heading(names=1, first_row=3)
    >>> find_heading([["pump", "hour"], ["a", "1"], ["a", "2"]])
    Heading(names=0, first_row=1)
    """
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    usual = Counter(filled).most_common(1)[0][0]
    if names is None:
        names = next((k for k, n in enumerate(filled[:_TOP]) if n >= _FILLED * usual and (n > 1 or usual < 2)), 0)
    return Heading(names, names + 1 + _is_measures(rows[names + 1 :]))


def _is_measures(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has words where the others have numbers, and no number at all there."""
    if len(rows) < 3:
        return False
    first, others = rows[0], rows[1:]
    numeric = [
        k
        for k in range(len(first))
        if sum(len(row) > k and bool(NUMBER.fullmatch(row[k])) for row in others) > len(others) / 2
    ]
    cells = [first[k].strip() for k in numeric]
    words = [c for c in cells if c.lower() not in _UNKNOWN]
    return 2 * len(words) >= len(cells) > 0 and not any(NUMBER.fullmatch(c) for c in words)
