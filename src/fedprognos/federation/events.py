"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    """The data is read and the work is known."""

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
class JobDone:
    """A job finished; `epochs` of its budget were not needed."""

    job: JobKey
    rows: tuple[Row, ...]
    epochs_unused: int


@dataclass(frozen=True)
class Notice:
    """Something the user should know."""

    text: str


Event = RunStarted | EpochDone | JobDone | Notice
Observer = Callable[[Event], None]
