"""The exact head: with everything below it frozen, the regressor is a linear least-squares problem.

Clients send (n, y'y, H'H, H'y) of the frozen features H (with a ones column) and the standardised labels y,
in float64; their sum solves to the very head that pooled features would give, without epochs and without rows.
Personal heads are in :mod:`fedprognos.networks.pooling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedprognos.arrays import FloatArray, IntArray
from fedprognos.errors import TrainingError
from fedprognos.features import Recipe, WindowSet
from fedprognos.matching import LabelledSums
from fedprognos.networks.network import Network

RIDGES = tuple(10.0 ** (k / 2) for k in range(-18, 5))
"""Ridge strengths tried, relative to the mean diagonal of H'H."""
BLOCK = 1024
"""Points whose products are made at once: of fewer, adding them up costs as much."""
UNIT_WEIGHT = 100
"""Points that each unit counts as, where all units have the same weight."""


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Sufficient statistics of the head's least-squares problem.

    Parameters
    ----------
    n
        Windows, or what they count for where they are weighted: weights add up to it.
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

    @property
    def sums(self) -> LabelledSums:
        """The same as sums of the last layer's outputs, and of what the head sees beside them."""
        hh, hy = self.hh, self.hy
        return LabelledSums(self.n, 0, hh[-1, :-1], hh[:-1, :-1], hy[:-1], float(hy[-1]), self.yy)

    def only(self, features: IntArray) -> HeadStatistics:
        """Statistics of a head that sees some of the features, and the ones."""
        columns = np.append(features, len(self.hy) - 1)
        return HeadStatistics(self.n, self.yy, self.hh[np.ix_(columns, columns)], self.hy[columns])

    def add(self, other: HeadStatistics) -> HeadStatistics:
        """Statistics of both sets of windows together."""
        if self.hh.shape != other.hh.shape:
            raise TrainingError(f"head statistics of {self.hh.shape} and {other.hh.shape} cannot be added")
        return HeadStatistics(self.n + other.n, self.yy + other.yy, self.hh + other.hh, self.hy + other.hy)

    def without(self, part: HeadStatistics, share: float = 1.0) -> HeadStatistics:
        """Statistics of all windows but some, which are in these with a share of their weight."""
        n = self.n - round(share * part.n)
        if self.hh.shape != part.hh.shape or n < 1:
            raise TrainingError("no head is left without these windows")
        return HeadStatistics(n, self.yy - share * part.yy, self.hh - share * part.hh, self.hy - share * part.hy)


def head_statistics(network: Network, windows: WindowSet, recipe: Recipe, *, alike: bool = False) -> HeadStatistics:
    """Statistics of some points under all that the head sees.

    Parameters
    ----------
    alike
        Let every unit count as :data:`UNIT_WEIGHT` points, however many it has.
    """
    if not alike:
        return weighted_statistics(network, windows, recipe, [None])[0]
    statistics = weighted_statistics(network, windows, recipe, [alike_weights(windows)])[0]
    return replace(statistics, n=UNIT_WEIGHT * len(np.unique(windows.unit)))


def alike_weights(windows: WindowSet) -> FloatArray:
    """What each point counts for (N,) where every unit counts as :data:`UNIT_WEIGHT` points."""
    _, unit, points = np.unique(windows.unit, return_inverse=True, return_counts=True)
    return np.asarray(UNIT_WEIGHT / points[unit])


def weighted_statistics(
    network: Network, windows: WindowSet, recipe: Recipe, weights: Sequence[FloatArray | None]
) -> list[HeadStatistics]:
    """Statistics of some points for each of several weightings (N,), in one pass; None weighs all alike.

    No weight is negative. Points without weight are not counted.
    """
    width = network.spec.features + 1
    hh, hy = np.zeros((len(weights), width, width)), np.zeros((len(weights), width))
    targets = recipe.encode(windows.labels)
    roots = [None if weight is None else np.sqrt(weight) for weight in weights]
    for index, h in _blocks(network, windows):
        for k, root in enumerate(roots):
            part, y = (h, targets[index]) if root is None else _rooted(h, targets[index], root[index])
            hh[k] += part.T @ part  # BLAS makes one half of a product with itself
            hy[k] += part.T @ y
    return [
        HeadStatistics(len(windows), float(targets @ targets), hh[k], hy[k])
        if weight is None
        else HeadStatistics(int(np.count_nonzero(weight)), float((weight * targets) @ targets), hh[k], hy[k])
        for k, weight in enumerate(weights)
    ]


def _blocks(network: Network, windows: WindowSet) -> Iterator[tuple[IntArray, FloatArray]]:
    """Points, many at a time, and what the head sees of each with a one at the end; the array is filled anew."""
    from fedprognos.networks.network_outputs import pieces

    index, h, filled = np.empty(BLOCK, dtype=np.int64), np.ones((BLOCK, network.spec.features + 1)), 0
    module = network.module().eval()
    with module.in_blocks():
        for piece in pieces(module, windows):
            hidden, start = piece.hidden.cpu().numpy(), 0
            while start < len(hidden):
                taken = slice(start, start + BLOCK - filled)
                start, into = taken.stop, slice(filled, filled + len(hidden[taken]))
                index[into] = piece.index[taken]
                h[into, : hidden.shape[1]], h[into, hidden.shape[1] : -1] = hidden[taken], piece.beside[taken]
                filled = into.stop
                if filled == BLOCK:
                    yield index, h
                    filled = 0
    if filled:
        yield index[:filled], h[:filled]


def _rooted(h: FloatArray, y: FloatArray, root: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows and targets times the roots of their weights; those without weight are left out."""
    there = np.flatnonzero(root)
    h, y, root = (h, y, root) if len(there) == len(root) else (h[there], y[there], root[there])
    return h * root[:, None], y * root


def add_all(statistics: Iterable[HeadStatistics]) -> HeadStatistics:
    """Sum of several, in the order given."""
    many = list(statistics)
    if not many:
        raise TrainingError("no head statistics to add")
    total = many[0]
    for statistics_of_one in many[1:]:
        total = total.add(statistics_of_one)
    return total


def solve_head(statistics: HeadStatistics, strength: float) -> FloatArray:
    """Ridge regression: the head (L + 1,), bias last, its slopes shrunk towards zero.

    Every column counts in units of its own deviation, as if it had been standardised.
    """
    import scipy.linalg  # loaded late: prediction never needs it

    penalty = np.append(_penalty(statistics, strength), 0.0)
    left = statistics.hh + np.diag(penalty)
    try:
        head = scipy.linalg.solve(left, statistics.hy, assume_a="pos")
    except scipy.linalg.LinAlgError:
        head = scipy.linalg.lstsq(left, statistics.hy)[0]
    return np.asarray(head, dtype=np.float64)


def _penalty(statistics: HeadStatistics, strength: float) -> FloatArray:
    """Strength times the sum of squares of each column around its mean; a constant column counts as a little."""
    means = statistics.hh[-1, :-1] / statistics.n
    spread = np.maximum(np.diag(statistics.hh)[:-1] - statistics.n * np.square(means), 0.0)
    floor = 1e-9 * max(float(spread.mean()), 1e-12) if len(spread) else 0.0
    return np.asarray(strength * np.maximum(spread, floor))


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


def exact_head(fit: HeadStatistics, held: HeadStatistics | None, otherwise: float) -> ExactHead:
    """Choose the ridge strength on the held-out part, then solve on both parts together.

    Parameters
    ----------
    otherwise
        The strength where nothing is held out.
    """
    if held is None:
        return ExactHead(solve_head(fit, otherwise), otherwise, None)
    errors = [mean_squared_error(held, solve_head(fit, s)) for s in RIDGES]
    best = int(np.argmin(errors))
    return ExactHead(solve_head(fit.add(held), RIDGES[best]), RIDGES[best], errors[best])
