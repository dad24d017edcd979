"""Averages of one tensor over the clients that hold each of its rows (Eq. 6 and 7 where all hold them), by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedprognos.matching.arrays import AnyArray, Floats, Indices

BLOCK = 4_000_000
"""How many numbers the order statistics sort at once."""


@dataclass(frozen=True, eq=False)
class Stack:
    """One tensor of all clients, with the index of its rows and columns in the federated model's."""

    shape: tuple[int, ...]
    arrays: tuple[AnyArray, ...]
    grids: tuple[tuple[Indices, ...], ...]
    weights: tuple[float, ...]
    ratio: float
    trim: float


def holders_mean(stack: Stack) -> Floats:
    """Weighted mean over the holders of each row."""
    total, held = _sums(stack)
    return total / np.where(held > 0, held, 1.0)


def map_mean(stack: Stack) -> Floats:
    """Maximum a posteriori mean: drawn towards zero the more, the fewer hold a row."""
    total, held = _sums(stack)
    return total / np.where(held > 0, held + stack.ratio, 1.0)


def median(stack: Stack) -> Floats:
    """Coordinate-wise median over the holders of each row."""

    def middle(ordered: Floats, held: Indices) -> Floats:
        last = np.maximum(held - 1, 0)
        low, high = (np.take_along_axis(ordered, k[None, :, None], axis=0)[0] for k in (last // 2, last - last // 2))
        return np.asarray((low + high) / 2)

    return _ordered(stack, middle)


def trimmed_mean(stack: Stack) -> Floats:
    """Coordinate-wise mean over the holders of each row, the lowest and highest share left out."""

    def inner(ordered: Floats, held: Indices) -> Floats:
        out = np.floor(stack.trim * held)
        rank = np.arange(len(ordered))[:, None]
        kept = (rank >= out) & (rank < held - out)
        total = np.where(kept[:, :, None], ordered, 0.0).sum(axis=0)
        return np.asarray(total / np.maximum(kept.sum(axis=0), 1)[:, None])

    return _ordered(stack, inner)


def _sums(stack: Stack) -> tuple[Floats, Floats]:
    """The weighted sum, and the weight of the holders of each row, to be divided by."""
    total, held = np.zeros(stack.shape), np.zeros(stack.shape[0])
    for array, grid, weight in zip(stack.arrays, stack.grids, stack.weights, strict=True):
        total[np.ix_(*grid)] += weight * array.astype(np.float64)
        held[grid[0]] += weight
    return total, held.reshape(-1, *[1] * (total.ndim - 1))


def _ordered(stack: Stack, statistic: Callable[[Floats, Indices], Floats]) -> Floats:
    """Apply a statistic to the sorted values of the holders, some rows at a time.

    ``statistic`` gets ``(J, rows, columns)``, sorted, the holders first, and ``(rows,)`` how many they are.
    """
    rows, columns = stack.shape[0], int(np.prod(stack.shape[1:], dtype=np.intp))
    step = max(1, BLOCK // (len(stack.arrays) * columns))
    result = np.zeros((rows, columns))
    for start in range(0, rows, step):
        values = np.full((len(stack.arrays), min(step, rows - start), columns), np.inf)
        held = np.zeros(values.shape[1], np.intp)
        for own, array, grid in zip(values, stack.arrays, stack.grids, strict=True):
            here = (grid[0] >= start) & (grid[0] < start + step)
            at = grid[0][here] - start
            # A holder's absent inputs are zero; rows of others stay at infinity, behind all holders.
            own[at] = 0.0
            inputs = np.zeros(1, np.intp) if len(grid) == 1 else grid[1]
            own[np.ix_(at, inputs)] = array[here].reshape(len(at), len(inputs))
            held[at] += 1
        values.sort(axis=0)
        result[start : start + step] = np.where(held[:, None] > 0, statistic(values, held), 0.0)
    return result.reshape(stack.shape)


AVERAGES: dict[str, Callable[[Stack], Floats]] = {
    "mean": holders_mean,
    "weighted": holders_mean,
    "map": map_mean,
    "median": median,
    "trimmed": trimmed_mean,
}
"""Averages by name; ``weighted`` differs from ``mean`` in the weights it is given."""
