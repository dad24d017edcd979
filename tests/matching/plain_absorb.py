"""Absorption once more, slowly and line by line as it is written down: what the fast way has to agree with.

One step of elimination is one turn of a loop that touches every matrix in full: no blocks and no compaction.
"""

from __future__ import annotations

import numpy as np


def absorb_layer(R, b, C0, mu, price, *, width, alpha=0.3, share=1e-9):
    """Eliminate neurons of one layer until ``width`` are left.

    ``R`` is ``(gates, N, N)``, ``b`` ``(gates, N)``, both changed in place. ``price`` prices, weighs and removes what
    reads the layer besides itself. Returns who is kept, and ``(neuron, R2, beta)`` of everybody absorbed, in order.
    """
    N = len(C0)
    delta = share * np.mean(np.diag(C0))
    C = C0 + delta * np.eye(N)
    P = np.linalg.inv(C)
    left, absorbed = list(range(N)), []
    while len(left) > width:
        at = np.ix_(left, left)
        p, spread = P[at], 1 / np.diag(P)[left]
        w = price.importance(left)
        w = w / w.sum() if w.sum() > 0 else np.full(len(left), 1 / len(left))
        square = sum(R[g][at] ** 2 for g in range(len(R))) if len(R) else np.zeros((len(left), len(left)))
        missed = w @ square - w * np.diag(square)
        cost = price.cost(left, spread) + alpha * missed * spread
        residual = spread - delta * (p**2).sum(axis=1) * spread**2
        redundant = residual <= 1e-12 * np.diag(C0)[left]
        candidates = [j for j, r in zip(left, redundant, strict=True) if r or not redundant.any()]
        price_of = dict(zip(left, cost, strict=True))
        # Neurons that nobody reads cost nothing, all alike: the one that puts out least goes first.
        m = min(candidates, key=lambda j: (price_of[j], C0[j, j] + mu[j] ** 2))

        others = [j for j in left if j != m]
        beta = -P[m, others] / P[m, m]
        absorbed.append((m, 1 - 1 / (P[m, m] * C[m, m]), dict(zip(others, beta, strict=True))))
        for g in range(len(R)):
            b[g] += R[g][:, m] * (mu[m] - beta @ mu[others])
            R[g][:, others] += np.outer(R[g][:, m], beta)
        price.remove(m, others, beta)
        P -= np.outer(P[:, m], P[m, :]) / P[m, m]
        left = others
    return left, absorbed


class HeadPrice:
    """The head's penalised loss MSE + lambda |v|^2."""

    def __init__(self, n, s, S, q, y, yy, strength):
        mu = s / n
        self.penalty = strength * np.mean(np.diag(S)) / n
        C = S / n - np.outer(mu, mu) + self.penalty * np.eye(len(s))
        self.c = q / n - mu * y / n
        self.P = np.linalg.inv(C)
        self.v = self.P @ self.c
        self.sd = np.sqrt(np.maximum(np.diag(S) / n - mu**2, 0))
        self.variance = yy / n - (y / n) ** 2
        self.loss = self.variance - self.c @ self.v
        self.losses = [self.loss]

    def importance(self, left):
        return np.abs(self.v[left]) * self.sd[left]

    def cost(self, left, spread):
        return self.v[left] ** 2 / np.diag(self.P)[left] / self.variance

    def remove(self, m, others, beta):
        self.loss += self.v[m] ** 2 / self.P[m, m]
        self.losses.append(self.loss)
        self.v = self.v - self.P[:, m] * self.v[m] / self.P[m, m]
        self.P = self.P - np.outer(self.P[:, m], self.P[m, :]) / self.P[m, m]


class NextPrice:
    """What the gates of the next layer would miss; its input weights are compensated as neurons go."""

    def __init__(self, W, b_ih, w, mean, sd):
        self.W, self.b_ih, self.w, self.mean, self.sd = W, b_ih, w, mean, sd

    def read(self, left):
        return sum(self.w @ self.W[g][:, left] ** 2 for g in range(len(self.W)))

    def importance(self, left):
        return np.sqrt(self.read(left)) * self.sd[left]

    def cost(self, left, spread):
        return self.read(left) * spread

    def remove(self, m, others, beta):
        for g in range(len(self.W)):
            self.b_ih[g] += self.W[g][:, m] * (self.mean[m] - beta @ self.mean[others])
            self.W[g][:, others] += np.outer(self.W[g][:, m], beta)


def plain_absorb(layers, sums, *, width, alpha=0.3, ridge=10**-3.5):
    """The small arrays, who is kept and who was absorbed, layer by layer, and the losses of the last one.

    ``layers`` are dictionaries of arrays, ``sums`` have ``n, starts, s, S`` and for the last layer ``q, y, yy``.
    Upper layers come first: what they no longer read need not be kept below.
    """
    layers = [{name: np.array(a, np.float64) for name, a in layer.items()} for layer in layers]
    kept, absorbed = [None] * len(layers), [None] * len(layers)
    last, w = len(layers) - 1, None
    for k in range(last, -1, -1):
        layer, own = layers[k], sums[k]
        recurrent = "weight_hh" in layer
        N = len(own.s)
        rows = own.n + (own.starts if recurrent else 0)
        mu = own.s / rows
        C0 = own.S / rows - np.outer(mu, mu)
        if recurrent:
            R, b = layer["weight_hh"].reshape(-1, N, N), layer["bias_hh"].reshape(-1, N)
        else:
            R, b = np.zeros((0, N, N)), np.zeros((0, N))
        mean = own.s / own.n
        sd = np.sqrt(np.maximum(np.diag(own.S) / own.n - mean**2, 0))
        if k == last:
            price = HeadPrice(own.n, own.s, own.S, own.q, own.y, own.yy, ridge)
        else:
            upper = layers[k + 1]
            W, b_ih = (upper[name].reshape(-1, len(w), *upper[name].shape[1:]) for name in ("weight_ih", "bias_ih"))
            price = NextPrice(W, b_ih, w, mean, sd)
        left, absorbed[k] = absorb_layer(R, b, C0, mu, price, width=width[k], alpha=alpha)
        kept[k] = np.array(sorted(left))
        w = price.importance(kept[k])
        w = w / w.sum() if w.sum() > 0 else np.full(len(w), 1 / len(w))
        if k == last:
            losses = price.losses
        for name, array in layer.items():
            cut = array.reshape(-1, N, *array.shape[1:])[:, kept[k]]
            if name == "weight_hh":
                cut = cut[:, :, kept[k]]
            layer[name] = np.ascontiguousarray(cut).reshape(-1, *cut.shape[2:])
        if k < last:
            layers[k + 1]["weight_ih"] = np.ascontiguousarray(layers[k + 1]["weight_ih"][:, kept[k]])
    return layers, kept, absorbed, losses
