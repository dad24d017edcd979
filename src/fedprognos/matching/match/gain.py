"""The gain of assigning a client's neuron to a global one, formula by formula: the specification of the matcher.

:mod:`fedprognos.matching.match.fast` computes the same table by one matrix product. Tests hold the two together.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import ArrayLike

from fedprognos.errors import unknown_name
from fedprognos.matching.arguments import Floats

COSTS = ("pfnm", "spahm")


def gain(
    vectors: ArrayLike,
    counts: ArrayLike,
    totals: ArrayLike,
    *,
    new: int,
    population: int,
    mu0: ArrayLike = 0.0,
    sigma: ArrayLike = 1.0,
    sigma0: ArrayLike = 1.0,
    gamma: float = 1.0,
    cost: str = "spahm",
    seen: ArrayLike | None = None,
) -> Floats:
    """What each neuron of a client gains by joining each global neuron, or by opening a new one.

    Parameters
    ----------
    vectors
        ``(L_j, D)``: the neurons w of one client.
    counts, totals
        ``(L,)`` and ``(L, D)``: number n and sum of the client neurons that each global neuron stands for.
    new, population
        How many new neurons are offered, and the number of clients J.
    mu0, sigma, sigma0
        Prior mean, noise variance and prior variance; numbers, or one value for each dimension.
    gamma, cost
        Mass of the Indian buffet prior, and ``"spahm"`` or ``"pfnm"``.
    seen
        ``(L, D)``: how many of the n neurons have each dimension, where clients lack some. All, by default.

    Returns
    -------
    ``(L_j, L + new)``, to be maximised.

    Examples
    --------
    A neuron at 1 would rather join the global neuron at 1 than the one at -1, or a new one:

    >>> gain([[1.0]], [1, 1], [[1.0], [-1.0]], new=1, population=2, sigma=0.1).round(2).tolist()
    [[9.31, -9.74, 5.31]]
    """
    if cost not in COSTS:
        raise unknown_name("cost", cost, COSTS)
    w, n, total = (np.asarray(a, np.float64) for a in (vectors, counts, totals))
    counts_seen = np.broadcast_to(n[:, None] if seen is None else np.asarray(seen, np.float64), total.shape)
    J, K = population, len(n)
    s, p, prior_mean = (np.broadcast_to(a, w.shape[1:]) for a in (1 / np.asarray(sigma), 1 / np.asarray(sigma0), mu0))
    table = np.empty((len(w), K + new))
    for row in range(len(w)):
        for i in range(K):
            G = prior_mean * p + s * total[i]
            S = p + counts_seen[i] * s
            c = min(max(n[i], 1), max(J - 1, 1))
            log_odds = log(c / max(J - c, 1))
            if cost == "pfnm":
                table[row, i] = data_term(w[row], s, G, S) + log_odds
            else:
                table[row, i] = data_term(w[row], s, G, S) + np.log(S / (S + s)).sum() + 2 * log_odds
        for k in range(1, new + 1):
            opening = 2 * log(gamma / J) - 2 * log(k)
            if cost == "spahm":
                opening += np.log(p / (p + s)).sum()
            table[row, K + k - 1] = data_term(w[row], s, prior_mean * p, p) + opening
    return table


def data_term(w: Floats, s: Floats, G: Floats, S: Floats) -> float:
    """How much better the data is explained: the sum over dimensions of (w s + G)^2 / (s + S) - G^2 / S."""
    return float(((w * s + G) ** 2 / (s + S) - G**2 / S).sum())
