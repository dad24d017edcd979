"""Messages about scores and intervals; listed with all others in :mod:`fedprognos.federation.messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.evaluation import ScoreSums
from fedprognos.features import Recipe
from fedprognos.networks import Calibration, Network


@dataclass(frozen=True, eq=False)
class ResidualRequest:
    """Send how many residuals, scaled as for a calibration, fall between these edges, by range of the prediction.

    Every model is asked about the units of the fold it did not learn from, at points spread evenly over their lives.
    All folds are asked about at once, so that a client sends one sum over all its units.

    Parameters
    ----------
    models
        One a fold, in order.
    ranges
        Predictions at which one range ends and the next begins.
    """

    activity: ClassVar[str] = "residuals for intervals"
    recipe: Recipe
    models: tuple[Network, ...]
    seed: int
    ranges: NDArray[np.float64]
    edges: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ResidualReply:
    """Counts (ranges, edges + 1): below the first edge, between edges, above the last; and each range's units.

    A range that fewer units than the client's floor were in is counted within a neighbour and is empty itself.
    """

    counts: NDArray[np.int64]
    units: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ScoreRequest:
    """Send sums of this model's errors on test units of your own, and on the part that training kept out.

    Parameters
    ----------
    score_at
        Score each test unit at its last row or at all; auto = last where test units end before failure.
    head
        Name of a personal head made earlier, to be evaluated on the test units instead of the model's own.
    calibration, coverage
        Also count the labels inside these intervals.
    """

    activity: ClassVar[str] = "scoring"
    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    score_at: Literal["auto", "last", "all"] = "auto"
    head: str = ""
    calibration: Calibration | None = None
    coverage: float = 0.9


@dataclass(frozen=True)
class ScoreReply:
    """Sums of both parts; None where there are none, or too few windows to send anything of."""

    test: ScoreSums | None
    validation: ScoreSums | None
