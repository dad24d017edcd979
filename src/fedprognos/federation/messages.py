"""All that a client can be asked and can answer. Sums, moments and weights; never a row, a unit's name or a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedprognos.config import RecipeSection, TrainSection
from fedprognos.features import Recipe, Survey
from fedprognos.model import Epoch, HeadStatistics, NetworkSpec, Weights


@dataclass(frozen=True)
class SurveyRequest:
    """Tell the moments of your columns and labels."""

    section: RecipeSection


@dataclass(frozen=True, eq=False)
class SurveyReply:
    """Moments and sizes."""

    survey: Survey


@dataclass(frozen=True)
class BringRequest:
    """Send the model you trained earlier."""


@dataclass(frozen=True, eq=False)
class BringReply:
    """A model of the client's own and the number of windows behind it."""

    recipe: Recipe
    network: NetworkSpec
    weights: Weights
    windows: int


@dataclass(frozen=True, eq=False)
class FitRequest:
    """Train this network on your windows and send what was learnt.

    Parameters
    ----------
    seed, round, phase
        Decide the client's random streams, together with its name.
    weights
        Where to start from; None starts from weights of the client's own.
    frozen
        Layers from the first that stay as they are and are not sent back.
    proximal
        FedProx's mu.
    fold, folds
        Leave out the units of one of so many folds; no folds by default.
    """

    recipe: Recipe
    network: NetworkSpec
    plan: TrainSection
    seed: int
    round: int = 1
    phase: str = "local"
    weights: Weights | None = None
    frozen: int = 0
    proximal: float = 0.0
    fold: int = 0
    folds: int = 0


@dataclass(frozen=True, eq=False)
class FitReply:
    """The tensors that were trained and how training went."""

    weights: Weights
    windows: int
    history: tuple[Epoch, ...]
    best_epoch: int
    collapsed: bool


@dataclass(frozen=True, eq=False)
class ExamineRequest:
    """Tell how this model does on your validation part, and, if asked, the statistics of its head.

    Parameters
    ----------
    validation_fraction
        The share that training kept out; 0 if none.
    """

    recipe: Recipe
    network: NetworkSpec
    weights: Weights
    seed: int
    validation_fraction: float
    statistics: bool = False
    fold: int = 0
    folds: int = 0


@dataclass(frozen=True)
class ErrorSums:
    """Sums over predictions, in the label's own unit, labels capped: what a pooled RMSE is made of."""

    n: int = 0
    error: float = 0.0
    absolute: float = 0.0
    squared: float = 0.0

    def add(self, other: ErrorSums) -> ErrorSums:
        """Sums over both sets of predictions."""
        return ErrorSums(
            self.n + other.n, self.error + other.error, self.absolute + other.absolute, self.squared + other.squared
        )

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.squared / self.n))


@dataclass(frozen=True, eq=False)
class ExamineReply:
    """Validation sums (None where nothing, or too little, was kept out) and head statistics of both parts."""

    validation: ErrorSums | None
    fit: HeadStatistics | None = None
    held: HeadStatistics | None = None


@dataclass(frozen=True, eq=False)
class PersonalRequest:
    """Make yourself a head of your own, near the one of this model, and keep it."""

    recipe: Recipe
    network: NetworkSpec
    weights: Weights
    seed: int
    validation_fraction: float


@dataclass(frozen=True)
class PersonalReply:
    """That it was made; the head itself stays."""

    windows: int


@dataclass(frozen=True, eq=False)
class ResidualRequest:
    """Tell how many residuals of this model, scaled as for a calibration, fall between these edges.

    The model did not learn from the units of this fold; one window of each is taken, at random, because
    residuals of one unit are alike.
    """

    recipe: Recipe
    network: NetworkSpec
    weights: Weights
    seed: int
    fold: int
    folds: int
    edges: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ResidualReply:
    """Counts below the first edge, between edges, and above the last: one more than there are edges."""

    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Failure:
    """A client could not answer: its name, a code, and a text free of data; the rest is in the client's own log."""

    client: str
    code: str
    text: str


@dataclass(frozen=True)
class LedgerLine:
    """One message that left a client: its kind, its tensors (name and shape) and its size."""

    kind: str
    bytes: int
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)


Request = SurveyRequest | BringRequest | FitRequest | ExamineRequest | PersonalRequest | ResidualRequest
Reply = SurveyReply | BringReply | FitReply | ExamineReply | PersonalReply | ResidualReply
REQUESTS = (SurveyRequest, BringRequest, FitRequest, ExamineRequest, PersonalRequest, ResidualRequest)
ANSWERS = (SurveyReply, BringReply, FitReply, ExamineReply, PersonalReply, ResidualReply, Failure)
