"""Is A better than B, and how sure is that? The one comparison that report, terminal and studies share.

Two models answer for the same test units. If both were equally good, each unit's difference of squared errors (mean
over seeds) could as well have the other sign. `chance` is how often random signs give a sum at least as far from zero.
Points of one unit rise and fall together, so the unit is what is counted, never the point. Where only errors by seed
are left, the seeds are the pairs and `chance` comes from Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import stdtrit

from fedprognos.arrays import FloatArray

SIGN_FLIPS = 9999
ALL_SIGNS_UP_TO = 13
"""With up to so many units all signs are tried: 2^13 are fewer than the flips drawn at random."""
FEW_UNITS = 6
"""With fewer test units chance is at least 2 / 2^5, above 5 %, even if all units agree."""
CLEAR = 0.05
"""A difference with a smaller chance is more than luck, if the seeds agree."""
AGREE = 0.75
"""Share of seeds that must agree for a difference to be clear."""
SAME = 0.005
"""Errors that differ by a smaller share are called equal."""
LEVEL = 0.95
"""Level of the intervals of differences."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Comparison:
    """How the error of A compares with that of B.

    Parameters
    ----------
    change
        By what share the error of A exceeds that of B.
    units, chance
        Test units compared, and how likely such a difference is by chance; None where single units are not known.
    agreeing, seeds
        In how many seeds of how many the difference has the same direction.
    """

    change: float
    units: int
    chance: float | None
    agreeing: int
    seeds: int

    @property
    def clear(self) -> bool:
        """True if the difference is more than chance."""
        unlikely = self.chance is not None and self.chance < CLEAR and self.agreeing >= AGREE * self.seeds
        return unlikely and not self.few_units and not self.same

    @property
    def same(self) -> bool:
        """True if there is hardly a difference."""
        return abs(self.change) < SAME

    @property
    def few_units(self) -> bool:
        """True if no difference between so few test units could be told from chance."""
        return self.units < FEW_UNITS


@dataclass(frozen=True)
class Difference:
    """A difference with its 95 % interval; the bounds are None where one seed leaves no spread to see."""

    mean: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """True if the interval leaves zero out."""
        return self.low is not None and self.high is not None and (self.high < 0 or self.low > 0)


def chance_of(differences: FloatArray) -> float:
    """How often random signs move the sum of paired differences at least as far from zero (two-sided).

    >>> chance_of(np.ones(6)) == 2 / 2**6
    True
    """
    n = len(differences)
    all_signs = n <= ALL_SIGNS_UP_TO
    draws = np.random.default_rng(0).choice((-1.0, 1.0), size=(0 if all_signs else SIGN_FLIPS, n))
    signs = np.array(list(product((-1.0, 1.0), repeat=n))) if all_signs else draws
    # The tolerance keeps sums that are equal but for rounding on the side of "at least as far".
    reached = int((np.abs(signs @ differences) >= abs(differences.sum()) * (1 - 1e-9)).sum())
    # The signs observed are one of all; where signs are drawn they are added, so that chance is never zero.
    return reached / len(signs) if all_signs else (reached + 1) / (len(signs) + 1)


def agreement(first: Sequence[float] | FloatArray, second: Sequence[float] | FloatArray, change: float) -> int:
    """In how many seeds the errors differ in the direction of the change."""
    return sum(bool(a < b) == (change < 0) for a, b in zip(first, second, strict=False))


def difference_by_seed(first: FloatArray, second: FloatArray) -> Difference:
    """First minus second (S,), seed by seed, with a t-interval: for errors of which the single units are not kept.

    >>> difference = difference_by_seed(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    >>> difference.mean, round(difference.low, 2), round(difference.high, 2)
    (-1.5, -7.85, 4.85)
    """
    apart = first - second
    mean, n = float(apart.mean()), len(apart)
    if n < 2:
        return Difference(mean, None, None)
    reach = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * float(apart.std(ddof=1)) / float(np.sqrt(n))
    return Difference(mean, mean - reach, mean + reach)


def change_by_unit(first: FloatArray, second: FloatArray) -> Difference:
    """By what share the first RMSE exceeds the second, from squared errors (S, U); seeds and units are drawn again.

    A model without seeds (S = 1) stands beside every seed of the other.

    >>> change_by_unit(np.full((2, 3), 4.0), np.full((2, 3), 1.0))
    Difference(mean=1.0, low=1.0, high=1.0)
    """
    counts = (len(first), len(second))
    seeds = max(counts) if 1 in counts else min(counts)
    a, b = (np.resize(squares, (seeds, squares.shape[1])) for squares in (first, second))
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = np.ix_(rng.integers(seeds, size=seeds), rng.integers(a.shape[1], size=a.shape[1]))
        ratios.append(np.sqrt(a[drawn].mean() / b[drawn].mean()))
    low, high = np.quantile(ratios, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Difference(float(np.sqrt(a.mean() / b.mean())) - 1, float(low) - 1, float(high) - 1)
