"""What is said besides the federation's own messages: at the door, and when it is over."""

from __future__ import annotations

from dataclasses import dataclass

from fedprognos.features import Recipe
from fedprognos.features.options import RecipeOptions
from fedprognos.federation.messages import ANSWERS, REQUESTS
from fedprognos.fleet import Schema
from fedprognos.networks import Network
from fedprognos.networks.calibration import Calibration

PHASES = {
    "HelloRequest": "greeting",
    "RefusalRequest": "turned away",
    "SurveyRequest": "moments of the columns",
    "ImportRequest": "models trained earlier",
    "FitRequest": "training",
    "EvaluateRequest": "evaluating a model",
    "PersonalRequest": "making personal heads",
    "ResidualRequest": "residuals for intervals",
    "ScoreRequest": "scoring",
    "DeliverRequest": "delivery of the model",
}
"""What each question is about, in words."""


@dataclass(frozen=True)
class HelloRequest:
    """Who are you, and does your data fit this experiment?"""

    experiment: str
    section: RecipeOptions


@dataclass(frozen=True)
class HelloReply:
    """A site's name and columns.

    Parameters
    ----------
    fingerprint
        Changes when the site's data does; made with a secret of the site's, so that it tells nothing else.
    """

    name: str
    version: str
    schema: Schema
    fingerprint: str


@dataclass(frozen=True)
class RefusalRequest:
    """You cannot take part, and this is why."""

    experiment: str
    reason: str


@dataclass(frozen=True)
class RefusalReply:
    """Heard."""


@dataclass(frozen=True, eq=False)
class DeliverRequest:
    """The finished model: keep it, make yourself a head of your own, examine both on your own test units.

    Parameters
    ----------
    provenance, metrics
        Of the bundle, as JSON.
    """

    experiment: str
    recipe: Recipe
    network: Network
    provenance: str
    metrics: str
    calibration: Calibration | None
    seed: int
    validation_fraction: float
    bootstrap: int


@dataclass(frozen=True)
class DeliverReply:
    """That it was kept; what it is worth on the site's own units stays there."""

    kept: bool


DOOR_REQUESTS = (HelloRequest, RefusalRequest, DeliverRequest)
DOOR_ANSWERS = (HelloReply, RefusalReply, DeliverReply)
ALL_REQUESTS = (*REQUESTS, *DOOR_REQUESTS)
ALL_ANSWERS = (*ANSWERS, *DOOR_ANSWERS)
