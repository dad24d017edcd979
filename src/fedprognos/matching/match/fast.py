r"""The table of :func:`~fedprognos.matching.gain` for all pairs by one matrix product, as costs to be minimised.

With precisions s = 1/sigma and p = 1/sigma0, a global neuron that stands for n client neurons summing to T has
G = p mu0 + s T and S = p + n s. Completing the square in the data term gives

.. math:: \frac{(sw + G)^2}{s + S} - \frac{G^2}{S} = s w^2 - c\,(w - m)^2, \qquad c = \frac{sS}{s + S},\; m = G/S,

and a new neuron is the same with n = 0. The first term is the same for every global neuron, so the assignment
problem leaves it out. The second is linear in (w, w^2, 1). With isotropic variances c is one number for each global
neuron, so (w, |w|^2, 1) is enough: D + 2 columns instead of 2D + 1.
"""

from __future__ import annotations

import numpy as np

from fedprognos.matching.arguments import Floats, Indices
from fedprognos.matching.match.hyperparameters import Hyperparameters


class Buffer:
    """Memory for one matrix after the other: allocating it anew for every client costs more than filling it."""

    def __init__(self) -> None:
        self._memory = np.empty(0)

    def matrix(self, rows: int, columns: int) -> Floats:
        """``(rows, columns)``, not initialised; the matrix returned before is no longer valid."""
        if self._memory.size < rows * columns:
            self._memory = np.empty(rows * columns + rows * columns // 8)
        return self._memory[: rows * columns].reshape(rows, columns)


def popularity(counts: Indices, new: int, *, population: int, gamma: float, cost: str) -> Floats:
    """``(L + new,)`` what the Indian buffet prior adds: log odds of existing neurons, then of the k-th new one."""
    shared = np.minimum(np.maximum(counts, 1), max(population - 1, 1))
    odds = np.log(shared / np.maximum(population - shared, 1))
    opening = 2 * np.log(gamma / (population * np.arange(1, new + 1)))
    return np.concatenate([odds if cost == "pfnm" else 2 * odds, opening])


def costs(
    x: Floats, seen: Floats, sums: Floats, prior: Floats, *, hyper: Hyperparameters, cost: str, buffer: Buffer
) -> Floats:
    """Minus the gains, without the sum of s w^2 that is the same in a whole row.

    Parameters
    ----------
    x
        ``(L_j, D)``: the client's neurons.
    seen, sums
        ``(L, 1)`` or ``(L, D)`` number, and ``(L, D)`` sum, of the neurons each global neuron stands for.
    prior
        ``(L + new,)`` from :func:`popularity`.
    hyper, cost
        Hyper-parameters, and the name of the cost.
    buffer
        Where the result is written.

    Returns
    -------
    ``(L_j, L + new)``.
    """
    neurons, dimensions = sums.shape
    s, p = 1 / hyper.sigma, 1 / hyper.sigma0
    empty = np.broadcast_to(p, (1, seen.shape[1] if hyper.isotropic else dimensions))
    S = np.concatenate([p + seen * s, empty])
    c = s * S / (s + S)
    slope = -2 * s / (s + S)
    # Rows of the right-hand factor: the existing neurons, then the empty one, once for each new column.
    wide, kinds = c.shape[1], min(neurons + 1, len(prior))
    right = np.empty((len(prior), dimensions + wide + 1))
    linear = right[:kinds, :dimensions]
    np.multiply(sums, s * slope[:neurons], out=linear[:neurons])
    linear[neurons:] = 0.0
    linear += p * slope[:kinds] * hyper.mu0
    right[:kinds, dimensions:-1] = c[:kinds]
    right[:kinds, -1] = np.einsum("ld,ld->l", linear, linear * (0.25 / c[:kinds]))
    if cost == "spahm":
        right[:kinds, -1] -= dimensions / wide * np.log(S / (S + s))[:kinds].sum(axis=1)
    right[kinds:] = right[kinds - 1]
    right[:, -1] -= prior
    left = np.empty((len(x), dimensions + wide + 1))
    left[:, :dimensions] = x
    if wide == dimensions:
        np.square(x, out=left[:, dimensions:-1])
    else:
        left[:, dimensions] = np.einsum("ld,ld->l", x, x)
    left[:, -1] = 1.0
    return np.matmul(left, right.T, out=buffer.matrix(len(left), len(right)))
