"""How the study's page words numbers: errors, differences with their intervals, and what these mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.markdown import table

Line = Mapping[str, Any]
ORDER = (
    "alone",
    "mean of predictions",
    "best single body",
    "coordinate average",
    "BBP-MAP",
    "absorb",
    "concat",
)
"""Methods as tables list them."""


def verdict(one: Line, what: str) -> str:
    """Whether a line is better or worse than what it is compared with, or neither."""
    if "difference" not in one:
        return f"has an error of {one['rmse']:.1f}"
    middle, low, high = one["difference"]
    how = "is better than" if high < 0 else "is worse than" if low > 0 else "is not clearly different from"
    return f"{how} {what} ({percent(middle)}, {percent(low)} to {percent(high)})"


def percent(value: float) -> str:
    """A signed share."""
    return f"{value:+.1f} %".replace("-", "−")


def nearest(lines: Sequence[Line], method: str, width: float) -> Line | None:
    """The line of a method whose width is nearest to the one wanted."""
    found = [one for one in lines if one["method"] == method]
    return min(found, key=lambda one: abs(one["width"] - width), default=None)


def order(one: Line) -> tuple[int, float]:
    """Place in a table."""
    method = one["method"]
    return (ORDER.index(method) if method in ORDER else len(ORDER), one.get("width", 0.0))


def models_table(lines: Sequence[Line]) -> str:
    """Models with what they cost and reach."""
    header = ("method", "width", "parameters", "µs a row", "MB moved", "RMSE", "raw", "difference")
    rows = [
        (
            one["method"],
            number(one.get("width"), 0),
            number(one.get("parameters"), 0),
            number(one.get("latency_in_us"), 0),
            number(one["bytes"] / 1e6 if "bytes" in one else None, 1),
            error(one),
            f"{one['rmse_raw']:.1f}",
            difference(one),
        )
        for one in lines
    ]
    return table(header, rows)


def number(value: float | None, digits: int) -> str:
    """So many decimals, thousands apart; nothing where there is none."""
    return "" if value is None else f"{value:,.{digits}f}"


def error(one: Line) -> str:
    """RMSE and its deviation from seed to seed."""
    return f"{one['rmse']:.2f}" + ("" if one.get("spread") is None else f" ± {one['spread']:.2f}")


def difference(one: Line) -> str:
    """The paired difference and its interval; nothing where a line is compared with itself."""
    if "difference" not in one or one["difference"][1] == one["difference"][2] == 0:
        return ""
    middle, low, high = one["difference"]
    return f"{percent(middle)} ({percent(low)} to {percent(high)})"
