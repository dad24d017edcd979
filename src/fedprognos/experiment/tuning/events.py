"""Events of a search, besides notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fedprognos.experiment.events import Notice
from fedprognos.experiment.tuning.space import Choice, Space

TrialState = Literal["complete", "pruned", "failed"]


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
    state: TrialState
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


Event = SearchStarted | TrialStarted | TrialEpoch | TrialRound | TrialDone | Notice
Observer = Callable[[Event], None]
