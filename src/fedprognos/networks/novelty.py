"""How far a network's features are from those of the training machines: the distance that H'H gives.

The exact head is solved from sums of the features, n, H'1 and H'H, which leave every site anyway. They also tell mean
and covariance of the features, and so the Mahalanobis distance of a new state. On training rows its mean square is one
by construction, so a limit needs no further exchange. A machine that wears in a way that no training machine did moves
the state off the paths that training took, long before the head says anything unusual.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fedprognos.arrays import FloatArray
from fedprognos.networks.head import HeadStatistics

LIMIT = 3.0
"""Distance beyond which a state is novel. Kept-out machines of C-MAPSS and of the synthetic plants stay below 2.5."""
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

    Examples
    --------
    >>> novelty = Novelty(mean=(0.0, 0.0), whitening=((1.0, 0.0), (0.0, 0.5)))
    >>> novelty.distance(np.array([[3.0, 8.0]])).tolist()
    [5.0]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: tuple[Finite, ...]
    whitening: tuple[tuple[Finite, ...], ...]

    def distance(self, features: NDArray[np.floating]) -> FloatArray:
        """Distances (...) of features (..., L) from training; those of training have a mean square of one."""
        mean, whitening = self._arrays
        deviations = (features[..., : len(mean)].astype(np.float32, copy=False) - mean) @ whitening  # as in ONNX
        distances: FloatArray = np.sqrt(np.einsum("...k,...k->...", deviations, deviations)).astype(np.float64)
        return distances

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.array(self.mean, dtype=np.float32), np.array(self.whitening, dtype=np.float32).T.copy()


def novelty_from_sums(statistics: HeadStatistics, width: int) -> Novelty | None:
    """The distance that the head's sums give over the last layer's features, the first `width` ones; None for none.

    Features that never move in training are left out: any distance along them would be infinite.
    """
    width = min(width, MOST_FEATURES)
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


def _rounded(numbers: FloatArray) -> tuple[float, ...]:
    """Six significant digits are more than the distance needs, and keep the file small."""
    return tuple(float(f"{number:.{DIGITS}g}") for number in numbers)
