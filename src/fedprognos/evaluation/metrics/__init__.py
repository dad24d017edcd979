"""The table of metrics: one file each, which owns its name, its sums and how they become a number.

A metric is made of sums over points. Sites of a federation send such sums instead of predictions, and sums of several
sites add up. Scores, result rows and summaries all derive from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedprognos.arrays import BoolArray, FloatArray, IntArray
from fedprognos.errors import ConfigError
from fedprognos.fleet import Task
from fedprognos.shelf import Shelf


@dataclass(frozen=True, eq=False)
class Points:
    """Predictions beside the truth.

    Parameters
    ----------
    truth, prediction, unit : (N,)
        Raw labels, predictions, and which unit each point belongs to.
    cap
        Where labels were capped in training, for remaining life.
    bounds
        Lower and upper ends (N,) of prediction intervals, where there are any.
    """

    truth: FloatArray
    prediction: FloatArray
    unit: IntArray
    task: Task
    cap: float | None = None
    bounds: tuple[FloatArray, FloatArray] | None = None

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def units(self) -> int:
        """How many units they are about."""
        return len(np.unique(self.unit))

    @property
    def error(self) -> FloatArray:
        """Predicted minus true (N,)."""
        return self.prediction - self.truth


@dataclass(frozen=True)
class Sum:
    """A sum over points.

    Parameters
    ----------
    of
        The value of every point (N,); None where the sum does not apply.
    values
        What a point's value can be; sums from peers that break this are refused.
    """

    name: str
    of: Callable[[Points], FloatArray | BoolArray | None]
    values: Literal["any", "positive", "zero or one"] = "any"

    def total(self, points: Points) -> float | None:
        """The sum; None where it does not apply or is not finite."""
        values = self.of(points)
        return None if values is None else _finite(float(np.sum(values)))

    def largest(self, points: Points) -> float:
        """The largest share that a unit, or where there is only one a point, has in the sum of these sizes."""
        values, (_, unit) = self.of(points), np.unique(points.unit, return_inverse=True)
        if values is None or not len(points):
            return 0.0
        sizes = np.abs(np.asarray(values, dtype=np.float64))
        each = np.bincount(unit, sizes) if unit.max() else sizes
        return float(each.max() / each.sum()) if 0 < each.sum() < np.inf else 0.0  # an infinite sum is not told

    def possible(self, total: float, n: int) -> bool:
        """Whether some `n` points can have this sum."""
        return self.values == "any" or 0 <= total <= (n if self.values == "zero or one" else np.inf)


def mean(n: int, total: float) -> float:
    """From a sum to the mean over points."""
    return total / n


def root_mean(n: int, total: float) -> float:
    """From a sum of squares to the root of its mean."""
    return float(np.sqrt(total / n))


def weighted_mean(values: FloatArray, n: FloatArray) -> float:
    """One mean over all points from means of parts."""
    return float((n * values).sum() / n.sum())


def weighted_root(values: FloatArray, n: FloatArray) -> float:
    """One root mean square over all points from those of parts."""
    return float(np.sqrt(weighted_mean(np.square(values), n)))


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are.

    Parameters
    ----------
    name, label, order
        Its name in files, its name for people, and its place in tables.
    meaning
        What it is, in a phrase.
    sums
        The sums that it needs.
    from_sums
        From the number of points and those sums to its value; the mean of one sum by default.
    pool
        From values of parts and their numbers of points to the value of all; None where that takes the sums.
    from_points
        A more exact way where the predictions are at hand.
    best
        Which value is best; None where no value is better than another.
    tasks
        The tasks it applies to.
    percent
        Whether people read it as a percentage.
    headline
        Whether short tables, such as that of the terminal, show it.

    Examples
    --------
    >>> metrics["mae"].label, metrics["r2"].best
    ('MAE', 'highest')
    """

    name: str
    label: str
    order: int
    meaning: str
    sums: tuple[Sum, ...]
    from_sums: Callable[..., float | None] = mean
    pool: Callable[[FloatArray, FloatArray], float] | None = weighted_mean
    from_points: Callable[[Points], float | None] | None = None
    best: Literal["lowest", "highest", "nearest zero"] | None = "lowest"
    tasks: tuple[Task, ...] = ("rul", "soh")
    percent: bool = False
    headline: bool = True

    def of(self, points: Points) -> float | None:
        """Its value for some points; None where it does not apply."""
        if points.task not in self.tasks:
            return None
        if self.from_points is not None:
            return _finite(self.from_points(points))
        return self.of_sums(len(points), {s.name: t for s in self.sums if (t := s.total(points)) is not None})

    def of_sums(self, n: int, sums: Mapping[str, float]) -> float | None:
        """Its value from sums over `n` points; None where one of them is missing."""
        if not all(s.name in sums for s in self.sums):
            return None
        return _finite(self.from_sums(n, *(sums[s.name] for s in self.sums)))

    def badness(self, value: float) -> float:
        """What is to be small for the value to be good."""
        return {"lowest": value, "highest": -value, "nearest zero": abs(value), None: 0.0}[self.best]


def _finite(value: float | None) -> float | None:
    """Infinite scores and sums cannot be written or sent."""
    return value if value is not None and np.isfinite(value) else None


metrics: Shelf[Metric] = Shelf("metric", __name__, "fedprognos.metrics")


def sums_of(task: Task | None = None) -> dict[str, Sum]:
    """The sums that the metrics of a task need, by name; those of all metrics without one.

    Raises
    ------
    ConfigError
        Where two metrics mean different sums by one name.
    """
    found: dict[str, Sum] = {}
    for metric in metrics.values():
        for one in metric.sums if task is None or task in metric.tasks else ():
            if found.setdefault(one.name, one) is not one:
                raise ConfigError(
                    f"two metrics mean different sums by '{one.name}'", hint=f"rename that of {metric.name}"
                )
    return found


__all__ = ["Metric", "Points", "Sum", "metrics", "sums_of"]
