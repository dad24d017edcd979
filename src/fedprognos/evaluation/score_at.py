"""At which moments of their lives test units are scored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fedprognos.fleet import Fleet


def moments_scored(tests: Iterable[Fleet], score_at: Literal["auto", "last", "all"]) -> Literal["last", "all"]:
    """Where test units are scored: at the last row if they end before failure."""
    if score_at != "auto":
        return score_at
    return "last" if any(unit.rul_at_end for fleet in tests for unit in fleet) else "all"
