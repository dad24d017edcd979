"""Messages about scores and intervals; listed with all others in :mod:`fedprognos.federation.messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedprognos.evaluation import ScoreSums
from fedprognos.features import Recipe
from fedprognos.networks import Calibration, Network
from fedprognos.networks.residuals import HeadSums


@dataclass(frozen=True, eq=False)
class ResidualRequest:
    """Send how many residuals, scaled as for a calibration, fall between these edges, by range of the prediction.

    Residuals are taken at points spread evenly over the life of every unit.

    Parameters
    ----------
    ranges
        Predictions at which one range ends and the next begins.
    sums
        What the network's head was solved from: each unit is left out of it in turn. None where the network has not
        learnt from the units asked about.
    only_reserve
        Only the units of the client's reserve; all of them by default.
    stretch
        How much larger errors are taken to be, for units that the network's layers have not learnt from.
    """

    activity: ClassVar[str] = "residuals for intervals"
    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    ranges: NDArray[np.float64]
    edges: NDArray[np.float64]
    sums: HeadSums | None = None
    only_reserve: bool = False
    stretch: float = 1.0

    @property
    def alike(self) -> bool:
        """Whether units count alike in the head's sums."""
        return self.sums is not None and self.sums.alike


@dataclass(frozen=True, eq=False)
class ResidualReply:
    """Counts (ranges, edges + 1): below the first edge, between edges, above the last; and each range's units.

    A range that fewer units than the client's floor were in is counted within a neighbour and is empty itself.

    Parameters
    ----------
    squared
        Sum of the squared residuals, labels capped.
    """

    counts: NDArray[np.int64]
    units: NDArray[np.int64]
    squared: float


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
