"""Numbers and entries in words, the same way everywhere in the report."""

from __future__ import annotations

import numpy as np

from fedprognos.report.entries import Entry


def percent(share: float) -> str:
    """A share in whole percent, more exactly where it is small.

    >>> percent(0.123), percent(0.0072), percent(0.0)
    ('12\\xa0%', '0.7\\xa0%', '0\\xa0%')
    """
    return f"{100 * share:.{1 if 0 < share < 0.0095 else 0}f}\u00a0%"


def number(value: float | None) -> str:
    """Three significant digits, without an exponent.

    >>> number(54.427), number(0.03172), number(1234.5), number(None)
    ('54.4', '0.0317', '1234', '–')
    """
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
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


def count(number_: float) -> str:
    """A whole number with its thousands apart.

    >>> count(18531.0)
    '18\\xa0531'
    """
    return f"{number_:,.0f}".replace(",", "\u00a0")


def plural(number_: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "message"), plural(3, "message")
    ('1 message', '3 messages')
    """
    return f"{number_} {noun}{'' if number_ == 1 else 's'}"


def listed(names: list[str]) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def who(entry: Entry) -> str:
    """Method, whose data, and what else sets it apart."""
    data = "" if entry.is_federated and entry.everybodys else f" on {entry.scope}" if entry.scope else ""
    apart = ", ".join(part for part in (entry.head_label, entry.remark) if part)
    return f"{entry.method}{data} ({apart})" if apart else f"{entry.method}{data}"


def errors(entry: Entry) -> str:
    """The error with its unit, raw and capped."""
    capped = entry.mean("rmse_capped")
    text = f"RMSE {number(entry.mean('rmse'))} {entry.rows[0].measure}"
    return text if capped is None else f"{text} against raw and {number(capped)} against capped labels"


def values(entry: Entry) -> str:
    """The bare errors."""
    capped = entry.mean("rmse_capped")
    raw = number(entry.mean("rmse"))
    return raw if capped is None else f"{raw} raw, {number(capped)} capped"
