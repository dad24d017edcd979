"""Backward elimination with compensation: in which order the neurons of a layer go, and which others stand in for them.

A step costs O(N^2): rank-one updates of the inverse covariances in place, and one pass over the recurrent weights.
Every so often the arrays are compacted and the inverses computed anew, which also removes the rounding of the updates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dpotrf, dpotri

from fedprognos.errors import DataError
from fedprognos.matching.arrays import Booleans, Floats, Indices
from fedprognos.matching.outputs import Outputs

SEARCHED = 1e5
"""Neurons whose ridge residual exceeds so many times the ridge are not looked at as combinations of others."""
PARTNERS = 5
"""Neurons named for each absorbed one."""
CACHE = 64_000
"""Numbers of the recurrent weights handled at once: what fits into a core's own cache."""


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


def inverse(C: Floats) -> Floats:
    """Of a symmetric positive definite matrix."""
    factor, failed = dpotrf(C, lower=True)
    found, wrong = (None, 1) if failed else dpotri(factor, lower=True, overwrite_c=True)
    if wrong or found is None:
        raise DataError("the sums of outputs are not those of any rows", hint="check them with OutputSums.check")
    upper = np.triu_indices_from(found, 1)
    found[upper] = found.T[upper]
    return np.ascontiguousarray(found)


def remove(P: Floats, m: int) -> None:
    """Turn the inverse of a covariance into that without variable m, whose row and column become the identity's."""
    row = P[m].copy()
    dger(-1 / row[m], row, row, a=P.T, overwrite_a=True)
    P[m], P[:, m] = 0.0, 0.0
    P[m, m] = 1.0


class Weights:
    """The weights with which rows of gates read the layer's neurons, a line a neuron: ``(N, rows)``."""

    def __init__(self, columns: Floats) -> None:
        self.columns = np.ascontiguousarray(columns)
        self._scratch = np.empty(0)

    def squares(self, weights: Floats, m: int = 0, beta: Floats | None = None) -> Floats:
        """``(N,)`` weighted sums of squares, after the others took over what was read of neuron m by ``beta``."""
        neurons, rows = self.columns.shape
        if not rows:
            return np.zeros(neurons)
        gone, found = self.columns[m].copy(), np.empty(neurons)
        step = max(1, CACHE // rows)
        if self._scratch.size < step * rows:
            self._scratch = np.empty(step * rows)
        for first in range(0, neurons, step):
            part = self.columns[first : first + step]
            if beta is not None:
                dger(1.0, gone, beta[first : first + step], a=part.T, overwrite_a=True)
            square = self._scratch[: part.size].reshape(part.shape)
            np.multiply(part, part, out=square)
            np.dot(square, weights, out=found[first : first + step])
        return found


class Reader(Protocol):
    """What reads a layer's outputs besides the layer itself: it prices neurons, weighs them, and lets them go."""

    loss: float

    def prices(self, spread: Floats) -> Floats: ...
    def importance(self) -> Floats: ...
    def loss_without(self, m: int, spread: Floats) -> float: ...
    def remove(self, m: int, beta: Floats, spread: Floats) -> None: ...
    def keep(self, kept: Indices) -> None: ...


class HeadReader:
    """A ridge regression on the outputs: its penalised loss rises by v_m^2 / P[m, m] when m goes.

    ``C`` is the covariance of the outputs with the penalty on its diagonal, ``c`` that with the labels, ``loss`` the
    penalised loss without any of them, ``variance`` the labels', ``sd`` the outputs'.
    """

    def __init__(self, C: Floats, c: Floats, loss: float, variance: float, sd: Floats) -> None:
        self._C, self._c, self._sd, self._variance = C, c, sd, variance
        self._solve()
        self.loss = loss - float(c @ self._v)

    def _solve(self) -> None:
        self._P = inverse(self._C)
        self._v: Floats = self._P @ self._c

    def _rise(self, m: int) -> float:
        return float(self._v[m] ** 2 / self._P[m, m])

    def prices(self, spread: Floats) -> Floats:
        return np.asarray(self._v**2 / self._P.diagonal() / self._variance)

    def importance(self) -> Floats:
        return np.asarray(np.abs(self._v) * self._sd)

    def loss_without(self, m: int, spread: Floats) -> float:
        return self.loss + self._rise(m)

    def remove(self, m: int, beta: Floats, spread: Floats) -> None:
        self.loss += self._rise(m)
        self._v -= self._P[m] * (self._v[m] / self._P[m, m])
        self._v[m] = 0.0
        remove(self._P, m)

    def keep(self, kept: Indices) -> None:
        self._C, self._c, self._sd = self._C[np.ix_(kept, kept)], self._c[kept], self._sd[kept]
        self._solve()


class LayerReader:
    """The next layer: its gates miss what the others cannot tell of m; the loss is 1 and the share that is missed.

    ``weights`` are ``(gates, K, N)``, ``importance`` ``(K,)`` how much each of its neurons counts, ``C`` and ``sd`` the
    covariance and spread of the outputs.
    """

    def __init__(self, weights: Floats, importance: Floats, C: Floats, sd: Floats) -> None:
        gates, _, neurons = weights.shape
        self._rows, self._sd, self.loss = np.tile(importance, gates), sd, 1.0
        flat = weights.reshape(-1, neurons)
        self._whole = float(self._rows @ np.einsum("rj,rj->r", flat @ C, flat)) or 1.0
        self._weights = Weights(flat.T)
        self._read = self._weights.squares(self._rows)

    def prices(self, spread: Floats) -> Floats:
        return self._read * spread

    def importance(self) -> Floats:
        return np.asarray(np.sqrt(self._read) * self._sd)

    def loss_without(self, m: int, spread: Floats) -> float:
        return self.loss + float(self._read[m] * spread[m]) / self._whole

    def remove(self, m: int, beta: Floats, spread: Floats) -> None:
        self.loss = self.loss_without(m, spread)
        self._read = self._weights.squares(self._rows, m, beta)

    def keep(self, kept: Indices) -> None:
        self._weights, self._read, self._sd = Weights(self._weights.columns[kept]), self._read[kept], self._sd[kept]


class Elimination:
    """A layer while its neurons go one by one; ``recurrent`` are its own weights ``(gates, N, N)``."""

    def __init__(self, outputs: Outputs, recurrent: Floats, reader: Reader, alpha: float) -> None:
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
        limit = np.inf if tolerance is None else self.reader.loss * (1 + tolerance)
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


def share_of(importance: Floats, left: Booleans) -> Floats:
    """Importance of those that are left, adding up to one; all alike where nobody counts."""
    importance = np.where(left, importance, 0.0)
    total = importance.sum()
    return importance / total if total > 0 else left / np.count_nonzero(left)
