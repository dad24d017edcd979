"""Rows of many units, ordered so that each step takes one row of every unit that has one left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedprognos.arrays import IntArray


class Run(NamedTuple):
    """Rows of some steps in a row, in each of which the first `units` units have one."""

    rows: slice
    length: int
    units: int


@dataclass(frozen=True, eq=False)
class Steps:
    """Rows of units in the order of steps: first those that are the first of their unit, then the second ones, ...

    Parameters
    ----------
    order : (N,)
        Places of the rows.
    rank, step : (N,)
        Unit and step of each row in that order. Units with more rows come first.
    units : (U,)
        From ranks to the numbers of units.
    begins : (T + 1,)
        Where each step begins, in that order.

    Examples
    --------
    >>> steps = Steps.from_units(np.array([0, 1, 1, 0, 1]))
    >>> steps.order.tolist(), steps.rank.tolist(), steps.units.tolist(), steps.begins.tolist()
    ([1, 0, 2, 3, 4], [0, 1, 0, 1, 0], [1, 0], [0, 2, 4, 5])
    """

    order: IntArray
    rank: IntArray
    step: IntArray
    units: IntArray
    begins: IntArray

    @staticmethod
    def from_units(unit_of_row: IntArray) -> Steps:
        """The order of rows (N,) that belong to units 0, 1, ..., each unit's rows in the order given."""
        counts = np.bincount(unit_of_row)
        by_unit = np.argsort(unit_of_row, kind="stable")
        step = np.empty(len(unit_of_row), dtype=np.int64)
        step[by_unit] = np.arange(len(by_unit)) - np.repeat(np.cumsum(counts) - counts, counts)
        units = np.argsort(-counts, kind="stable")
        rank = np.empty_like(units)
        rank[units] = np.arange(len(units))
        order = np.lexsort((rank[unit_of_row], step))
        alive = np.bincount(step)
        return Steps(order, rank[unit_of_row][order], step[order], units, np.concatenate([[0], np.cumsum(alive)]))

    @cached_property
    def slices(self) -> list[slice]:
        """The rows of each step."""
        bounds = self.begins.tolist()
        return [slice(a, b) for a, b in pairwise(bounds)]

    def runs(self, most: int) -> Iterator[Run]:
        """Steps that follow one another and have as many units each, at most so many rows at a time."""
        alive = np.diff(self.begins)
        changes = [0, *(np.flatnonzero(np.diff(alive)) + 1).tolist(), len(alive)]
        for begin, end in pairwise(changes):
            units = int(alive[begin])
            each = max(most // units, 1)
            for a in range(begin, end, each):
                b = min(a + each, end)
                yield Run(slice(int(self.begins[a]), int(self.begins[b])), b - a, units)

    def units_at(self, t: int) -> int:
        """How many units have a row at a step."""
        return int(self.begins[t + 1] - self.begins[t]) if t + 1 < len(self.begins) else 0

    def last_rows(self) -> IntArray:
        """The last row of each unit (U,), by rank."""
        last = np.zeros(len(self.units), dtype=np.int64)
        last[self.rank] = np.arange(len(self.rank))
        return last
