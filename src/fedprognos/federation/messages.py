"""All that a client can be asked and can answer."""

from __future__ import annotations

from dataclasses import dataclass

from fedprognos.config import RecipeSection, TrainSection
from fedprognos.features import Recipe, Survey
from fedprognos.model import Epoch, NetworkSpec, Weights


@dataclass(frozen=True)
class SurveyRequest:
    """Tell the moments of your columns and labels."""

    section: RecipeSection


@dataclass(frozen=True, eq=False)
class SurveyReply:
    """Moments and sizes, never rows."""

    survey: Survey


@dataclass(frozen=True, eq=False)
class FitRequest:
    """Train this network on your windows and send the weights.

    Parameters
    ----------
    weights
        Where to start from; None starts from weights drawn from `seed`.
    frozen
        Layers from the first that stay as they are.
    """

    recipe: Recipe
    network: NetworkSpec
    plan: TrainSection
    seed: int
    weights: Weights | None = None
    frozen: int = 0


@dataclass(frozen=True, eq=False)
class FitReply:
    """Trained weights and how training went."""

    weights: Weights
    windows: int
    history: tuple[Epoch, ...]
    best_epoch: int
    collapsed: bool


@dataclass(frozen=True)
class Failure:
    """A client could not answer: a code and a text free of data."""

    client: str
    code: str
    text: str


Request = SurveyRequest | FitRequest
Reply = SurveyReply | FitReply
REQUESTS = (SurveyRequest, FitRequest)
ANSWERS = (SurveyReply, FitReply, Failure)
