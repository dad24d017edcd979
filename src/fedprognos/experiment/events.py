"""Events of a run, for whoever watches it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedprognos.evaluation import ResultRow
from fedprognos.fleet import Fleet

BASELINES = "baselines"
"""The method of the job that all baselines share."""


@dataclass(frozen=True)
class JobKey:
    """One piece of a run: a method in a scenario with a seed."""

    scenario: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.scenario} {self.method} seed {self.seed}"


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
class NeuronsAbsorbed:
    """Neurons were absorbed: how many there were, and how many of each client's were kept."""

    job: JobKey
    round: int
    neurons: int
    kept: dict[str, int]


@dataclass(frozen=True)
class RoundDone:
    """A round of a federation ended; errors by head, against labels that are capped at `cap` where there is one."""

    job: JobKey
    round: int
    validation_rmse: dict[str, float | None]
    rmse: dict[str, float]
    messages: int
    bytes: int
    cap: float | None = None


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
    rows: tuple[ResultRow, ...] = field(repr=False)
    epochs: int = 0


@dataclass(frozen=True)
class Notice:
    """Something the user should know."""

    text: str


@contextmanager
def warnings_as_notices(notify: Callable[[Notice], None]) -> Iterator[None]:
    """Show each distinct warning about the data once, where the user looks."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if str(message) not in seen and issubclass(category, UserWarning):
            seen.add(str(message))
            notify(Notice(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


Event = RunStarted | EpochDone | LayerMatched | NeuronsAbsorbed | RoundDone | LeftOut | JobDone | Notice
Observer = Callable[[Event], None]
