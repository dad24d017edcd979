"""Numbers over seeds: mean and spread, paired differences with an interval, and the paper's IMP."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedprognos.errors import DataError

LEVEL = 0.95


@dataclass(frozen=True)
class Sample:
    """One quantity, a value a seed; `rounds` holds the round each value was taken after."""

    by_seed: Mapping[int, float]
    rounds: Mapping[int, int]

    @property
    def seeds(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.by_seed.values())))

    @property
    def spread(self) -> float | None:
        """Sample standard deviation; None with one seed."""
        return float(np.std(list(self.by_seed.values()), ddof=1)) if self.seeds > 1 else None


@dataclass(frozen=True)
class Difference:
    """Mean of the differences seed by seed, with a 95 % t-interval (None with one seed)."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def verdict(self) -> str:
        """Which side the interval lies on."""
        if self.low is None or self.high is None:
            return "one seed"
        return "lower" if self.high < 0 else "higher" if self.low > 0 else "no difference shown"


def paired(first: Sample, second: Sample) -> Difference:
    """First minus second, seed by seed.

    >>> found = paired(Sample({0: 1.0, 1: 2.0}, {}), Sample({0: 2.0, 1: 4.0}, {}))
    >>> found.mean, round(found.low, 2), round(found.high, 2)
    (-1.5, -7.85, 4.85)
    """
    if first.by_seed.keys() != second.by_seed.keys():
        raise DataError(f"seeds {sorted(first.by_seed)} and {sorted(second.by_seed)} cannot be paired")
    apart = np.array([first.by_seed[seed] - second.by_seed[seed] for seed in sorted(first.by_seed)])
    mean, n = float(apart.mean()), len(apart)
    if n < 2:
        return Difference(mean, None, None, n)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * float(apart.std(ddof=1)) / math.sqrt(n)
    return Difference(mean, mean - reach, mean + reach, n)


def improvement(local: float, federated: float) -> float:
    """IMP of the paper: by how much the error of training alone falls, as a share of it.

    >>> round(100 * improvement(0.04979, 0.04588), 1)
    7.9
    """
    return (local - federated) / local
