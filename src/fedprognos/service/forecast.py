"""When maintenance will be due: the latest health carried on to the threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprognos.prognosis.health import Health

RECENT = 40
LEAST = 5


@dataclass(frozen=True)
class Forecast:
    """A straight line from the latest health.

    Parameters
    ----------
    slope
        Change of health per position.
    due
        Position at which the line meets the threshold; None where it does not, or there is no threshold.
    due_low, due_high
        The same for the ends of the interval: earliest and latest; None where they are not bounded.
    basis
        What the line rests on, in words.
    """

    slope: float
    due: float | None
    due_low: float | None
    due_high: float | None
    basis: str


def forecast(task: str, healths: Sequence[Health], threshold: float | None) -> Forecast | None:
    """Carry the latest health on; None where nothing can be said.

    A remaining useful life falls by one a cycle by definition. A state of health falls as it did lately: the median
    of the slopes between all pairs of the last values (Theil, 1950; Sen, 1968), which single odd values do not move.

    Examples
    --------
    >>> forecast("rul", [Health("pump", 100, 40.0, 30.0, 55.0)], 25.0)
    Forecast(slope=-1.0, due=115.0, due_low=105.0, due_high=130.0, basis='one cycle less with every cycle')
    """
    known = [h for h in healths if h.value is not None]
    if not known or known[-1] is not healths[-1]:
        return None
    last = known[-1]
    if task == "rul":
        slope, basis = -1.0, "one cycle less with every cycle"
    else:
        recent = known[-RECENT:]
        if len(recent) < LEAST:
            return None
        slope, basis = _median_slope(recent), f"as over the last {len(recent)} values"

    def meets(value: float | None) -> float | None:
        if value is None or threshold is None or slope >= 0:
            return None
        return last.position + max(value - threshold, 0.0) / -slope

    return Forecast(slope, meets(last.value), meets(last.low), meets(last.high), basis)


def _median_slope(healths: Sequence[Health]) -> float:
    x = np.array([h.position for h in healths])
    y = np.array([h.value for h in healths], dtype=np.float64)
    first, second = np.triu_indices(len(x), 1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))
