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


def verdict(line: Line, what: str) -> str:
    """Whether a line is better or worse than what it is compared with, or neither."""
    if "difference" not in line:
        return f"has an error of {line['rmse']:.1f}"
    middle, low, high = line["difference"]
    how = "is better than" if high < 0 else "is worse than" if low > 0 else "is not clearly different from"
    return f"{how} {what} ({percent(middle)}, {percent(low)} to {percent(high)})"


def percent(value: float) -> str:
    """A signed share."""
    return f"{value:+.1f} %".replace("-", "−")


def nearest(lines: Sequence[Line], method: str, width: float) -> Line | None:
    """The line of a method whose width is nearest to the one wanted."""
    candidates = [line for line in lines if line["method"] == method]
    return min(candidates, key=lambda line: abs(line["width"] - width), default=None)


def order(line: Line) -> tuple[int, float]:
    """Place in a table."""
    method = line["method"]
    return (ORDER.index(method) if method in ORDER else len(ORDER), line.get("width", 0.0))


def models_table(lines: Sequence[Line]) -> str:
    """Models with what they cost and reach."""
    header = ("method", "width", "parameters", "µs a row", "MB moved", "RMSE", "raw", "difference")
    rows = [
        (
            line["method"],
            number(line.get("width"), 0),
            number(line.get("parameters"), 0),
            number(line.get("latency_in_us"), 0),
            number(line["bytes"] / 1e6 if "bytes" in line else None, 1),
            error(line),
            f"{line['rmse_raw']:.1f}",
            difference(line),
        )
        for line in lines
    ]
    return table(header, rows)


def number(value: float | None, digits: int) -> str:
    """So many decimals, thousands apart; nothing where there is none."""
    return "" if value is None else f"{value:,.{digits}f}"


def error(line: Line) -> str:
    """RMSE and its deviation from seed to seed."""
    return f"{line['rmse']:.2f}" + ("" if line.get("spread") is None else f" ± {line['spread']:.2f}")


def difference(line: Line) -> str:
    """The paired difference and its interval; nothing where a line is compared with itself."""
    if "difference" not in line or line["difference"][1] == line["difference"][2] == 0:
        return ""
    middle, low, high = line["difference"]
    return f"{percent(middle)} ({percent(low)} to {percent(high)})"
