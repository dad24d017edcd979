"""What predictions are worth for maintenance, from lives followed point by point.

Maintenance: a unit is maintained at the first point where its predicted remaining life is at or below a threshold.
The life that it still had is thrown away. A unit that fails before it gets there breaks unexpectedly.

Test units often end before failure. If such a unit was not maintained by its last point, it throws away less life than
it had left there, perhaps none. This is censoring. The product-limit estimator (Kaplan and Meier, 1958) handles it, run
from long remaining life down to none: at every remaining life it counts only units that were still followed there. It
assumes that the end of a unit's record has nothing to do with later predictions.

Near failure few units may be followed, and one of them would decide everything. So remaining lives are looked at only
down to the least that enough units were followed to. A unit that was not maintained by then counts as breaking. Without
censoring all this gives plain shares and means.

Alpha-lambda accuracy and the prognostic horizon follow Saxena et al., "Metrics for offline evaluation of prognostic
performance" (2010).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import isotonic_regression

from fedprognos.arrays import BoolArray, FloatArray, IntArray

ALPHA = 0.2
"""A prediction is accurate within this share of the true remaining life."""
ENOUGH = 10
"""Units that must have been followed to a remaining life for it to be looked at."""
BAND = 0.1
"""The prognostic horizon asks for errors within this share of the life left at the first prediction."""


@dataclass(frozen=True)
class Decided:
    """What a rule costs: the share of units that break, and the mean life thrown away, over all units.

    Where units were not followed to failure, those not maintained by the least remaining life looked at count as
    breaking: `breaks` is then an upper bound, `unused` a lower one.
    """

    breaks: float
    unused: float


def maintained_at(truth: FloatArray, prediction: FloatArray, unit: IntArray, threshold: float) -> FloatArray:
    """True remaining life of each unit when it is maintained (U,); NaN where that did not happen while it was followed.

    Parameters
    ----------
    truth, prediction, unit : (N,)
        Units one after another, each in order of time.
    """
    life_left = []
    for part in _each(unit):
        early = np.flatnonzero(prediction[part] <= threshold)
        life_left.append(truth[part][early[0]] if early.size else np.nan)
    return np.array(life_left)


def last_seen(truth: FloatArray, unit: IntArray) -> FloatArray:
    """Remaining life of each unit at its last point (U,)."""
    return np.array([truth[part][-1] for part in _each(unit)])


def followed_to(last: FloatArray) -> float:
    """The least remaining life to which enough units were followed; 0 where they were followed to failure."""
    return float(np.sort(last)[min(ENOUGH, len(last)) - 1])


def decided(maintained: FloatArray, last: FloatArray, least: float = 0.0) -> Decided:
    """What a threshold costs; see the module for units that end before failure.

    Parameters
    ----------
    maintained : (U,)
        From :func:`maintained_at`. Maintenance with no life left comes too late: the unit broke.
    last : (U,)
        From :func:`last_seen`.
    least
        Remaining life below which nothing is looked at; see :func:`followed_to`.

    Examples
    --------
    Four units followed to failure: two maintained with 10 and 30 cycles left, one too late, one never.

    >>> decided(np.array([10.0, 30.0, 0.0, np.nan]), np.zeros(4))
    Decided(breaks=0.5, unused=10.0)
    """
    value_or_bound = np.where(np.isnan(maintained), last, maintained)
    in_time = ~np.isnan(maintained) & (maintained > 0) & (maintained >= least)
    spans, masses, left = product_limit(value_or_bound, in_time)
    return Decided(left, float(spans @ masses))


def rising(values: FloatArray) -> FloatArray:
    """The nearest sequence that never falls (isotonic regression).

    A higher threshold never lets more units break nor wastes less life; estimates from few units may say so.

    >>> rising(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    fitted: FloatArray = isotonic_regression(values).x
    return fitted


def product_limit(values: FloatArray, observed: BoolArray) -> tuple[FloatArray, FloatArray, float]:
    """Distribution of a quantity of which some values are only known to be smaller than what is given.

    Parameters
    ----------
    values : (U,)
        The quantity where it was observed, else a bound above it.
    observed : (U,)
        Which is which.

    Returns
    -------
    tuple
        Values observed, from the largest on; the share of units at each; the share below all of them.
    """
    points = np.unique(values[observed])[::-1]
    left, masses = 1.0, []
    for point in points:
        at_risk = int((values <= point).sum())
        share = left * int((observed & (values == point)).sum()) / at_risk
        masses.append(share)
        left -= share
    return points, np.array(masses), float(max(left, 0.0))


def accurate(
    truth: FloatArray, prediction: FloatArray, unit: IntArray, share: float, alpha: float = ALPHA
) -> FloatArray:
    """Whether each unit's prediction is near the truth when a share of its life is over (U,): 1, 0, or NaN.

    Lives begin at the first prediction and end at failure, as the true remaining life says. The prediction is the last
    one made by then; it is near within `alpha` of the truth. NaN stands for units that were not followed so far.
    """
    near = []
    for part in _each(unit):
        true, predicted = truth[part], prediction[part]
        then = (1 - share) * true[0]
        if true[-1] > then:
            near.append(np.nan)
            continue
        k = int(np.flatnonzero(true >= then)[-1])
        near.append(float(abs(predicted[k] - true[k]) <= alpha * true[k]))
    return np.array(near)


def horizons(
    truth: FloatArray, prediction: FloatArray, unit: IntArray, band: float = BAND
) -> tuple[FloatArray, BoolArray]:
    """Remaining life from which on each unit's predictions stay within a band around the truth.

    The band is a share of the life left at the first prediction, the same all along. Where the last point is outside
    it the horizon is only known to be smaller than the life left there (0 at failure).

    Returns
    -------
    tuple
        Horizons or bounds (U,), and which were observed.
    """
    values, observed = [], []
    for part in _each(unit):
        true, predicted = truth[part], prediction[part]
        outside = np.flatnonzero(np.abs(predicted - true) > band * true[0])
        first = outside[-1] + 1 if outside.size else 0
        inside = first < len(true)
        values.append(true[first] if inside else true[-1])
        observed.append(inside)
    return np.array(values), np.array(observed)


def median_horizon(values: FloatArray, observed: BoolArray) -> float | None:
    """The horizon that half of the units reach at least; None where the records end too early to say."""
    points, masses, _ = product_limit(values, observed)
    reached = np.flatnonzero(np.cumsum(masses) >= 0.5 - 1e-12)
    if reached.size:
        return float(points[reached[0]])
    return None if (values[~observed] > 0).any() else 0.0


def _each(unit: IntArray) -> Iterator[slice]:
    """The points of one unit after another."""
    bounds = [0, *(np.flatnonzero(np.diff(unit)) + 1).tolist(), len(unit)]
    for start, end in pairwise(bounds):
        yield slice(start, end)
