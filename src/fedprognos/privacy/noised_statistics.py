"""Statistics of a head under differential privacy: rows clipped and weighted, noise added; ridge by AdaSSP.

Rows of a unit are weighted by one over their number, so that a unit weighs as much as any other, however long it lived.
AdaSSP (Wang, 2018) adds the ridge that the noise demands.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fedprognos.arrays import FloatArray
from fedprognos.features import Recipe, WindowSet
from fedprognos.networks import HeadStatistics, Network, pieces
from fedprognos.privacy.differential_privacy import Privacy


def private_statistics(network: Network, windows: WindowSet, recipe: Recipe, privacy: Privacy) -> HeadStatistics:
    """Sums of clipped rows, with noise that nobody can predict."""
    return add_noise(clipped_sums(network, windows, recipe, privacy), privacy)


def clipped_sums(network: Network, windows: WindowSet, recipe: Recipe, privacy: Privacy) -> HeadStatistics:
    """Sums of clipped, weighted rows; `n` is the number of units or rows, which is taken as public."""
    width = network.spec.features + 1
    hh, hy, yy = np.zeros((width, width)), np.zeros(width), 0.0
    weights = row_weights(windows, privacy)
    targets = np.clip(recipe.encode(windows.labels), -privacy.label_clip, privacy.label_clip)
    module = network.module().eval()
    with module.in_blocks():
        for piece in pieces(module, windows):
            h = clipped_rows(piece.features(), privacy.clip)
            w, y = weights[piece.index], targets[piece.index]
            hh += (h * w[:, None]).T @ h
            hy += h.T @ (w * y)
            yy += float(w @ np.square(y))
    return HeadStatistics(round(weights.sum()), yy, hh, hy)


def row_weights(windows: WindowSet, privacy: Privacy) -> FloatArray:
    """One a row; or one a unit, divided among its rows."""
    if privacy.per == "row":
        return np.ones(len(windows))
    counts = np.bincount(windows.unit, minlength=len(windows.unit_ids))
    return np.asarray(1.0 / counts[windows.unit])


def clipped_rows(features: FloatArray, clip: float) -> FloatArray:
    """Rows with a one at their end, none longer than `clip`; the one is shortened with its row."""
    h = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    length = np.linalg.norm(h, axis=1)
    return np.asarray(h * np.minimum(1.0, clip / np.maximum(length, 1e-300))[:, None])


def add_noise(sums: HeadStatistics, privacy: Privacy, seed: int | None = None) -> HeadStatistics:
    """Sums with noise; without a seed nobody can predict it.

    A unit adds a mean of h h' (norm at most c^2, also of its upper triangle, which is released once and mirrored), of
    h y (at most c l) and of y^2 (at most l^2). Each part counts in multiples of its bound, so that all three together
    have a norm of at most the square root of three.
    """
    c, y = (float(np.sqrt(3.0)) ** 0.5 * bound for bound in (privacy.clip, privacy.label_clip))
    upper = np.triu_indices(len(sums.hy))
    seeds = (None,) * 3 if seed is None else np.random.SeedSequence(seed).generate_state(3).tolist()
    hh = np.zeros_like(sums.hh)
    hh[upper] = privacy.noised(sums.hh[upper], c * c, seed=seeds[0])
    hy = privacy.noised(sums.hy, c * y, seed=seeds[1])
    yy = privacy.noised(np.array([sums.yy]), y * y, seed=seeds[2])
    return HeadStatistics(sums.n, float(yy[0]), hh + np.triu(hh, 1).T, hy)


def ada_ssp(sums: HeadStatistics, privacy: Privacy, clients: int, failure: float = 0.05) -> FloatArray:
    """The head (L + 1,) of noised sums: as much ridge as the noise of all clients demands, and no more.

    The smallest eigenvalue is that of the noised sums, which costs no budget.
    """
    d = len(sums.hy)
    deviation = privacy.noise * float(np.sqrt(3.0 * privacy.share * clients)) * privacy.clip**2
    bound = deviation * float(np.sqrt(d * np.log(2 * d * d / failure)))
    least = float(scipy.linalg.eigvalsh(sums.hh, subset_by_index=[0, 0])[0])
    ridge = max(bound - max(least, 0.0), deviation - least, 0.0)
    return np.asarray(scipy.linalg.solve(sums.hh + ridge * np.eye(d), sums.hy, assume_a="sym"))
