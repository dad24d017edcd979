"""Rules about the values of one column: the levels it jumps between, and what stands in for its blank cells.

Row by row, a prognosis does the same with what it knows so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from fedprognos.arrays import FloatArray
from fedprognos.tables.columns import Policy

Values = TypeVar("Values", FloatArray, pd.Series)
_MAX_DECIMALS = 3
_CLEAR = 0.3  # of a rounding step: values that come nearer to its edge (0.5) do not keep to levels
_CLOSE = 0.02  # of the range: coarser rounding would merge levels


def decimals_of_levels(values: FloatArray, few: int = 40) -> int | None:
    """Decimals by which rounding gives a few levels that the values keep close to; None where there are none.

    Parameters
    ----------
    values : (T,)
    few
        Most levels that still count as few.

    Examples
    --------
    >>> decimals_of_levels(np.array([0.001, 25.002, 41.999, -0.002, 25.001]), few=8)
    0
    >>> decimals_of_levels(np.array([0.0001, 0.2505, 0.8401, 0.6199, 0.2501]), few=8)
    2
    >>> decimals_of_levels(np.linspace(0, 1, 50), few=8) is None
    True
    """
    reach = float(np.ptp(values))
    if reach == 0:
        return None
    for decimals in range(_MAX_DECIMALS + 1):
        # Most sensors end with the first values: what has many levels there has many, and sorting all is slow.
        if len(np.unique(np.round(values[:1000], decimals))) > few:
            return None
        rounded = np.round(values, decimals)
        if len(np.unique(rounded)) > few:
            return None
        if float(np.abs(values - rounded).max()) <= min(_CLEAR * 10.0**-decimals, _CLOSE * reach):
            return decimals
    return None


def at_level(values: Values, decimals: int) -> Values:
    """Values rounded to their levels; -0.0 becomes 0.0, so that the same level is the same key everywhere.

    >>> at_level(np.array([41.998, -0.0004]), 0).tolist()
    [42.0, 0.0]
    """
    return values.round(decimals) + 0.0


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
        present = np.flatnonzero(~blank)
        if policy == "mean" or not present.size:
            filled[blank, c] = means[blank, c]
        elif policy == "interpolate":
            filled[blank, c] = np.interp(time[blank], time[present], values[present, c])
        else:
            last = np.maximum.accumulate(np.where(blank, -1, np.arange(len(blank))))
            filled[blank, c] = np.where(last >= 0, values[last, c], means[:, c])[blank]
    return filled
