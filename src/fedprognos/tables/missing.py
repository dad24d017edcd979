"""What stands in for the blank cells of a history; row by row, a prognosis does the same with what it knows so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.tables.columns import Policy


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
