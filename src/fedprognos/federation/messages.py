"""All that a client can be asked and can answer. Sums, moments and weights; never a row, a unit's name or a time.

These are the wire's own types, pinned by recorded messages in the tests; an experiment's options never travel.
A request's `activity` says in words what a client does for it; it does not travel either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, get_args

import numpy as np

from fedprognos.errors import MessageError
from fedprognos.features import Recipe, Survey, SurveyTerms
from fedprognos.federation.pool_messages import PersonalReply, PersonalRequest, PoolReply, PoolRequest
from fedprognos.federation.privacy.options import Privacy
from fedprognos.federation.score_messages import ResidualReply, ResidualRequest, ScoreReply, ScoreRequest
from fedprognos.federation.secure.messages import SumReply, SumRequest
from fedprognos.federation.secure.survey import MomentsReply, MomentsRequest, OutlineReply, OutlineRequest
from fedprognos.matching import OutputSums
from fedprognos.networks import Epoch, HeadStatistics, Network, NetworkSpec, Weights
from fedprognos.networks.options import Training


@dataclass(frozen=True)
class SurveyRequest:
    """Send the moments of your columns and labels."""

    activity: ClassVar[str] = "moments of the columns"
    terms: SurveyTerms


@dataclass(frozen=True, eq=False)
class SurveyReply:
    """Moments and sizes."""

    survey: Survey


@dataclass(frozen=True)
class ImportRequest:
    """Send the model you trained earlier."""

    activity: ClassVar[str] = "models trained earlier"


@dataclass(frozen=True, eq=False)
class ImportReply:
    """A model of the client's own and the number of windows behind it."""

    recipe: Recipe
    network: Network
    windows: int


@dataclass(frozen=True, eq=False)
class FitRequest:
    """Train a network on your windows and send what was learnt: a new one of shape `spec`, or on from `start`.

    Parameters
    ----------
    seed, round, phase
        Decide the client's random streams, together with its name.
    frozen
        Layers from the first that stay as they are and are not sent back.
    proximal
        FedProx's mu.
    without_reserve
        Leave out the units of the client's reserve.
    privacy
        Clip gradients and add noise at every epoch; no error is sent.
    """

    activity: ClassVar[str] = "training"
    recipe: Recipe
    training: Training
    validation_fraction: float
    seed: int
    spec: NetworkSpec | None = None
    start: Network | None = None
    round: int = 1
    phase: str = "local"
    frozen: int = 0
    proximal: float = 0.0
    without_reserve: bool = False
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        if (self.spec is None) == (self.start is None):
            raise MessageError("a fit needs the shape of a new network or a network to start from, not both")

    @property
    def shape(self) -> NetworkSpec:
        """The shape of the network to train."""
        return self.start.spec if self.start is not None else self.spec  # type: ignore[return-value]

    @property
    def learnt(self) -> frozenset[str]:
        """Names of the tensors that a fit sends back: those of the layers that were not frozen."""
        return frozenset(name for layer in self.shape.anatomy.layers[self.frozen :] for name in layer.tensors)


@dataclass(frozen=True, eq=False)
class FitReply:
    """The tensors that were trained and how training went."""

    weights: Weights
    windows: int
    history: tuple[Epoch, ...]
    best_epoch: int
    collapsed: bool


@dataclass(frozen=True, eq=False)
class EvaluateRequest:
    """Send this model's errors on your validation part, and, if asked, the statistics of its head.

    Parameters
    ----------
    validation_fraction
        The share that training kept out; 0 if none.
    alike
        Let units count alike in the statistics.
    privacy
        Clip the rows and add noise; nothing else is sent.
    """

    activity: ClassVar[str] = "evaluating a model"
    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    statistics: bool = False
    without_reserve: bool = False
    alike: bool = False
    privacy: Privacy | None = None


@dataclass(frozen=True)
class ErrorSums:
    """Sums over predictions, in the label's own measure, labels capped: what a pooled RMSE is made of."""

    n: int
    error: float
    absolute: float
    squared: float

    def __post_init__(self) -> None:
        """Sums that no predictions have are refused: they may come from anybody."""
        if self.n < 1 or self.absolute < 0 or self.squared < 0:
            raise ValueError("sums that no predictions have")

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.squared / self.n))


@dataclass(frozen=True, eq=False)
class EvaluateReply:
    """Validation sums (None where nothing, or too little, was kept out) and head statistics of both parts."""

    validation: ErrorSums | None
    fit: HeadStatistics | None = None
    held: HeadStatistics | None = None


@dataclass(frozen=True, eq=False)
class OutputsRequest:
    """Send sums over what every layer below the head of this network puts out on the part that training learnt from."""

    activity: ClassVar[str] = "sums of outputs"

    recipe: Recipe
    network: Network
    seed: int
    validation_fraction: float
    without_reserve: bool = False


@dataclass(frozen=True, eq=False)
class OutputsReply:
    """Sums for each layer, from the input on."""

    layers: tuple[OutputSums, ...]


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


Request = (
    SurveyRequest
    | ImportRequest
    | FitRequest
    | EvaluateRequest
    | OutputsRequest
    | PoolRequest
    | PersonalRequest
    | ResidualRequest
    | ScoreRequest
    | OutlineRequest
    | MomentsRequest
    | SumRequest
)
Reply = (
    SurveyReply
    | ImportReply
    | FitReply
    | EvaluateReply
    | OutputsReply
    | PoolReply
    | PersonalReply
    | ResidualReply
    | ScoreReply
    | OutlineReply
    | MomentsReply
    | SumReply
)
REQUESTS: tuple[type[Request], ...] = get_args(Request)
ANSWERS: tuple[type[Reply | Failure], ...] = (*get_args(Reply), Failure)
