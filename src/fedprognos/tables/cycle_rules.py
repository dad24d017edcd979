"""Rules about the cycles of a unit: which were broken off, what part is read, and where the unit's life ends."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedprognos.arrays import BoolArray, FloatArray

END_OF_LIFE = 0.8
"""A unit is worn out below this share of its first health; what makers of battery cells use."""
_BROKEN_OFF = 0.5
_NEIGHBOURS, _FIRST = 9, 5
LATEST = _FIRST
"""Latest values that decide whether a unit is worn."""
_ODD = 0.2
READ_SHARE = 0.9
"""Part of the shortest cycle that is read: of its load, where a sensor falls under load."""
_SETTLED = 1 / 57
"""Part of what is read after which the load has set in."""


def broken_off(values: FloatArray) -> BoolArray:
    """Cycles that ended early: their duration or health is below half the median of the nine nearest cycles.

    A worn cell fades slowly, so that its neighbours fade with it; a cycle that somebody broke off stands alone.

    Parameters
    ----------
    values : (K,)
        Duration or health of every cycle, in their order.

    Examples
    --------
    >>> broken_off(np.array([2.0, 1.9, 0.3, 1.8, 1.7, 1.6])).tolist()
    [False, False, True, False, False, False]
    """
    if len(values) < _FIRST:
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(values < _BROKEN_OFF * _nearest_medians(values, _NEIGHBOURS), dtype=np.bool_)


def fall_of_cycle(time: FloatArray, values: FloatArray, end: float) -> tuple[float, float]:
    """A sensor's value once the load has set in, and its lowest value until `end`.

    >>> fall_of_cycle(np.array([0.0, 57.0, 80.0, 114.0]), np.array([4.0, 3.5, 2.7, 3.1]), 57.0 * 2)
    (3.982456140350877, 2.7)
    """
    reached = np.min(values[time <= end], initial=np.inf)
    return float(np.interp(_SETTLED * end, time, values)), float(min(reached, np.interp(end, time, values)))


def first_health(health: FloatArray) -> float:
    """The health of a new unit: its first value; if that is odd, the median of the first five.

    >>> first_health(np.array([2.0, 1.99, 1.98])), first_health(np.array([0.9, 1.99, 1.98, 1.97, 1.96]))
    (2.0, 1.97)
    """
    usual = float(np.median(health[:_FIRST]))
    first = float(health[0])
    return first if abs(first - usual) <= _ODD * abs(usual) else usual


def end_of_life(health: FloatArray, share: float) -> int | None:
    """The first row at which the health stays below a share of its first value; None where it never does.

    A single low value is no end: a row counts as low if the median of the rows around it is low.

    Examples
    --------
    >>> end_of_life(np.array([1.0, 0.95, 0.7, 0.92, 0.88, 0.84, 0.79, 0.75, 0.7]), 0.8)
    6
    >>> end_of_life(np.array([1.0, 0.9, 0.85]), 0.8) is None
    True
    """
    below = np.flatnonzero(_centred_medians(health, _FIRST) < share * first_health(health))
    return int(below[0]) if below.size else None


def is_worn(first: float, latest: FloatArray, share: float) -> bool:
    """Whether the median of the latest five values is below a share of the first: as :func:`end_of_life`, row by row.

    >>> is_worn(2.0, np.array([1.7, 1.6, 1.59, 1.58, 1.57]), 0.8)
    True
    """
    return len(latest) >= LATEST and float(np.median(latest[-LATEST:])) < share * first


def _nearest_medians(values: FloatArray, width: int) -> FloatArray:
    """Median of the nearest values of each one; at both ends those of the end."""
    width = min(width, len(values))
    medians = np.median(sliding_window_view(values, width), axis=1)
    return np.asarray(medians[np.clip(np.arange(len(values)) - width // 2, 0, len(medians) - 1)])


def _centred_medians(values: FloatArray, width: int) -> FloatArray:
    """Median of as many values before as after each one; none at both ends, so that a steady fall stays as it is."""
    medians, half = values.astype(np.float64), width // 2
    for reach in range(1, half + 1):
        if len(values) > 2 * reach:
            medians[reach:-reach] = np.median(sliding_window_view(values, 2 * reach + 1), axis=1)
    return medians
