"""Backward elimination with compensation: in which order the neurons of a layer go, and which others stand in for them.

A step costs O(N^2): rank-one updates of the inverse covariances in place, and one pass over the recurrent weights.
Every so often the arrays are compacted and the inverses computed anew, which also removes the rounding of the updates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedprognos.matching.arrays import Booleans, Floats, Indices
from fedprognos.matching.outputs import Outputs
from fedprognos.matching.readers import OutputReader, Weights, inverse, remove, share_of

SEARCHED = 1e5
"""Neurons whose ridge residual exceeds so many times the ridge are not looked at as combinations of others."""
PARTNERS = 5
"""Neurons named for each absorbed one."""


@dataclass(frozen=True)
class Absorbed:
    """A neuron that others stand in for.

    Parameters
    ----------
    neuron
        Its index in the layer.
    r2
        How well the others predicted it when it went; None for one that is always the same.
    partners, weights
        Those that contribute most to its prediction at that time, and by how much each is multiplied.
    redundant
        Whether it was a combination of others, so that nothing is lost.
    loss
        Predicted loss after it went (see :class:`~fedprognos.matching.Absorption`).
    """

    neuron: int
    r2: float | None
    partners: tuple[int, ...]
    weights: tuple[float, ...]
    redundant: bool
    loss: float

    def renamed(self, names: Indices) -> Absorbed:
        """The same with other indices."""
        return replace(self, neuron=int(names[self.neuron]), partners=tuple(names[list(self.partners)].tolist()))


class Elimination:
    """A layer while its neurons go one by one; ``recurrent`` are its own weights ``(gates, N, N)``."""

    def __init__(self, outputs: Outputs, recurrent: Floats, reader: OutputReader, alpha: float) -> None:
        self._outputs, self._alpha, self._gates, self.reader = outputs, alpha, len(recurrent), reader
        self._own = Weights(recurrent.reshape(-1, len(outputs.C)).T)
        self._ids = np.arange(len(outputs.C))
        self._settle()

    def _settle(self) -> None:
        self._left = np.ones(len(self._ids), bool)
        self._P = inverse(self._outputs.C)
        self._weigh()

    def _weigh(self, m: int = 0, beta: Floats | None = None) -> None:
        """What the layer's own gates read of each neuron, after the others took over what they read of m."""
        w = share_of(self.reader.importance(), self._left)
        squares = self._own.squares(np.tile(w, self._gates), m, beta)
        blocks = self._own.columns.reshape(len(w), self._gates, len(w))
        self._read = squares - w * np.square(np.einsum("jgj->jg", blocks)).sum(axis=1)

    def _compact(self) -> None:
        """Drop the rows and columns of those that went, and compute the inverses anew."""
        kept = np.flatnonzero(self._left)
        blocks = self._own.columns.reshape(len(self._ids), self._gates, len(self._ids))
        self._own = Weights(blocks[kept][:, :, kept].reshape(len(kept), self._gates * len(kept)))
        self._outputs, self._ids = self._outputs.take(kept), self._ids[kept]
        self.reader.keep(kept)
        self._settle()

    def _copies(self, spread: Floats) -> Booleans:
        return self._outputs.copied(self._left)

    def _all(self, spread: Floats) -> Booleans:
        return self._left

    def _combinations(self, spread: Floats) -> Booleans:
        """Those whose true residual, without the part of the ridge, is within the limit."""
        found, delta = np.zeros(len(spread), bool), self._outputs.delta
        near = np.flatnonzero(self._left & (spread <= SEARCHED * delta))
        rows = self._P[near]
        residual = spread[near] - delta * np.einsum("ij,ij->i", rows, rows) * spread[near] ** 2
        found[near] = residual <= self._outputs.limit[near]
        return found

    def run(self, width: int, tolerance: float | None) -> list[Absorbed]:
        """Until ``width`` are left, or until the loss would rise by more than the tolerance."""
        limit = np.inf if tolerance is None else self.reader.loss * (1 + tolerance) + self.reader.rounding
        absorbed: list[Absorbed] = []
        phases = [self._copies, self._combinations, self._all]
        while np.count_nonzero(self._left) > width:
            spread = 1 / self._P.diagonal()
            candidates = phases[0](spread)
            if not candidates.any():
                # Nobody becomes a copy or a combination of others because somebody else goes.
                if self._left.all():
                    phases.pop(0)
                else:
                    self._compact()
                continue
            cost = self.reader.prices(spread) + self._alpha * self._read * spread
            cost[~candidates] = np.inf
            m = int(np.argmin(cost))
            redundant = phases[0] != self._all
            if not redundant and self.reader.loss_without(m, spread) > limit:
                break
            if phases[0] == self._copies:
                beta, r2 = self._outputs.as_copy(m, self._left), 1.0
            else:
                beta, r2 = self._P[m] * -spread[m], float(1 - spread[m] / self._outputs.C[m, m])
            absorbed.append(self._absorb(m, beta, r2, spread, redundant))
            if np.count_nonzero(~self._left) >= max(16, len(self._ids) // 8):
                self._compact()
        return absorbed

    def _absorb(self, m: int, beta: Floats, r2: float, spread: Floats, redundant: bool) -> Absorbed:
        """The others stand in for m, by ``beta``."""
        outputs = self._outputs
        beta[m] = -1.0
        size = np.abs(beta) * np.sqrt(outputs.C.diagonal())
        size[m] = 0.0
        first = np.argsort(-size, kind="stable")[:PARTNERS]
        first = first[size[first] > 0]
        known = None if outputs.constant[m] else r2
        self.reader.remove(m, beta, spread)
        remove(self._P, m)
        self._left[m] = False
        self._weigh(m, beta)
        partners, weights = tuple(self._ids[first].tolist()), tuple(beta[first].tolist())
        return Absorbed(int(self._ids[m]), known, partners, weights, redundant, self.reader.loss)
