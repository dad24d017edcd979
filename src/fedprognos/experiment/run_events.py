"""Events of a run and of a search, for terminal, log and trackers; and the key of a job."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from fedprognos.evaluation import ResultRow
from fedprognos.experiment.search_space import Choice, Space
from fedprognos.fleet import Fleet

BASELINES = "baselines"
"""The method of the job that all baselines share."""
MEAN_OF_LOCALS = "mean-of-locals"
"""The method of rows about the mean of the clients' own predictions; they come from the job of `local`."""


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


@dataclass(frozen=True)
class RecipeTried:
    """A recipe was tried before the run. The search has used `done` of about `total` training steps."""

    text: str
    done: int
    total: int


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


@dataclass(frozen=True)
class Trial:
    """One finished trial.

    Parameters
    ----------
    error
        Validation error, mean over seeds; of a pruned trial the last that was known, of a failed one None.
    reason
        Why it failed.
    """

    number: int
    values: Mapping[str, Choice]
    state: Literal["complete", "pruned", "failed"]
    error: float | None
    reason: str = ""


@dataclass(frozen=True)
class SearchStarted:
    """The data is read; `finished` of `trials` were done before."""

    folder: str
    what: str
    space: Space
    trials: int
    finished: int


@dataclass(frozen=True)
class TrialStarted:
    """A trial begins."""

    number: int
    values: Mapping[str, Choice]


@dataclass(frozen=True)
class TrialEpoch:
    """A client finished an epoch of a trial."""

    number: int
    client: str
    epoch: int


@dataclass(frozen=True)
class TrialRound:
    """A round of a trial was judged: the validation error so far, mean over seeds."""

    number: int
    seed: int
    round: int
    error: float


@dataclass(frozen=True)
class TrialDone:
    """A trial ended; `best` where none before was better."""

    trial: Trial
    best: bool


Event = RunStarted | EpochDone | LayerMatched | NeuronsAbsorbed | RoundDone | LeftOut | JobDone | RecipeTried | Notice
Observer = Callable[[Event], None]
SearchEvent = SearchStarted | TrialStarted | TrialEpoch | TrialRound | TrialDone | Notice
SearchObserver = Callable[[SearchEvent], None]
