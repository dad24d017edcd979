"""Whether a column jumps between a few levels, as operating conditions do."""

from __future__ import annotations

import numpy as np

from fedprognos.arrays import FloatArray

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
