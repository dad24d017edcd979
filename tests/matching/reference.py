"""BBP-MAP once more, slowly and in plain loops: what the matcher has to agree with.

One neuron, one dimension and one formula at a time, as written in the papers: no matrix products, no centring, all the
new columns at once, and every neuron renumbered whenever a client is taken out. In extended precision, because the
formulas as they are written lose digits where a variance is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linear_sum_assignment


@dataclass
class Neuron:
    """A global neuron: the anchor's share of it, and which neuron of which client it holds."""

    dimensions: int
    anchor_count: int = 0
    anchor_mean: list[np.longdouble] = field(default_factory=list)
    members: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.anchor_count + len(self.members)

    def total(self, d: int) -> float:
        own = self.anchor_count * self.anchor_mean[d] if self.anchor_count else 0.0
        return own + sum(w[d] for w in self.members.values())

    def squares(self, d: int) -> float:
        own = self.anchor_count * self.anchor_mean[d] ** 2 if self.anchor_count else 0.0
        return own + sum(w[d] ** 2 for w in self.members.values())


class Reference:
    """The state of a matching; :meth:`run` goes through the algorithm step by step."""

    def __init__(self, clients, *, cost, sigma, sigma0, gamma, estimate, sizes, anchor, cap, quota):
        sizes = sizes or {}
        self.clients = {
            name: np.asarray(clients[name], np.longdouble)
            for name in sorted(clients, key=lambda c: (-len(clients[c]), -sizes.get(c, 0), c))
        }
        # PFNM keeps its variances, SPAHM estimates them.
        estimate = cost == "spahm" if estimate is None else estimate
        self.cost, self.gamma, self.estimate = cost, gamma, estimate
        rows = np.vstack(list(self.clients.values()))
        self.D = rows.shape[1]
        variances = rows.var(axis=0)
        self.overall = variances.mean()
        if self.overall <= 1e-28 * np.mean(rows**2):
            self.overall = np.mean(rows**2)
        self.pooled = [max(v, 1e-12 * self.overall) for v in variances]
        self.per_dimension = self.D > 1 and (np.ndim(sigma) == 1 or np.ndim(sigma0) == 1)
        base = self.pooled if self.per_dimension else [self.overall] * self.D
        self.sigma = self.spread(sigma, [0.5 * v for v in base])
        self.sigma0 = self.spread(sigma0, base)
        self.mu0 = list(rows.mean(axis=0)) if estimate else [np.longdouble(0)] * self.D
        means, counts = anchor if anchor is not None else ([], [])
        self.neurons = [
            Neuron(self.D, int(c), list(np.asarray(m, np.longdouble))) for m, c in zip(means, counts, strict=True)
        ]
        self.J = len(self.clients) + max([int(c) for c in counts], default=0)
        self.anchored = len(self.neurons)
        widest = max([self.anchored, *(len(w) for w in self.clients.values())])
        everything = self.anchored + len(rows)
        self.cap = everything if cap is None else max(cap, widest)
        self.quota = everything if quota is None else quota
        if quota is not None:
            growing = len(self.clients) - (0 if self.anchored else 1)
            self.cap = min(self.cap, widest + growing * quota)
        self.places: dict[str, list[Neuron]] = {}
        self.near_floor = False

    def spread(self, given, default):
        if given is None:
            return list(default)
        return list(np.broadcast_to(given, self.D).astype(np.longdouble))

    def gain_existing(self, w, neuron) -> float:
        total = 0.0
        for d in range(self.D):
            s, p = 1 / self.sigma[d], 1 / self.sigma0[d]
            G = self.mu0[d] * p + s * neuron.total(d)
            S = p + neuron.count * s
            total += (w[d] * s + G) ** 2 / (s + S) - G**2 / S
            if self.cost == "spahm":
                total += np.log(S / (S + s))
        c = max(1, min(neuron.count, self.J - 1))
        odds = math.log(c / (self.J - c)) if c < self.J else 0.0
        return total + (odds if self.cost == "pfnm" else 2 * odds)

    def gain_new(self, w, k) -> float:
        total = 2 * math.log(self.gamma / self.J) - 2 * math.log(k)
        for d in range(self.D):
            s, p = 1 / self.sigma[d], 1 / self.sigma0[d]
            total += (w[d] * s + self.mu0[d] * p) ** 2 / (p + s) - (self.mu0[d] * p) ** 2 / p
            if self.cost == "spahm":
                total += np.log(p / (p + s))
        return total

    def gains(self, name) -> np.ndarray:
        """All gains of a client that is out: existing neurons, then as many new ones as it may open."""
        weights, L = self.clients[name], len(self.neurons)
        new = max(len(weights) - L, min(self.cap - L, self.quota))
        return np.array(
            [
                [self.gain_existing(w, n) for n in self.neurons] + [self.gain_new(w, k) for k in range(1, new + 1)]
                for w in weights
            ]
        ).astype(np.longdouble)

    def assign(self, name) -> float:
        gains = self.gains(name)
        # A constant taken off a whole row changes no assignment, and leaves the solver the digits that matter.
        rows, columns = linear_sum_assignment((gains - gains.max(axis=1, keepdims=True)).astype(float), maximize=True)
        L = len(self.neurons)
        places = []
        for row, column in zip(rows, columns, strict=True):
            if column >= L:
                self.neurons.append(Neuron(self.D))
                place = self.neurons[-1]
            else:
                place = self.neurons[column]
            places.append(place)
            place.members[name] = self.clients[name][row]
        self.places[name] = places
        return float(gains[rows, columns].sum())

    def take_out(self, name) -> None:
        for neuron in self.places[name]:
            del neuron.members[name]
        self.neurons = [n for n in self.neurons if n.count]

    def re_estimate(self) -> None:
        N = sum(len(w) for w in self.clients.values()) + self.anchored
        L = len(self.neurons)
        if not self.estimate or N == L:
            return
        mu0, noise, prior = [], [], []
        inverse = sum(1 / n.count for n in self.neurons) / L
        for d in range(self.D):
            means = [n.total(d) / n.count for n in self.neurons]
            mu0.append(sum(means) / L)
            scatter = sum(n.squares(d) - n.count * m * m for n, m in zip(self.neurons, means, strict=True))
            noise.append(scatter / (N - L))
            prior.append(sum((m - mu0[d]) ** 2 for m in means) / L)
        if not self.per_dimension:
            noise, prior = [sum(noise) / self.D] * self.D, [sum(prior) / self.D] * self.D
        floors = [1e-12 * (v if self.per_dimension else self.overall) for v in self.pooled]
        self.mu0 = mu0
        self.sigma = [max(v, f) for v, f in zip(noise, floors, strict=True)]
        self.sigma0 = [max(v - s * inverse, f) for v, s, f in zip(prior, self.sigma, floors, strict=True)]
        self.near_floor |= any(v <= 1e6 * f for v, f in zip(self.sigma + self.sigma0, floors + floors, strict=True))

    def assignments(self) -> dict[str, list[int]]:
        """Numbers by the anchor, then by first use."""
        order = [id(n) for n in self.neurons[: self.anchored]]
        for places in (self.places[name] for name in self.clients):
            order += [id(n) for n in places if id(n) not in order]
        return {name: [order.index(id(n)) for n in places] for name, places in self.places.items()}

    def run(self, sweeps, seed) -> Reference:
        names = list(self.clients)
        self.total = []
        gain = 0.0
        for name in names:
            if not self.places and not self.anchored:
                self.neurons = [Neuron(self.D, members={name: w}) for w in self.clients[name]]
                self.places[name] = list(self.neurons)
            else:
                gain += self.assign(name)
        self.total.append(gain)
        self.re_estimate()
        order = np.random.default_rng(seed)
        for _ in range(sweeps if len(names) > 1 or self.anchored else 0):
            moved, gain = False, 0.0
            for j in order.permutation(len(names)):
                before = self.assignments()
                self.take_out(names[j])
                gain += self.assign(names[j])
                moved |= before != self.assignments()
            self.total.append(gain)
            self.re_estimate()
            if not moved:
                break
        return self


def reference_match(
    clients,
    *,
    cost="spahm",
    sigma=None,
    sigma0=None,
    gamma=1.0,
    estimate=None,
    sweeps=10,
    seed=0,
    sizes=None,
    anchor=None,
    cap=None,
    quota=None,
) -> Reference:
    """The same arguments as ``match``; an anchor is ``(means, counts)``."""
    reference = Reference(
        clients,
        cost=cost,
        sigma=sigma,
        sigma0=sigma0,
        gamma=gamma,
        estimate=estimate,
        sizes=sizes,
        anchor=anchor,
        cap=cap,
        quota=quota,
    )
    return reference.run(sweeps, seed)
