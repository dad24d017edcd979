"""What coordinator and sites say besides the federation's own messages: handshake, contract, joining, delivery.

These are the wire's own types, pinned by recorded messages in the tests; an experiment's options never travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from fedprognos.features import Recipe, SurveyTerms, survey_terms
from fedprognos.features.options import RecipeOptions
from fedprognos.federation import messages
from fedprognos.fleet import Schema
from fedprognos.networks import Calibration, Network


@dataclass(frozen=True)
class DataTerms:
    """What an experiment needs of a site's data: columns and conditions, rows in a window, what to do with less."""

    survey: SurveyTerms
    window: int | None = None
    short: Literal["exclude", "pad"] = "exclude"

    @staticmethod
    def from_recipe(options: RecipeOptions) -> DataTerms:
        """What a recipe with these options needs of a site's data."""
        return DataTerms(survey_terms(options), options.length, options.short)


@dataclass(frozen=True)
class HelloRequest:
    """Say who you are."""

    activity: ClassVar[str] = "handshake"
    experiment: str


@dataclass(frozen=True)
class HelloReply:
    """A site's name, its version and its public identity key: nothing of its data.

    Of a model that the owner gives for import it tells the recipe's digest, so that a contract can name it.
    """

    name: str
    version: str
    identity: str
    recipe: str = ""


@dataclass(frozen=True)
class ContractRequest:
    """Here is the contract of a run, as its canonical text; is it approved?"""

    activity: ClassVar[str] = "a contract to approve"
    contract: str


@dataclass(frozen=True)
class ContractReply:
    """Whether the site's engineer has approved it."""

    approved: bool


@dataclass(frozen=True)
class JoinRequest:
    """The first step of a run: say whether your data fits."""

    activity: ClassVar[str] = "joining"
    experiment: str
    terms: DataTerms


@dataclass(frozen=True)
class JoinReply:
    """A site's columns, and a fingerprint that changes with its data and tells nothing else."""

    schema: Schema
    fingerprint: str


@dataclass(frozen=True)
class StepsMissing:
    """A site's reply to a step that it cannot follow: send the outcomes from this step on."""

    first: int


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


Opening = HelloRequest | ContractRequest
OPENING: tuple[type[Opening], ...] = get_args(Opening)
"""What a site is asked before there is a contract."""
Request = messages.Request | JoinRequest | RefusalRequest | DeliverRequest
REQUESTS: tuple[type[Request], ...] = get_args(Request)
"""What a site is asked in the steps of a contract."""
ANSWERS: tuple[type, ...] = (*messages.ANSWERS, JoinReply, RefusalReply, DeliverReply)
"""What a site replies in the steps of a contract."""
ACTIVITIES = {kind.__name__: kind.activity for kind in (*OPENING, *REQUESTS)}
"""What a site does for each kind of request, in words."""
