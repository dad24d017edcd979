"""What the sums tell of a layer's outputs: means, covariances, who is a copy of whom, who never changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fedprognos.errors import DataError
from fedprognos.matching.arrays import Booleans, Floats, Indices
from fedprognos.matching.sums import OutputSums

DELTA = 1e-9
"""Ridge of the predictions, as a share of the mean variance; a larger one spoils the prediction of combinations."""
REDUNDANT = 1e-12
"""What a neuron may have on its own and still count as a combination of others, as a share of the mean square of its
outputs or the layer's. An error of 1e-6 is what sites that compute in float32 show after some steps."""
DEAD = -1


@dataclass(frozen=True, eq=False)
class Outputs:
    """Statistics of the N outputs of a layer.

    Parameters
    ----------
    mean, C
        ``(N,)`` and ``(N, N)``: over what the layer's own gates read, the zeros that sequences begin with included.
        The covariance has ``delta`` on its diagonal.
    limit
        ``(N,)``: residual variance up to which a neuron is a combination of others.
    label
        ``(N,)``: the same number for copies (of either sign and any scale), ``DEAD`` for those that add nothing.
    level, sd
        ``(N,)``: mean and standard deviation over the steps alone.
    constant
        ``(N,)``: those that are the same at every step.
    """

    mean: Floats
    C: Floats
    delta: float
    limit: Floats
    label: Indices
    level: Floats
    sd: Floats
    constant: Booleans

    def take(self, kept: Indices) -> Outputs:
        """Statistics of some of the neurons."""
        vectors = (self.limit[kept], self.label[kept], self.level[kept], self.sd[kept], self.constant[kept])
        return Outputs(self.mean[kept], self.C[np.ix_(kept, kept)], self.delta, *vectors)

    def copied(self, left: Booleans) -> Booleans:
        """``(N,)`` which of those that are left are dead, or copies of others that are left."""
        _, number = np.unique(np.where(left, self.label, DEAD), return_inverse=True)
        return np.asarray(left & ((self.label == DEAD) | (np.bincount(number)[number] > 1)))

    def as_copy(self, m: int, left: Booleans) -> Floats:
        """``(N,)`` by what neuron m is to be replaced: zero if it is dead, or a multiple of the first copy left."""
        beta = np.zeros(len(self.label))
        if self.label[m] != DEAD:
            same = left & (self.label == self.label[m])
            same[m] = False
            j = int(np.argmax(same))
            beta[j] = self.C[m, j] / (self.C[j, j] - self.delta)
        return beta


def outputs_of(sums: OutputSums, *, recurrent: bool) -> Outputs:
    """The statistics of a layer that reads its own outputs one step later, or does not."""
    mean, C = sums.moments(starts=recurrent)
    level, steps = sums.moments(starts=False)
    squares = sums.S.diagonal() / (sums.n + (sums.starts if recurrent else 0))
    limit = REDUNDANT * np.maximum(squares, squares.mean())
    variance = np.maximum(steps.diagonal(), 0.0)
    label = copies(C, limit)
    delta = ridge_of(C, sums)
    C[np.diag_indices_from(C)] += delta
    return Outputs(mean, C, delta, limit, label, level, np.sqrt(variance), variance <= limit)


def ridge_of(C: Floats, sums: OutputSums) -> float:
    """A ridge above the rounding of a covariance, and otherwise as small as possible."""
    rounding = np.finfo(np.float64).eps * len(C) * float(np.mean(sums.S.diagonal())) / sums.n
    return max(DELTA * float(np.mean(C.diagonal())), rounding, 1e-200)


def solved(C: Floats, right: Floats) -> Floats:
    """C^-1 ``right`` for a covariance C with a ridge; refuses what is none."""
    try:
        return np.asarray(scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), right))
    except scipy.linalg.LinAlgError as error:
        raise DataError("the sums are not those of any rows", hint="check them with OutputSums.check") from error


def copies(C: Floats, limit: Floats) -> Indices:
    """``(N,)`` the first neuron that each one is a multiple of, which may be itself; ``DEAD`` for those at zero."""
    variance = C.diagonal()
    dead = variance <= limit
    square = np.square(C)
    square /= np.where(dead, np.inf, variance)
    alone = variance[:, None] - square <= limit[:, None]
    np.fill_diagonal(alone, True)
    return np.where(dead, DEAD, np.argmax(alone & alone.T, axis=1))
