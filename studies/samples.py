"""Numbers over seeds: mean and spread, paired differences with an interval, and the paper's IMP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fedprognos.evaluation import Difference, difference_by_seed


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


class SeededCell(Protocol):
    """A training that is done with several seeds: a dataclass that has one, and a key of its results."""

    @property
    def seed(self) -> int: ...
    @property
    def key(self) -> str: ...


def over_seeds(results: Mapping[str, Any], cell: SeededCell, seeds: int, *path: str) -> Sample | None:
    """What the path leads to in the results of a cell, over its seeds; None where nothing was measured."""
    values = {}
    for seed in range(seeds):
        value: Any = results.get(replace(cell, seed=seed).key)  # type: ignore[type-var]
        for name in path:
            value = None if value is None else value.get(name)
        if value is not None:
            values[seed] = float(value)
    return Sample(values, {}) if values else None


def paired(first: Sample | None, second: Sample | None) -> Difference | None:
    """First minus second over the seeds that both have; None where there are none."""
    if first is None or second is None or not (seeds := sorted(first.by_seed.keys() & second.by_seed.keys())):
        return None
    return difference_by_seed(*(np.array([s.by_seed[seed] for seed in seeds]) for s in (first, second)))


def improvement(local: float, federated: float) -> float:
    """IMP of the paper: by how much the error of training alone falls, as a share of it.

    >>> round(100 * improvement(0.04979, 0.04588), 1)
    7.9
    """
    return (local - federated) / local
