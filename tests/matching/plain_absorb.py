"""A whole network by the specification of absorption: one layer after the other, the last one first."""

from __future__ import annotations

import numpy as np

from fedprognos.matching.absorb.absorb_reference import absorb_reference


def plain_absorb(layers, sums, *, width, alpha=0.3, ridge=10**-3.5):
    """The small arrays, the neurons kept and absorbed, layer by layer, and the losses of the last one.

    ``layers`` are dictionaries of arrays, ``sums`` have ``n, starts, s, S`` and for the last layer ``q, y, yy``.
    """
    layers = [{name: np.array(a, np.float64) for name, a in layer.items()} for layer in layers]
    kept, absorbed = [None] * len(layers), [None] * len(layers)
    last, w, losses = len(layers) - 1, None, []
    for k in range(last, -1, -1):
        layer, total = layers[k], sums[k]
        N = len(total.s)
        R = layer.get("weight_hh", np.zeros((0, N))).reshape(-1, N, N)
        b = layer["bias_hh"].reshape(-1, N) if "bias_hh" in layer else np.zeros((0, N))
        head = above = None
        if k == last:
            head = (total.q, total.y, total.yy, ridge)
        else:
            upper = layers[k + 1]
            above = (upper["weight_ih"].reshape(-1, len(w), N), upper["bias_ih"].reshape(-1, len(w)), w)
        counts = (total.n, total.starts, total.s, total.S)
        left, absorbed[k], losses_here, importance = absorb_reference(
            R, b, counts, width[k], alpha=alpha, head=head, above=above
        )
        kept[k] = np.array(sorted(left))
        w = importance[kept[k]]
        w = w / w.sum() if w.sum() > 0 else np.full(len(w), 1 / len(w))
        losses += losses_here  # a lower layer has none
        for name, array in layer.items():
            cut = array.reshape(-1, N, *array.shape[1:])[:, kept[k]]
            if name == "weight_hh":
                cut = cut[:, :, kept[k]]
            layer[name] = np.ascontiguousarray(cut).reshape(-1, *cut.shape[2:])
        if k < last:
            layers[k + 1]["weight_ih"] = np.ascontiguousarray(layers[k + 1]["weight_ih"][:, kept[k]])
    return layers, kept, absorbed, losses
