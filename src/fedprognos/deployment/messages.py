"""What coordinator and sites say besides the federation's own messages: the handshake, and the delivery of the model.

These are the wire's own types, pinned by recorded messages in the tests; an experiment's options never travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from fedprognos.features import Recipe, SurveyTerms
from fedprognos.federation import messages
from fedprognos.fleet import Schema
from fedprognos.networks import Calibration, Network


@dataclass(frozen=True)
class DataTerms:
    """What an experiment needs of a site's data: columns and conditions, rows in a window, what to do with less."""

    survey: SurveyTerms
    window: int | None = None
    short: Literal["exclude", "pad"] = "exclude"


@dataclass(frozen=True)
class HelloRequest:
    """Say who you are, and whether your data fits this experiment."""

    activity: ClassVar[str] = "handshake"
    experiment: str
    terms: DataTerms


@dataclass(frozen=True)
class HelloReply:
    """A site's name and columns, and a fingerprint that changes with its data and tells nothing else."""

    name: str
    version: str
    schema: Schema
    fingerprint: str


@dataclass(frozen=True)
class RefusalRequest:
    """You cannot take part, and this is why."""

    activity: ClassVar[str] = "refused by the coordinator"
    experiment: str
    reason: str


@dataclass(frozen=True)
class RefusalReply:
    """The reason was shown."""


@dataclass(frozen=True, eq=False)
class DeliverRequest:
    """Keep the finished model, make yourself a head of your own, and evaluate both on your own test units.

    The bundle's provenance and metrics are JSON objects.
    """

    activity: ClassVar[str] = "delivery of the model"
    experiment: str
    recipe: Recipe
    network: Network
    provenance: str
    metrics: str
    calibration: Calibration | None
    seed: int
    validation_fraction: float
    bootstrap: int
    coverage: float = 0.9


@dataclass(frozen=True)
class DeliverReply:
    """The model was kept; its scores on the site's own units stay there."""


Request = messages.Request | HelloRequest | RefusalRequest | DeliverRequest
REQUESTS: tuple[type[Request], ...] = get_args(Request)
ACTIVITIES = {kind.__name__: kind.activity for kind in REQUESTS}
"""What a site does for each kind of request, in words."""
