"""What a strategy is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass

from fedprognos.config import TrainSection
from fedprognos.features import Recipe
from fedprognos.model import Epoch, NetworkSpec, Weights


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything the clients of one run agree on."""

    recipe: Recipe
    network: NetworkSpec
    train: TrainSection
    seed: int


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model and who trained it.

    Parameters
    ----------
    epochs
        Local epochs that went into it.
    bytes
        What left the clients for it.
    """

    train_clients: tuple[str, ...]
    network: NetworkSpec
    weights: Weights
    history: tuple[Epoch, ...]
    epochs: int
    bytes: int
    collapsed: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """Models a strategy ended with: one for all clients, or one each."""

    models: tuple[Model, ...]
