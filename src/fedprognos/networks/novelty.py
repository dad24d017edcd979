"""How far a network's features are from those of the training machines: the distance that H'H gives.

The exact head is solved from sums of the features, n, H'1 and H'H, which leave every site anyway. They also tell mean
and covariance of the features, and so the Mahalanobis distance of a new state. On training rows its mean square is one
by construction. How far it gets there differs between networks, so clients say that, too
(:mod:`fedprognos.federation.exchanges.distances`). A machine that wears in a way that no training machine did moves
the state off the paths that training took, long before the head says anything unusual.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedprognos.arrays import FloatArray
from fedprognos.features import WindowSet
from fedprognos.networks.head import HeadStatistics
from fedprognos.networks.network import Network
from fedprognos.networks.spec import NetworkSpec

LIMIT = 3.0
"""Least distance beyond which a state is novel."""
LIMIT_FACTOR = 1.25
"""Times the largest distance of training, beyond which a state is novel. Windows of kept-out engines went up to 1.1
times as far as those of training, of an unseen fault (`benchmarks/fault_lives.py`) more than twice as far. The factor
was set on these engines of FD001 and FD004."""
NOVEL_ROWS = 5
"""A state that is carried on is novel when it is so after so many rows in a row: one odd row moves it for a moment."""
DISTANCE_EDGES = tuple(2 ** (k / 4) for k in range(25))
"""Distances of training are told to the next of these."""
RIDGE = 1e-3
"""Added to the correlation matrix: directions in which training hardly moved must not decide on their own."""
MOST_FEATURES = 128
"""Features looked at; of a wider layer the first ones, so that the matrix stays small."""
DIGITS = 6

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Novelty(BaseModel):
    """Mean of the last layer's features, and the whitening that makes their distances comparable.

    Parameters
    ----------
    mean : (L,)
    whitening : (L, L)
        Its product with a deviation from the mean has a mean square of 1 / L in each place, over training.
    limit
        Distance beyond which a state is novel.

    Examples
    --------
    >>> novelty = Novelty(mean=(0.0, 0.0), whitening=((1.0, 0.0), (0.0, 0.5)))
    >>> novelty.distance(np.array([[3.0, 8.0]])).tolist()
    [5.0]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: tuple[Finite, ...]
    whitening: tuple[tuple[Finite, ...], ...]
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] = LIMIT

    @model_validator(mode="after")
    def _square(self) -> Self:
        if any(len(rows) != len(self.mean) for rows in (self.whitening, *self.whitening)):
            raise ValueError("a whitening has a row and a column for every feature")
        return self

    def usable(self, life: bool) -> Novelty | None:
        """The measure where its limit holds: of whole lives the least one does, of windows only one that was measured.

        Bundles that were made before limits were measured have none.
        """
        return self if life or "limit" in self.model_fields_set else None

    def limited_by(self, furthest: float) -> Novelty:
        """The same where training machines went so far."""
        return self.model_copy(update={"limit": max(LIMIT, float(f"{LIMIT_FACTOR * furthest:.{DIGITS}g}"))})

    def distance(self, features: NDArray[np.floating]) -> FloatArray:
        """Distances (...) of features (..., L) from training; those of training have a mean square of one."""
        mean, whitening = self._arrays
        deviations = (features[..., : len(mean)].astype(np.float32, copy=False) - mean) @ whitening  # as in ONNX
        distances: FloatArray = np.sqrt(np.einsum("...k,...k->...", deviations, deviations)).astype(np.float64)
        return distances

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.array(self.mean, dtype=np.float32), np.array(self.whitening, dtype=np.float32).T.copy()


def novelty_from_sums(statistics: HeadStatistics, spec: NetworkSpec) -> Novelty | None:
    """The distance that the head's sums give over the features of a network; None where they give none.

    Features that never move in training are left out: any distance along them would be infinite.
    """
    width = min(features_of_novelty(spec), MOST_FEATURES)
    if not width or statistics.n < 2:
        return None
    mean = statistics.hh[-1, :width] / statistics.n
    covariance = statistics.hh[:width, :width] / statistics.n - np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    moves = deviation > 1e-6
    inverse = np.where(moves, 1 / np.where(moves, deviation, 1.0), 0.0)
    correlation = covariance * np.outer(inverse, inverse)
    values, vectors = np.linalg.eigh(correlation + RIDGE * np.eye(width))
    whitening = (vectors / np.sqrt(np.maximum(values, RIDGE))).T * inverse / np.sqrt(max(int(moves.sum()), 1))
    return Novelty(mean=_rounded(mean), whitening=tuple(_rounded(row) for row in whitening))


def features_of_novelty(spec: NetworkSpec) -> int:
    """How many of the features that the head sees count: the last layer's; without layers, the reservoir's or inputs'.

    They come first of all that the head sees.
    """
    return spec.widths[-1] if spec.widths else spec.reservoir or spec.features


def largest_distance(novelty: Novelty, network: Network, points: WindowSet) -> float:
    """How far any window is from training; of whole lives, any :data:`NOVEL_ROWS` points in a row."""
    from fedprognos.networks.network_outputs import pieces

    module, distances = network.module().eval(), np.zeros(len(points))
    with module.in_blocks():
        for piece in pieces(module, points):
            distances[piece.index] = novelty.distance(piece.features())
    if points.lives is None:
        return float(distances.max(initial=0.0))
    of_units = (distances[points.unit == unit] for unit in np.unique(points.unit))
    rows = [np.lib.stride_tricks.sliding_window_view(own, min(NOVEL_ROWS, len(own))) for own in of_units]
    return max((float(own.min(axis=1).max()) for own in rows), default=0.0)


def _rounded(numbers: FloatArray) -> tuple[float, ...]:
    """Six significant digits are more than the distance needs, and keep the file small."""
    return tuple(float(f"{number:.{DIGITS}g}") for number in numbers)
