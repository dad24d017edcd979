"""Absorption as it is written down: one layer, plain NumPy, slow and right. The specification of the fast way.

:mod:`fedprognos.matching.absorb.elimination` and :mod:`~fedprognos.matching.absorb.absorption` do the same for stacked
layers in O(N^2) a step. Tests hold the two together.
"""

from __future__ import annotations

import numpy as np

from fedprognos.matching.arguments import Floats


def absorb_reference(
    R: Floats,
    b: Floats,
    sums: tuple[float, float, Floats, Floats],
    width: int,
    *,
    alpha: float,
    head: tuple[Floats, float, float, float] | None = None,
    above: tuple[Floats, Floats, Floats] | None = None,
) -> tuple[list[int], list[tuple[int, float, Floats]], list[float], Floats]:
    """Eliminate the neurons of one layer until ``width`` are left. R, b and ``above`` are changed in place.

    Parameters
    ----------
    R, b
        ``(gates, N, N)`` recurrent weights and ``(gates, N)`` recurrent biases; no gates for a linear layer.
    sums
        n time steps, U sequences, s = sum of h ``(N,)``, S = sum of h h' ``(N, N)``.
    head
        Of the last layer: q = sum of h y ``(N,)``, the sums of y and of y^2, and the strength of the ridge.
    above
        Of a lower layer: the next layer's input weights W ``(gates, K, N)`` and biases ``(gates, K)``, and how much
        each of its neurons counts ``(K,)``.

    Returns
    -------
    The neurons left; of each absorbed one its index, R2 and beta ``(N,)``; the head's penalised loss before the first
    step and after each one; the importance ``(N,)`` of the neurons left.
    """
    n, U, s, S = sums
    N = len(s)
    mu_n, zeros = s / n, U if len(R) else 0
    sd = np.sqrt(np.maximum(np.diag(S) / n - mu_n**2, 0))
    # R multiplies the output of the step before, and every sequence starts at h = 0: count these zeros as well.
    mu = s / (n + zeros)
    C0 = S / (n + zeros) - np.outer(mu, mu)
    delta = 1e-9 * np.mean(np.diag(C0))
    C = C0 + delta * np.eye(N)
    P = np.asarray(np.linalg.inv(C), np.float64)
    W, b_ih, w_above = (np.zeros((0, 0, N)), np.zeros((0, 0)), np.zeros(0)) if above is None else above
    losses = []
    if head is not None:
        q, y, yy, strength = head
        penalty = strength * np.mean(np.diag(S)) / n
        P_H = np.asarray(np.linalg.inv(S / n - np.outer(mu_n, mu_n) + penalty * np.eye(N)), np.float64)
        c_H, variance_y = q / n - mu_n * y / n, yy / n - (y / n) ** 2
        v = P_H @ c_H
        losses.append(float(variance_y - c_H @ v))

    left = list(range(N))
    absorbed: list[tuple[int, float, Floats]] = []
    while True:
        spread = 1 / np.diag(P)
        if head is not None:  # the exact rise of the head's penalised loss
            price, importance = v**2 / np.diag(P_H) / variance_y, np.abs(v) * sd
        else:  # the variance that the gates of the next layer would miss
            read = np.einsum("k,gkm->m", w_above, W**2)
            price, importance = read * spread, np.sqrt(read) * sd
        if len(left) <= width:
            return left, absorbed, losses, importance
        # 1. The cheapest goes; combinations of others before all the rest.
        w = np.zeros(N)
        w[left] = importance[left] / importance[left].sum() if importance[left].sum() > 0 else 1 / len(left)
        missed = np.einsum("k,gkm->m", w, R**2) - np.einsum("m,gmm->m", w, R**2)
        cost = price + alpha * missed * spread
        residual = spread - delta * np.sum(P[:, left] ** 2, axis=1) * spread**2
        redundant = [m for m in left if residual[m] <= 1e-12 * C0[m, m]]
        # Neurons that nobody reads all cost nothing: the one with the smallest output goes first.
        m = min(redundant or left, key=lambda m: (cost[m], S[m, m]))
        # 2. The others stand in for it.
        left.remove(m)
        beta = np.zeros(N)
        beta[left] = -P[m, left] / P[m, m]
        absorbed.append((m, float(1 - spread[m] / C[m, m]), beta))
        b += R[:, :, m] * (mu[m] - beta @ mu)
        R += R[:, :, [m]] * beta
        b_ih += W[:, :, m] * (mu_n[m] - beta @ mu_n)
        W += W[:, :, [m]] * beta
        # 3. The inverses without it. Row and column m of P are zero from here on, but for the diagonal.
        if head is not None:
            losses.append(float(losses[-1] + v[m] ** 2 / P_H[m, m]))
            v = v - P_H[:, m] * v[m] / P_H[m, m]
            P_H = without(P_H, m)
        P = without(P, m)


def without(P: Floats, m: int) -> Floats:
    """The inverse of a covariance after variable m left it; m gets the row and column of the identity."""
    P = P - np.outer(P[:, m], P[m, :]) / P[m, m]
    P[m, m] = 1.0
    return P
