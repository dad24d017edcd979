"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fedprognos.evaluation import Row
from fedprognos.fleet import Fleet


@dataclass(frozen=True)
class JobKey:
    """One piece of a run: a method in a setting with a seed."""

    setting: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.setting} {self.method} seed {self.seed}"


@dataclass(frozen=True, eq=False)
class RunStarted:
    """The data is read and the work is known; `epochs` is an upper bound on the epochs to come."""

    folder: str
    clients: dict[str, dict[str, Fleet]]
    jobs: tuple[JobKey, ...]
    reused: tuple[JobKey, ...]
    epochs: int


@dataclass(frozen=True)
class EpochDone:
    """A client finished an epoch."""

    job: JobKey
    client: str
    epoch: int
    validation_rmse: float | None


@dataclass(frozen=True)
class LayerMatched:
    """A layer's neurons were matched: its new width, the share of neurons everybody has, those only one has."""

    job: JobKey
    round: int
    layer: str
    width: int
    shared_by_all: float
    singletons: dict[str, int]
    absorbing: str


@dataclass(frozen=True)
class RoundDone:
    """A round of a federation ended."""

    job: JobKey
    round: int
    validation_rmse: dict[str, float | None]
    rmse: dict[str, float]
    messages: int
    bytes: int


@dataclass(frozen=True)
class LeftOut:
    """A round goes on without a client."""

    job: JobKey
    client: str
    code: str
    text: str


@dataclass(frozen=True)
class JobDone:
    """A job finished."""

    job: JobKey
    rows: tuple[Row, ...] = field(repr=False)
    epochs: int = 0


@dataclass(frozen=True)
class Notice:
    """Something the user should know."""

    text: str


Event = RunStarted | EpochDone | LayerMatched | RoundDone | LeftOut | JobDone | Notice
Observer = Callable[[Event], None]
