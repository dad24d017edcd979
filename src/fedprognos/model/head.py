"""The exact head: with everything below it frozen, the regressor is a linear least-squares problem.

Clients tell (n, y'y, H'H, H'y) of the frozen features H (with a ones column) and the standardised labels y,
in float64; their sum solves to the very head that pooled features would give, without epochs and without rows.
A personal head is the same solve on one client, shrunk towards the shared head.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from fedprognos.errors import TrainingError
from fedprognos.features import Recipe, WindowSet
from fedprognos.model.cache import cached_inputs
from fedprognos.model.network import HealthNetwork
from fedprognos.model.weights import Weights

FloatArray = NDArray[np.float64]
RIDGES = tuple(10.0 ** (k / 2) for k in range(-18, 5))
"""Ridge strengths tried, relative to the mean diagonal of H'H."""
UNCHOSEN = 10.0**-3.5
"""Strength where nothing was kept out to choose one on: so small that the head is nearly the least-squares one."""
BATCH = 1024


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Sufficient statistics of the head's least-squares problem.

    Parameters
    ----------
    n
        Windows.
    yy
        y'y of the standardised labels.
    hh : (L + 1, L + 1)
        H'H with a ones column last.
    hy : (L + 1,)
        H'y.
    """

    n: int
    yy: float
    hh: FloatArray
    hy: FloatArray

    def add(self, other: HeadStatistics) -> HeadStatistics:
        """Statistics of both sets of windows together."""
        if self.hh.shape != other.hh.shape:
            raise TrainingError(f"head statistics of {self.hh.shape} and {other.hh.shape} cannot be added")
        return HeadStatistics(self.n + other.n, self.yy + other.yy, self.hh + other.hh, self.hy + other.hy)


def head_statistics(network: HealthNetwork, windows: WindowSet, recipe: Recipe) -> HeadStatistics:
    """Statistics of some windows under the layers below the head."""
    width = network.spec.widths[-1] + 1
    hh, hy = np.zeros((width, width)), np.zeros(width)
    targets = recipe.encode(windows.labels)
    raw = cached_inputs(network, windows, 0, next(network.parameters()).device)
    with torch.no_grad(), network.in_blocks():
        for start in range(0, len(windows), BATCH):
            index = np.arange(start, min(start + BATCH, len(windows)))
            hidden = network.run(raw(index), 0, network.spec.layers - 1).cpu().numpy().astype(np.float64)
            h = np.concatenate([hidden, np.ones((len(index), 1))], axis=1)
            hh += h.T @ h
            hy += h.T @ targets[index]
    return HeadStatistics(len(windows), float(targets @ targets), hh, hy)


def add_all(statistics: Iterable[HeadStatistics]) -> HeadStatistics:
    """Sum of several, in the order given."""
    many = list(statistics)
    if not many:
        raise TrainingError("no head statistics to add")
    total = many[0]
    for one in many[1:]:
        total = total.add(one)
    return total


def solve_head(statistics: HeadStatistics, strength: float, towards: FloatArray | None = None) -> FloatArray:
    """Ridge regression: the head (L + 1,), bias last, shrunk towards `towards` (zero by default).

    The bias is shrunk only where there is a head to shrink it towards.
    """
    size = len(statistics.hy)
    penalty = np.full(size, strength * np.trace(statistics.hh[:-1, :-1]) / max(size - 1, 1))
    if towards is None:
        penalty[-1] = 0.0
    right = statistics.hy + (0.0 if towards is None else penalty * towards)
    try:
        head = scipy.linalg.solve(statistics.hh + np.diag(penalty), right, assume_a="pos")
    except scipy.linalg.LinAlgError:
        head = scipy.linalg.lstsq(statistics.hh + np.diag(penalty), right)[0]
    return np.asarray(head, dtype=np.float64)


def mean_squared_error(statistics: HeadStatistics, head: FloatArray) -> float:
    """Mean squared error of a head on the windows behind the statistics, in standardised units."""
    squared = statistics.yy - 2 * head @ statistics.hy + head @ statistics.hh @ head
    return max(float(squared) / statistics.n, 0.0)


@dataclass(frozen=True, eq=False)
class ExactHead:
    """A solved head, the strength chosen, and its error on the part it was chosen on."""

    head: FloatArray
    strength: float
    validation_mse: float | None


def exact_head(fit: HeadStatistics, held: HeadStatistics | None, towards: FloatArray | None = None) -> ExactHead:
    """Choose the ridge strength on the held-out part, then solve on both parts together."""
    if held is None:
        return ExactHead(solve_head(fit, UNCHOSEN, towards), UNCHOSEN, None)
    errors = [mean_squared_error(held, solve_head(fit, s, towards)) for s in RIDGES]
    best = int(np.argmin(errors))
    return ExactHead(solve_head(fit.add(held), RIDGES[best], towards), RIDGES[best], errors[best])


def head_of(weights: Weights) -> FloatArray:
    """A network's head as one vector, bias last."""
    return np.concatenate([weights["head.weight"][0], weights["head.bias"]]).astype(np.float64)


def with_head(weights: Weights, head: FloatArray) -> dict[str, NDArray[np.float32]]:
    """The same network with another head."""
    changed = {"head.weight": head[None, :-1].astype(np.float32), "head.bias": head[-1:].astype(np.float32)}
    return {**weights, **changed}
