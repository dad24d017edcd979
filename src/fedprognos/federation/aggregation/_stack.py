"""One tensor of all clients, each with its rows' and columns' places in the federated model's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

BLOCK = 4_000_000
"""How many numbers the order statistics sort at once."""


@dataclass(frozen=True, eq=False)
class Stack:
    """What an aggregator is given.

    Parameters
    ----------
    shape
        Of the federated tensor.
    arrays, grids, weights
        Each client's tensor, its index in the federated one along every axis, and how much the client counts.
    ratio
        Noise variance over prior variance of a matching; 0 for the head.
    start
        The federated tensor that clients began with, where they did.
    """

    shape: tuple[int, ...]
    arrays: tuple[NDArray[Any], ...]
    grids: tuple[tuple[Indices, ...], ...]
    weights: tuple[float, ...]
    ratio: float
    start: NDArray[Any] | None = None

    def sums(self) -> tuple[Floats, Floats]:
        """The weighted sum, and the weight of the holders of each row, to be divided by."""
        total, held = np.zeros(self.shape), np.zeros(self.shape[0])
        for array, grid, weight in zip(self.arrays, self.grids, self.weights, strict=True):
            total[np.ix_(*grid)] += weight * array.astype(np.float64)
            held[grid[0]] += weight
        return total, held.reshape(-1, *[1] * (total.ndim - 1))

    def ordered(self, statistic: Callable[[Floats, Indices], Floats]) -> Floats:
        """Apply a statistic to the sorted values of the holders, some rows at a time.

        ``statistic`` gets ``(J, rows, columns)``, sorted, the holders first, and ``(rows,)`` how many they are.
        """
        rows, columns = self.shape[0], int(np.prod(self.shape[1:], dtype=np.intp))
        step = max(1, BLOCK // (len(self.arrays) * columns))
        result = np.zeros((rows, columns))
        for start in range(0, rows, step):
            values = np.full((len(self.arrays), min(step, rows - start), columns), np.inf)
            held = np.zeros(values.shape[1], np.intp)
            for own, array, grid in zip(values, self.arrays, self.grids, strict=True):
                here = (grid[0] >= start) & (grid[0] < start + step)
                at = grid[0][here] - start
                # A holder's absent inputs are zero; rows of others stay at infinity, behind all holders.
                own[at] = 0.0
                inputs = np.zeros(1, np.intp) if len(grid) == 1 else grid[1]
                own[np.ix_(at, inputs)] = array[here].reshape(len(at), len(inputs))
                held[at] += 1
            values.sort(axis=0)
            result[start : start + step] = np.where(held[:, None] > 0, statistic(values, held), 0.0)
        return result.reshape(self.shape)
