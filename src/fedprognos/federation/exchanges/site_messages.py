"""The exchanges of a deployment beside those of every run: handshake, contract, joining, refusal, delivery.

A site answers them itself, not its client. Recorded messages in the tests pin their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedprognos.features import Recipe, RecipeOptions, SurveyTerms, survey_terms
from fedprognos.federation.exchanges import Exchange, Words, add_notice, exchanges, reply_kinds, request_kinds
from fedprognos.fleet import Schema
from fedprognos.networks import Calibration, Network, Novelty


@dataclass(frozen=True)
class DataTerms:
    """What an experiment needs of a site's data: columns, operating conditions, rows in a window.

    Parameters
    ----------
    short
        Whether units with fewer rows than a window are left out or padded.
    """

    survey: SurveyTerms
    window: int | None = None
    short: Literal["exclude", "pad"] = "exclude"

    @staticmethod
    def from_recipe(options: RecipeOptions) -> DataTerms:
        """What a recipe with these options needs of a site's data."""
        return DataTerms(survey_terms(options), options.length, options.short)


@dataclass(frozen=True)
class HelloRequest:
    """Say who you are; `version` is the coordinator's own."""

    experiment: str
    version: str = ""


@dataclass(frozen=True)
class HelloReply:
    """A site's name, its version and its public identity key: nothing of its data.

    If the owner gives a model for import, the digest of its recipe is sent, so that a contract can name it.
    """

    name: str
    version: str
    identity: str
    recipe: str = ""


@dataclass(frozen=True)
class ContractRequest:
    """Keep this contract, given as its canonical text, for approval; say whether it is approved."""

    contract: str


@dataclass(frozen=True)
class ContractReply:
    """Whether the site's engineer has approved it."""

    approved: bool


@dataclass(frozen=True)
class JoinRequest:
    """The first step of a run: say whether your data fits."""

    experiment: str
    terms: DataTerms


@dataclass(frozen=True)
class JoinReply:
    """A site's columns, and a fingerprint that changes with its data and reveals nothing else.

    Parameters
    ----------
    can_refit
        Whether the test units were split off the site's data, so that a model can be trained on them at the end.
    """

    schema: Schema
    fingerprint: str
    can_refit: bool = False


@dataclass(frozen=True)
class StepsMissing:
    """A site's reply to a step that it cannot follow: send the outcomes from this step on."""

    first: int


@dataclass(frozen=True)
class RefusalRequest:
    """Show your engineer why your site cannot take part."""

    experiment: str
    reason: str


@dataclass(frozen=True)
class RefusalReply:
    """The reason was shown."""


@dataclass(frozen=True, eq=False)
class DeliverRequest:
    """Keep the finished model, make yourself a head of your own, and evaluate both on your own test units.

    The bundle's provenance and metrics are JSON objects.

    Parameters
    ----------
    network
        The model that the run evaluated: it has not seen the test units.
    refitted
        The same, trained on all units; None where the evaluated model is the one to use.
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
    coverage: float = 0.9
    novelty: Novelty | None = None
    refitted: Network | None = None


@dataclass(frozen=True)
class DeliverReply:
    """The model was kept; its scores on the site's own units stay there."""


OPENING = (HelloRequest, ContractRequest)
"""What a site is asked before there is a contract."""


def step_requests() -> tuple[type, ...]:
    """What a site is asked in the steps of a contract."""
    return (*request_kinds(), JoinRequest, RefusalRequest, DeliverRequest)


def step_replies() -> tuple[type, ...]:
    """What a site replies in the steps of a contract."""
    return (*reply_kinds(), JoinReply, RefusalReply, DeliverReply)


for exchange in (
    Exchange(
        HelloRequest,
        HelloReply,
        1,
        Words("handshake", "this site's name, version and public key, and which recipe a model for import has"),
    ),
    Exchange(
        ContractRequest,
        ContractReply,
        2,
        Words("a contract to approve", "whether the site's engineer approved a contract"),
    ),
    Exchange(
        JoinRequest,
        JoinReply,
        3,
        Words(
            "joining",
            "names of the columns, a seal that changes with the data, whether test units were split off it",
            "which columns there are",
        ),
    ),
    Exchange(
        RefusalRequest, RefusalReply, 4, Words("refused by the coordinator", "that a reason was shown to the engineer")
    ),
    Exchange(DeliverRequest, DeliverReply, 100, Words("delivery of the model", "that the finished model arrived")),
):
    exchanges.add(exchange)
add_notice(StepsMissing, Words("catching up", "that earlier steps must be sent again"))
