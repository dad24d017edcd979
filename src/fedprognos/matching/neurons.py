"""The global neurons while clients come and go: how many client neurons each one stands for, and their sum."""

from __future__ import annotations

import numpy as np

from fedprognos.matching.arrays import Booleans, Floats, Indices
from fedprognos.matching.problem import Problem, Side


class GlobalNeurons:
    """Slots with a count and a sum; a slot whose count is zero is free and is given out again.

    Slots never move while a sweep lasts, so taking a client out touches that client's slots only. Once a sweep
    :meth:`renumber` closes the gaps, and :meth:`rebuild` adds everything up afresh, which also removes the rounding
    that many additions and subtractions leave behind.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.rebuild([], 0)

    def rebuild(self, assignments: list[Indices], size: int) -> None:
        """Start over from the anchor and add the clients up."""
        problem = self._problem
        size = max(size, problem.anchored)
        self._counts = np.zeros(size, np.intp)
        self._sums = np.zeros((size, problem.dimensions))
        self._seen = np.zeros((size, problem.dimensions)) if problem.masked else None
        if problem.anchor is not None:
            slots, counts = np.arange(problem.anchored), problem.anchor_counts
            at = self._at(problem.anchor, slots)
            self._counts[slots] = counts
            self._sums[at] = counts[:, None] * problem.anchor.centred(problem.centre)
            if self._seen is not None:
                self._seen[at] = counts[:, None]
        for side, slots in zip(problem.clients, assignments, strict=False):
            self.put(side, slots, side.centred(problem.centre))

    def put(self, side: Side, slots: Indices, x: Floats) -> None:
        """Assign a client's neurons ``x`` to slots, no two to the same."""
        self._counts[slots] += 1
        at = self._at(side, slots)
        self._sums[at] += x
        if self._seen is not None:
            self._seen[at] += 1

    def take(self, side: Side, slots: Indices, x: Floats) -> Booleans:
        """Undo :meth:`put`; returns ``(L_j,)`` which of the slots are free now."""
        self._counts[slots] -= 1
        at = self._at(side, slots)
        self._sums[at] -= x
        if self._seen is not None:
            self._seen[at] -= 1
        free: Booleans = self._counts[slots] == 0
        self._sums[slots[free]] = 0.0
        return free

    @staticmethod
    def _at(side: Side, slots: Indices) -> tuple[Indices, ...]:
        """The index of these slots in the dimensions the side has."""
        return (slots,) if side.dims is None else np.ix_(slots, side.dims)

    def live(self) -> Indices:
        """The slots in use."""
        return np.flatnonzero(self._counts)

    def counts(self, slots: Indices) -> Indices:
        """``(len(slots),)`` how many client neurons each slot stands for."""
        return self._counts[slots]

    def seen(self, slots: Indices, dims: Indices | None = None) -> Floats:
        """``(len(slots), 1)`` the counts as numbers, or ``(len(slots), D)`` where clients lack dimensions."""
        if self._seen is None:
            return self._counts[slots, None].astype(np.float64)
        return self._seen[slots] if dims is None else self._seen[np.ix_(slots, dims)]

    def sums(self, slots: Indices, dims: Indices | None = None) -> Floats:
        """``(len(slots), D)`` sums of the neurons assigned to each slot."""
        return self._sums[slots] if dims is None else self._sums[np.ix_(slots, dims)]

    def open(self, number: int) -> Indices:
        """Free slots for so many new neurons: gaps first, then beyond the end."""
        gaps = np.flatnonzero(self._counts == 0)[:number]
        lacking = number - len(gaps)
        if lacking == 0:
            return gaps
        end = len(self._counts)
        # Doubling keeps the copying proportional to the final size.
        room = max(lacking, end)
        self._counts = np.concatenate([self._counts, np.zeros(room, np.intp)])
        self._sums = np.concatenate([self._sums, np.zeros((room, self._sums.shape[1]))])
        if self._seen is not None:
            self._seen = np.concatenate([self._seen, np.zeros((room, self._seen.shape[1]))])
        return np.concatenate([gaps, np.arange(end, end + lacking)])

    def renumber(self, assignments: list[Indices]) -> None:
        """Number the neurons by first use in client order, after the anchor's, leaving no gaps."""
        label = np.full(len(self._counts), -1, np.intp)
        size = self._problem.anchored
        label[:size] = np.arange(size)
        for j, slots in enumerate(assignments):
            fresh = slots[label[slots] < 0]
            label[fresh] = np.arange(size, size + len(fresh))
            size += len(fresh)
            assignments[j] = label[slots]
        self.rebuild(assignments, size)
