"""The global neurons while clients come and go: how many client neurons each one stands for, and their sum."""

from __future__ import annotations

import numpy as np

from fedprognos.matching.arguments import Booleans, Floats, Indices
from fedprognos.matching.match.problem import ClientNeurons, MatchProblem


class GlobalNeurons:
    """Slots with a count and a sum; a slot whose count is zero is free and is given out again.

    ``counts`` is ``(slots,)``, ``sums`` ``(slots, D)``. ``seen`` holds the counts once more as floats: ``(slots, 1)``,
    or ``(slots, D)`` where clients lack dimensions. Slots never move during a sweep, so taking a client out touches
    its own slots only. After each sweep :meth:`renumber` closes the gaps and adds everything up afresh, which also
    removes the rounding that many additions and subtractions leave behind.
    """

    def __init__(self, problem: MatchProblem) -> None:
        self._problem = problem
        self._rebuild([], 0)

    def _rebuild(self, assignments: list[Indices], size: int) -> None:
        """Start over from the anchor and add the clients up."""
        problem = self._problem
        size = max(size, problem.anchored)
        self.counts = np.zeros(size, np.intp)
        self.sums = np.zeros((size, problem.dimensions))
        self.seen = np.zeros((size, problem.dimensions if problem.masked else 1))
        if problem.anchor is not None and problem.anchor.counts is not None:
            counts = problem.anchor.counts
            at = problem.anchor.index(np.arange(len(counts)))
            self.counts[: len(counts)] = counts
            self.sums[at] = counts[:, None] * problem.anchor.centred(problem.centre)
            self.seen[at] = counts[:, None]
        for client, slots in zip(problem.clients, assignments, strict=False):
            self.put(client, slots, client.centred(problem.centre))

    def put(self, client: ClientNeurons, slots: Indices, x: Floats) -> None:
        """Assign a client's neurons ``x`` to slots, no two to the same."""
        at = client.index(slots)
        self.counts[slots] += 1
        self.sums[at] += x
        self.seen[at] += 1

    def take(self, client: ClientNeurons, slots: Indices, x: Floats) -> Booleans:
        """Undo :meth:`put`; returns ``(L_j,)`` which of the slots are free now."""
        at = client.index(slots)
        self.counts[slots] -= 1
        self.sums[at] -= x
        self.seen[at] -= 1
        free: Booleans = self.counts[slots] == 0
        self.sums[slots[free]] = 0.0
        return free

    def live(self) -> Indices:
        """The slots in use."""
        return np.flatnonzero(self.counts)

    def open(self, number: int) -> Indices:
        """Free slots for so many new neurons: gaps first, then beyond the end."""
        gaps = np.flatnonzero(self.counts == 0)[:number]
        lacking = number - len(gaps)
        if lacking == 0:
            return gaps
        end = len(self.counts)
        # Doubling keeps the copying proportional to the final size.
        room = max(lacking, end)
        self.counts, self.sums, self.seen = (
            np.concatenate([a, np.zeros((room, *a.shape[1:]), a.dtype)]) for a in (self.counts, self.sums, self.seen)
        )
        return np.concatenate([gaps, np.arange(end, end + lacking)])

    def renumber(self, assignments: list[Indices]) -> None:
        """Number the neurons by first use in client order, after the anchor's, leaving no gaps."""
        label = np.full(len(self.counts), -1, np.intp)
        size = self._problem.anchored
        label[:size] = np.arange(size)
        for j, slots in enumerate(assignments):
            fresh = slots[label[slots] < 0]
            label[fresh] = np.arange(size, size + len(fresh))
            size += len(fresh)
            assignments[j] = label[slots]
        self._rebuild(assignments, size)
