"""Mergeable moments (n, mean, M2): what a client sends of its columns instead of its rows.

Merging is Chan, Golub & LeVeque's pairwise update ("Algorithms for computing the sample variance",
1983): the merged moments equal those of the pooled rows to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import DataError


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations of some rows, per column.

    Examples
    --------
    >>> a = Moments.from_rows(np.array([[1.0], [2.0]]))
    >>> b = Moments.from_rows(np.array([[6.0]]))
    >>> float(a.merge(b).mean[0]), round(float(a.merge(b).std[0]), 6)
    (3.0, 2.160247)
    """

    n: int
    mean: FloatArray
    m2: FloatArray

    @staticmethod
    def from_rows(values: FloatArray) -> Moments:
        """Moments of the rows of `values` (n, C)."""
        values = np.asarray(values, dtype=np.float64)
        if len(values) == 0:
            return Moments(0, np.zeros(values.shape[1:]), np.zeros(values.shape[1:]))
        mean = values.mean(axis=0)
        return Moments(len(values), mean, np.square(values - mean).sum(axis=0))

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of rows together."""
        if self.mean.shape != other.mean.shape:
            raise DataError(f"moments of {self.mean.shape} and {other.mean.shape} columns cannot be merged")
        if not self.n or not other.n:
            return self if self.n else other
        n = self.n + other.n
        delta = other.mean - self.mean
        return Moments(
            n,
            self.mean + delta * (other.n / n),
            self.m2 + other.m2 + np.square(delta) * (self.n * other.n / n),
        )

    @property
    def std(self) -> FloatArray:
        """Population standard deviation; 0 where the column is constant (to rounding) or empty."""
        variance = self.m2 / max(self.n, 1)
        rounding = np.square(self.mean) * 1e-24
        std: FloatArray = np.sqrt(np.where(variance > rounding, variance, 0.0))
        return std


def merge_all(moments: Iterable[Moments]) -> Moments:
    """Merge any number of moments, in the order given."""
    many = list(moments)
    if not many:
        raise DataError("no moments to merge")
    merged = many[0]
    for moments_of_one in many[1:]:
        merged = merged.merge(moments_of_one)
    return merged
