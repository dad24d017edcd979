"""Missing values: what stands in for a blank cell, for a whole history at once and row by row.

Both forms agree: after any number of rows, what :class:`Filler` has given is what :func:`fill` makes of these rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedprognos.arrays import FloatArray

Policy = Literal["hold", "interpolate", "mean", "refuse"]
"""`hold`: the unit's last value; before its first one, the mean of the operating condition. `interpolate`: the line
between the neighbours in time; beyond them, the nearest. `mean`: that mean in every case. `refuse`: nothing does."""


def fill(values: FloatArray, time: FloatArray, policies: Sequence[Policy], means: FloatArray) -> FloatArray:
    """One unit's (or one cycle's) rows without missing values; columns with `refuse` stay as they are.

    Parameters
    ----------
    values : (T, C)
        NaN where a value is missing.
    time : (T,)
        Increasing.
    policies : (C,)
    means : (C,) or (T, C)
        Mean of each column in the operating condition of each row.

    Examples
    --------
    >>> rows = np.array([[np.nan, 1.0], [2.0, np.nan], [np.nan, 3.0]])
    >>> fill(rows, np.arange(3.0), ("hold", "interpolate"), np.array([9.0, 9.0]))
    array([[9., 1.],
           [2., 2.],
           [2., 3.]])
    """
    filled = values.copy()
    means = np.broadcast_to(means, values.shape)
    for c, policy in enumerate(policies):
        blank = np.isnan(values[:, c])
        if policy == "refuse" or not blank.any():
            continue
        known = np.flatnonzero(~blank)
        if policy == "mean" or not known.size:
            filled[blank, c] = means[blank, c]
        elif policy == "interpolate":
            filled[blank, c] = np.interp(time[blank], time[known], values[known, c])
        else:
            last = np.maximum.accumulate(np.where(blank, -1, np.arange(len(blank))))
            filled[blank, c] = np.where(last >= 0, values[last, c], means[:, c])[blank]
    return filled


class Filler:
    """The same, one row at a time, for one unit.

    Parameters
    ----------
    policies : (C,)
    most
        Rows back to which a later value may still change what stood in for a blank (`interpolate`).

    Examples
    --------
    >>> filler = Filler(("interpolate",))
    >>> filler.feed(0.0, np.array([1.0]), np.array([9.0])).tolist()
    [[1.0]]
    >>> filler.feed(1.0, np.array([np.nan]), np.array([9.0])).tolist()
    [[1.0]]
    >>> filler.feed(2.0, np.array([3.0]), np.array([9.0])).tolist()
    [[2.0], [3.0]]
    """

    def __init__(self, policies: Sequence[Policy], most: int = 1000) -> None:
        self._policies = tuple(policies)
        self._waiting: deque[tuple[float, FloatArray, FloatArray]] = deque(maxlen=most)  # time, as given, as filled
        self._known = np.full(len(policies), np.nan)
        self._when = np.full(len(policies), -np.inf)

    def feed(self, time: float, row: FloatArray, means: FloatArray) -> FloatArray:
        """The latest rows as they are now, (n, C): the new one last, before it those that it may have changed.

        Parameters
        ----------
        row : (C,)
            NaN where a value is missing.
        means : (C,)
            Mean of each column in the operating condition of this row.
        """
        filled = row.copy()
        for c, policy in enumerate(self._policies):
            if not np.isnan(row[c]):
                if policy == "interpolate":
                    self._bridge(c, time, float(row[c]))
                self._known[c], self._when[c] = row[c], time
            elif policy != "refuse":
                known = policy != "mean" and not np.isnan(self._known[c])
                filled[c] = self._known[c] if known else means[c]
        self._waiting.append((time, row, filled))
        now: FloatArray = np.stack([rows for _, _, rows in self._waiting])
        while self._waiting and not self._waits(*self._waiting[0][:2]):
            self._waiting.popleft()
        return now

    def _bridge(self, c: int, time: float, value: float) -> None:
        """Lay the line to a new value over the blanks before it."""
        for when, given, filled in self._waiting:
            if np.isnan(given[c]) and when > self._when[c]:
                ends = ([self._when[c], time], [self._known[c], value])
                filled[c] = value if np.isnan(self._known[c]) else np.interp(when, *ends)

    def _waits(self, when: float, given: FloatArray) -> bool:
        """Whether a later value can still change this row."""
        return any(
            policy == "interpolate" and np.isnan(given[c]) and when > self._when[c]
            for c, policy in enumerate(self._policies)
        )
