"""Numbers in words, the same way everywhere in the report and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

APART = 10_000
"""From this number on thousands stand apart."""


def percent(share: float) -> str:
    """A share in whole percent, more exactly where it is small.

    >>> percent(0.123), percent(0.0072), percent(0.0)
    ('12\\xa0%', '0.7\\xa0%', '0\\xa0%')
    """
    return f"{100 * share:.{1 if 0 < share < 0.0095 else 0}f}\u00a0%"


def number(value: float | None) -> str:
    """Three significant digits, without an exponent.

    >>> number(54.427), number(0.03172), number(1234.5), number(275086.0), number(None)
    ('54.4', '0.0317', '1234', '275\xa0086', '–')
    """
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= APART:
        return whole(value).replace("-", "−")
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{min(digits, 8)}f}".replace("-", "−")


def size(count: float) -> str:
    """A number of bytes as people say it.

    >>> size(812), size(27_380), size(3_155_136)
    ('812\\xa0B', '27.4\\xa0kB', '3.16\\xa0MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{number(count / factor)}\u00a0{unit}"
    return f"{count:.0f}\u00a0B"


def whole(value: float) -> str:
    """A whole number with its thousands apart.

    >>> whole(18531.0)
    '18\\xa0531'
    """
    return f"{value:,.0f}".replace(",", "\u00a0")


def plural(count: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "message"), plural(3, "message")
    ('1 message', '3 messages')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def not_drawn(left: int, noun: str) -> list[str]:
    """A note about what a figure leaves out; nothing where it leaves out nothing.

    >>> not_drawn(1, "client"), not_drawn(0, "client")
    (['1 more client is not drawn.'], [])
    """
    if left <= 0:
        return []
    return [f"{left} more {noun}{' is' if left == 1 else 's are'} not drawn."]


def listed(names: Sequence[str]) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def measured_in(measure: str) -> str:
    """A measure as it stands behind a quantity.

    >>> measured_in("cycles"), measured_in("of rated")
    ('in cycles', 'as a share of rated')
    """
    return f"as a share {measure}" if measure.startswith("of ") else f"in {measure}"
