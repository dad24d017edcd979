"""Clients whose matching is known: shared and private neurons, noise, shuffled."""

from __future__ import annotations

import numpy as np


def known_clients(seed, *, shared=48, private=(32, 32, 32), dimensions=60, noise=0.3, scale=0.1):
    """Neuron vectors for each client, and the true global neuron of each row."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0, scale, (shared, dimensions))
    clients, truth, taken = {}, {}, shared
    for j, own in enumerate(private):
        neurons = np.vstack([common, rng.normal(0, scale, (own, dimensions))])
        labels = np.concatenate([np.arange(shared), np.arange(taken, taken + own)])
        taken += own
        order = rng.permutation(len(neurons))
        clients[f"c{j}"] = (neurons + rng.normal(0, noise * scale, neurons.shape))[order]
        truth[f"c{j}"] = labels[order]
    return clients, truth


def pair_f1(assignments, truth):
    """F1 over pairs of neurons: found together against truly together."""
    found = np.concatenate([assignments[name] for name in truth])
    true = np.concatenate([truth[name] for name in truth])
    pairs = np.triu_indices(len(found), 1)
    together, rightly = (found[:, None] == found)[pairs], (true[:, None] == true)[pairs]
    return 2 * (together & rightly).sum() / (together.sum() + rightly.sum())


def same_partition(one, other, orders=None):
    """Whether two assignments put the same neurons together; ``orders`` undoes permutations of the second's rows."""
    a = np.concatenate([one[name] for name in one])
    b = np.concatenate([other[name] if orders is None else other[name][np.argsort(orders[name])] for name in one])
    forward, backward = dict(zip(a, b, strict=True)), dict(zip(b, a, strict=True))
    return all(forward[x] == y and backward[y] == x for x, y in zip(a, b, strict=True))
