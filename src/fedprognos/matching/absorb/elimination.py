"""Backward elimination: in which order the neurons of a layer go, the cheapest first. The fast way.

``absorb_reference.py`` says the same line by line, and tests hold the two together. What makes this one fast: a step
updates everything in place by BLAS, in O(N^2); copies are recognised once, at the start; now and then the arrays are
cut to the neurons that are left and inverted anew, which also removes the rounding of the updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedprognos.errors import DataError
from fedprognos.matching.absorb.output_sums import LabelledSums, OutputSums
from fedprognos.matching.arguments import Booleans, Floats, Indices

DELTA = 1e-9
"""Ridge of the predictions, as a share of the mean variance. With 1e-5 copies would no longer be predicted exactly."""
REDUNDANT = 1e-12
"""Residual variance up to which a neuron counts as a combination of others, as a share of the mean square of its
outputs or of the layer's. Sites that compute in float32 show errors of 1e-6 after some steps, hence its square."""
SEARCHED = 1e5
"""A neuron whose residual exceeds the ridge this many times cannot be a combination of others, so it is skipped."""
ROUNDING = 1e-12
"""Labels whose variance is a smaller share of their mean square are all the same, but for rounding."""
PARTNERS = 5
"""Partners named for each absorbed neuron."""
CACHE = 64_000
"""Numbers of the recurrent weights handled at once: as many as fit into the cache of one core."""
DEAD = -1
"""Label of neurons that put out nothing."""


@dataclass(frozen=True)
class Absorbed:
    """A neuron that others stand in for.

    Parameters
    ----------
    neuron
        Its index in the layer.
    r2
        How well the others predicted it when it went; None for one whose output never changes.
    partners, weights
        The neurons that contribute most to its prediction, and the weight of each.
    redundant
        True if it was a combination of others, so that nothing is lost.
    loss
        Predicted loss after it went (see :class:`~fedprognos.matching.Absorption`).
    """

    neuron: int
    r2: float | None
    partners: tuple[int, ...]
    weights: tuple[float, ...]
    redundant: bool
    loss: float


class Elimination:
    """One layer while its neurons go one by one.

    Besides the layer's own gates, either the head reads the layer or the next layer does.

    Parameters
    ----------
    sums
        Of the layer's outputs.
    recurrent_weights
        ``(gates, N, N)``; no gates for a linear layer.
    alpha
        Weight of what the layer's own gates would miss.
    head
        What :func:`head_regression` returns, for the last layer.
    above, row_weights
        ``(rows, N)`` input weights of the next layer, and ``(rows,)`` how much each of its rows counts.
    """

    def __init__(
        self,
        sums: OutputSums,
        recurrent_weights: Floats,
        alpha: float,
        *,
        head: tuple[Floats, Floats, Floats, float, float] | None = None,
        above: Floats | None = None,
        row_weights: Floats | None = None,
    ) -> None:
        N, recurrent = sums.width, len(recurrent_weights) > 0
        # The gates read the outputs of the step before, and every sequence starts at zero: these zeros count here.
        self.mean, self.C = sums.moments(starts=recurrent)
        self.level, steps = sums.moments(starts=False)
        squares = sums.S.diagonal() / (sums.n + (sums.starts if recurrent else 0))
        self._limit = REDUNDANT * np.maximum(squares, squares.mean())
        self._label = copy_labels(self.C, self._limit)
        self._constant: Booleans = steps.diagonal() <= self._limit
        self.delta = smallest_ridge(self.C, sums)
        self.C[np.diag_indices(N)] += self.delta
        self._alpha, self._gates = alpha, len(recurrent_weights)
        self._ids = np.arange(N)
        # One line for each neuron: what every gate reads of it.
        self._recurrent = np.ascontiguousarray(recurrent_weights.reshape(-1, N).T)
        if head is not None:
            self._head: tuple[Floats, Floats] | None = head[:2]
            self.sd, self.loss, self._variance = head[2:]
            self._loss_per_price = self._variance
            self._above, self._row_weights = np.empty((N, 0)), np.empty(0)
        elif above is not None and row_weights is not None:
            self._head, self.sd, self.loss = None, np.sqrt(np.maximum(steps.diagonal(), 0.0)), 1.0
            total = float(row_weights @ np.einsum("rj,rj->r", above @ steps, above))
            self._loss_per_price = 1 / (total or 1.0)
            self._above, self._row_weights = np.ascontiguousarray(above.T), row_weights
        else:
            raise DataError("nothing reads the layer", hint="pass the head, or the next layer and its row weights")
        self._invert()

    def run(self) -> list[Absorbed]:
        """Let all neurons but one go; returns them in that order."""
        absorbed: list[Absorbed] = []
        phases = [self._copies, self._combinations, self._everybody]
        while np.count_nonzero(self._left) > 1:
            spread = 1 / self._P.diagonal()  # residual variance of each neuron, given all the others
            candidates = phases[0](spread)
            if not candidates.any():
                # No neuron becomes a copy or a combination because another one goes. So a phase ends once it finds
                # nothing in freshly inverted arrays.
                if self._left.all():
                    phases.pop(0)
                else:
                    self._compact()
                continue
            price = self._price(spread)
            cost = price + self._alpha * self._missed * spread
            cost[~candidates] = np.inf
            m = int(np.argmin(cost))
            if phases[0] == self._copies:
                beta, r2 = self._beta_of_copy(m), 1.0
            else:
                beta, r2 = self._P[m] * -spread[m], float(1 - spread[m] / self._cut[m, m])
            self.loss += float(price[m]) * self._loss_per_price
            absorbed.append(self._described(m, beta, r2, redundant=phases[0] != self._everybody))
            self._remove(m, beta)
            if np.count_nonzero(~self._left) >= max(16, len(self._ids) // 8):
                self._compact()
        return absorbed

    def mixture(self, kept: Indices) -> Floats:
        """``(N, K)`` the combination of the kept neurons that predicts each one; a copy is predicted by its like."""
        mixture = np.zeros((len(self.C), len(kept)))
        mixture[kept, np.arange(len(kept))] = 1.0
        gone = np.setdiff1d(np.arange(len(self.C)), kept)
        mixture[gone] = solve_covariance(self.C[np.ix_(kept, kept)], self.C[np.ix_(kept, gone)]).T
        place_of_label = dict(zip(self._label[kept].tolist(), range(len(kept)), strict=True))
        for m in gone:
            label = int(self._label[m])
            if label == DEAD:
                mixture[m] = 0.0
            elif label in place_of_label:
                # The ridge spreads the prediction of a copy over others; the ratio to its like alone is exact.
                place = place_of_label[label]
                mixture[m] = 0.0
                mixture[m, place] = self._ratio(int(m), int(kept[place]))
        return mixture

    def _price(self, spread: Floats) -> Floats:
        """What the head loses without each neuron, as a share of the labels' variance; or what the next layer does."""
        if self._head is None:
            return self._read * spread
        return np.asarray(self._v**2 / self._P_head.diagonal() / self._variance)

    def _importance(self) -> Floats:
        """How much the head, or the next layer, uses each neuron."""
        used = np.sqrt(self._read) if self._head is None else np.abs(self._v)
        return np.asarray(used * self.sd[self._ids])

    def _invert(self) -> None:
        """Compute all inverses for the neurons in the arrays."""
        self._left = np.ones(len(self._ids), bool)
        self._cut = self.C[np.ix_(self._ids, self._ids)]
        self._P = inverse(self._cut)
        if self._head is not None:
            C, c = self._head
            self._P_head = inverse(C[np.ix_(self._ids, self._ids)])
            self._v: Floats = self._P_head @ c[self._ids]
        self._update_reads()

    def _compact(self) -> None:
        """Drop the rows and columns of the neurons that went."""
        kept, old = np.flatnonzero(self._left), len(self._ids)
        recurrent_weights = self._recurrent.reshape(old, self._gates, old)[kept][:, :, kept]
        self._recurrent, self._above = np.ascontiguousarray(recurrent_weights.reshape(len(kept), -1)), self._above[kept]
        self._ids = self._ids[kept]
        self._invert()

    def _update_reads(self, m: int = 0, beta: Floats | None = None) -> None:
        """What the next layer and the layer's own gates read of each neuron, after the others took over from m."""
        if self._head is None:
            self._read = weighted_squares(self._above, self._row_weights, m, beta)
        w = shares(self._importance(), self._left)
        squares = weighted_squares(self._recurrent, np.tile(w, self._gates), m, beta)
        blocks = self._recurrent.reshape(len(w), self._gates, len(w))
        # A neuron that goes takes its own gates with it, so what they read of it is not missed.
        self._missed = squares - w * np.square(np.einsum("jgj->jg", blocks)).sum(axis=1)

    def _remove(self, m: int, beta: Floats) -> None:
        """Update all that the next step needs."""
        if self._head is not None:
            self._v -= self._P_head[m] * (self._v[m] / self._P_head[m, m])
            self._v[m] = 0.0
            remove_variable(self._P_head, m)
        remove_variable(self._P, m)
        self._left[m] = False
        self._update_reads(m, beta)

    def _described(self, m: int, beta: Floats, r2: float, *, redundant: bool) -> Absorbed:
        beta[m] = -1.0  # so that adding beta times what was read of m also clears what was read of m
        size = np.abs(beta) * np.sqrt(self._cut.diagonal())
        size[m] = 0.0
        strongest = np.argsort(-size, kind="stable")[:PARTNERS]
        strongest = strongest[size[strongest] > 0]
        neuron = int(self._ids[m])
        return Absorbed(
            neuron,
            None if self._constant[neuron] else r2,
            tuple(self._ids[strongest].tolist()),
            tuple(beta[strongest].tolist()),
            redundant,
            self.loss,
        )

    def _copies(self, spread: Floats) -> Booleans:
        """Neurons that are dead, or multiples of others that are left."""
        label = self._label[self._ids]
        _, number = np.unique(np.where(self._left, label, DEAD), return_inverse=True)
        return np.asarray(self._left & ((label == DEAD) | (np.bincount(number)[number] > 1)))

    def _combinations(self, spread: Floats) -> Booleans:
        """Neurons whose true residual, without the part of the ridge, is within the limit."""
        redundant = np.zeros(len(spread), bool)
        near = np.flatnonzero(self._left & (spread <= SEARCHED * self.delta))
        rows = self._P[near]
        residual = spread[near] - self.delta * np.einsum("ij,ij->i", rows, rows) * spread[near] ** 2
        redundant[near] = residual <= self._limit[self._ids[near]]
        return redundant

    def _everybody(self, spread: Floats) -> Booleans:
        return self._left

    def _beta_of_copy(self, m: int) -> Floats:
        """``(N,)`` zero for a dead neuron, else a multiple of the first copy that is left."""
        beta, label = np.zeros(len(self._ids)), self._label[self._ids]
        if label[m] != DEAD:
            same = self._left & (label == label[m])
            same[m] = False
            j = int(np.argmax(same))
            beta[j] = self._ratio(int(self._ids[m]), int(self._ids[j]))
        return beta

    def _ratio(self, m: int, j: int) -> float:
        """By how much neuron j is multiplied to give its copy m."""
        return float(self.C[m, j] / (self.C[j, j] - self.delta))


def head_regression(sums: LabelledSums, neurons: int, ridge: float) -> tuple[Floats, Floats, Floats, float, float]:
    """The head's ridge regression on the first `neurons` features; the features after them stay and are solved for.

    Returns
    -------
    C, c
        ``(N, N)`` covariance of the outputs with the penalty on its diagonal, ``(N,)`` covariance with the labels.
    sd
        ``(N,)`` standard deviations of the outputs.
    loss, variance
        Penalised loss with all neurons, and the labels' variance (1 where they are all the same).
    """
    mean, C = sums.moments(starts=False)
    c, label = sums.q / sums.n - mean * (sums.y / sums.n), sums.y / sums.n
    variance = sums.yy / sums.n - label**2
    variance = variance if variance > ROUNDING * sums.yy / sums.n else 0.0
    sd = np.sqrt(np.maximum(C.diagonal(), 0.0))
    # The penalty stays the same while neurons go. Without any, the covariance of copies could not be inverted.
    penalty = max(ridge * float(np.mean(sums.S.diagonal())) / sums.n, smallest_ridge(C, sums))
    C = C + penalty * np.eye(sums.width)
    loss, first, rest = variance, slice(neurons), slice(neurons, None)
    if neurons < sums.width:
        slopes = solve_covariance(C[rest, rest], np.column_stack([C[rest, first], c[rest]]))
        loss, slopes = loss - float(c[rest] @ slopes[:, -1]), slopes[:, :-1]
        C, c = C[first, first] - C[first, rest] @ slopes, c[first] - c[rest] @ slopes
    C, c = C[first, first], c[first]
    loss = max(loss - float(c @ solve_covariance(C, c)), 0.0)
    return C, c, sd[first], loss, variance or 1.0


def smallest_ridge(C: Floats, sums: OutputSums) -> float:
    """A ridge above the rounding of a covariance, and otherwise as small as possible."""
    rounding = np.finfo(np.float64).eps * len(C) * float(np.mean(sums.S.diagonal())) / sums.n
    return max(DELTA * float(np.mean(C.diagonal())), rounding, 1e-200)


def copy_labels(C: Floats, limit: Floats) -> Indices:
    """``(N,)`` the first neuron that each one is a multiple of, which may be itself; ``DEAD`` for those at zero."""
    variance = C.diagonal()
    dead = variance <= limit
    square = np.square(C)
    square /= np.where(dead, np.inf, variance)
    alone = variance[:, None] - square <= limit[:, None]
    np.fill_diagonal(alone, True)
    return np.where(dead, DEAD, np.argmax(alone & alone.T, axis=1))


def shares(importance: Floats, left: Booleans) -> Floats:
    """Importance of the neurons that are left, adding up to one; equal shares where none counts."""
    importance = np.where(left, importance, 0.0)
    total = importance.sum()
    return importance / total if total > 0 else left / np.count_nonzero(left)


def weighted_squares(columns: Floats, weights: Floats, m: int = 0, beta: Floats | None = None) -> Floats:
    """``(N,)`` sums over rows of weight times square, for ``columns`` ``(N, rows)``.

    With ``beta`` the others first take over, in place, what was read of neuron m. Both happen block by block, so that
    the weights pass through the cache once.
    """
    from scipy.linalg.blas import dger  # loaded late: prediction never needs it

    neurons, rows = columns.shape
    if not rows:
        return np.zeros(neurons)
    read_of_m, total = columns[m].copy(), np.empty(neurons)
    step = max(1, CACHE // rows)
    scratch = np.empty(min(step, neurons) * rows)
    for first in range(0, neurons, step):
        part = columns[first : first + step]
        if beta is not None:
            dger(1.0, read_of_m, beta[first : first + step], a=part.T, overwrite_a=True)
        square = scratch[: part.size].reshape(part.shape)
        np.multiply(part, part, out=square)
        np.dot(square, weights, out=total[first : first + step])
    return total


def remove_variable(P: Floats, m: int) -> None:
    """Turn the inverse of a covariance into that without variable m, whose row and column become the identity's."""
    from scipy.linalg.blas import dger

    row = P[m].copy()
    dger(-1 / row[m], row, row, a=P.T, overwrite_a=True)
    P[m], P[:, m] = 0.0, 0.0
    P[m, m] = 1.0


def inverse(C: Floats) -> Floats:
    """Of a covariance with a ridge."""
    from scipy.linalg.lapack import dpotrf, dpotri

    factor, failed = dpotrf(C, lower=True)
    if failed:
        raise DataError("the sums are not those of any rows", hint="check them with OutputSums.check")
    P = dpotri(factor, lower=True, overwrite_c=True)[0]
    upper = np.triu_indices_from(P, 1)  # LAPACK fills one triangle only
    P[upper] = P.T[upper]
    return np.ascontiguousarray(P)


def solve_covariance(C: Floats, right: Floats) -> Floats:
    """C^-1 ``right`` for a covariance C with a ridge."""
    from scipy.linalg import cho_factor, cho_solve

    try:
        return np.asarray(cho_solve(cho_factor(C), right))
    except np.linalg.LinAlgError as error:
        raise DataError("the sums are not those of any rows", hint="check them with OutputSums.check") from error
