"""Who reads the outputs of a layer (its own gates, the head, the next layer), and what each would miss of a neuron."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dpotrf, dpotri

from fedprognos.errors import DataError
from fedprognos.matching.arrays import Booleans, Floats, Indices

CACHE = 64_000
"""Numbers of the recurrent weights handled at once: what fits into a core's own cache."""

ROUNDING = 1e-12
"""Share of a variance that does not tell from nothing."""


def inverse(C: Floats) -> Floats:
    """Of a symmetric positive definite matrix."""
    factor, failed = dpotrf(C, lower=True)
    if failed:
        raise DataError("the sums are not those of any rows", hint="check them with OutputSums.check")
    found = dpotri(factor, lower=True, overwrite_c=True)[0]
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


class OutputReader(Protocol):
    """What reads a layer's outputs besides the layer itself: it prices neurons, weighs them, and lets them go."""

    loss: float
    rounding: float
    """What the loss may rise by without having risen."""

    def prices(self, spread: Floats) -> Floats: ...
    def importance(self) -> Floats: ...
    def loss_without(self, m: int, spread: Floats) -> float: ...
    def remove(self, m: int, beta: Floats, spread: Floats) -> None: ...
    def keep(self, kept: Indices) -> None: ...


class HeadReader:
    """A ridge regression on the outputs: its penalised loss rises by v_m^2 / P[m, m] when m goes.

    ``C`` is the covariance of the outputs with the penalty on its diagonal, ``c`` that with the labels, ``loss`` the
    penalised loss with all of them, ``variance`` the labels', ``sd`` the outputs'.
    """

    def __init__(self, C: Floats, c: Floats, loss: float, variance: float, sd: Floats) -> None:
        self._C, self._c, self._sd, self._variance = C, c, sd, variance
        self._solve()
        self.loss, self.rounding = loss, ROUNDING * variance

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
    """The next layer: its gates miss what others cannot predict of m. The loss is 1 plus the share that is missed.

    ``weights`` are ``(gates, K, N)``, ``importance`` ``(K,)`` how much each of its neurons counts, ``C`` and ``sd`` the
    covariance and spread of the outputs.
    """

    def __init__(self, weights: Floats, importance: Floats, C: Floats, sd: Floats) -> None:
        gates, _, neurons = weights.shape
        self._rows, self._sd, self.loss, self.rounding = np.tile(importance, gates), sd, 1.0, ROUNDING
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


def share_of(importance: Floats, left: Booleans) -> Floats:
    """Importance of those that are left, adding up to one; all alike where nobody counts."""
    importance = np.where(left, importance, 0.0)
    total = importance.sum()
    return importance / total if total > 0 else left / np.count_nonzero(left)
