"""What may be asked of a matching, checked, and how far the global model may grow."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from numpy.typing import ArrayLike

from fedprognos.errors import ConfigError, unknown_name
from fedprognos.matching.arguments import check_whole
from fedprognos.matching.match.gain import COSTS
from fedprognos.matching.match.problem import MatchProblem


@dataclass(frozen=True)
class MatchOptions:
    """The options of :func:`~fedprognos.matching.match`, described there."""

    cost: str
    sigma: ArrayLike | None
    sigma0: ArrayLike | None
    gamma: float
    estimate: bool | None
    sweeps: int
    seed: int
    cap: int | None
    quota: int | None
    solver: str

    def __post_init__(self) -> None:
        if self.cost not in COSTS:
            raise unknown_name("cost", self.cost, COSTS)
        if not (math.isfinite(self.gamma) and self.gamma > 0):
            raise ConfigError(f"gamma must be a positive number, got {self.gamma!r}")
        for name, value, least in (("sweeps", self.sweeps, 0), ("cap", self.cap, 1), ("quota", self.quota, 0)):
            if value is not None:
                check_whole(name, value, least)

    @property
    def estimates(self) -> bool:
        """Whether the variances are re-estimated: SPAHM does, PFNM does not."""
        return self.cost == "spahm" if self.estimate is None else self.estimate


@dataclass(frozen=True)
class Growth:
    """How far the global model may grow: to ``cap`` neurons in all, by ``quota`` new ones for each client."""

    cap: int
    quota: int

    def room(self, width: int, existing: int) -> int:
        """New neurons a client of this width may open: every one of its neurons has a place in any case."""
        return max(width - existing, min(self.cap - existing, self.quota))


def growth_limits(problem: MatchProblem, cap: int | None, quota: int | None) -> Growth:
    """The limits on growth, with the cap no lower than the widest client and no higher than quotas can lead to."""
    if cap is None:
        cap = problem.everything
    elif cap < problem.widest:
        warnings.warn(f"cap {cap} raised to {problem.widest}, the width of the widest client", stacklevel=4)
        cap = problem.widest
    if quota is None:
        return Growth(cap, problem.everything)
    growing = len(problem.clients) - (0 if problem.anchored else 1)
    # A client may leave a neuron it opened to others and open one more; without this the quota would leak.
    return Growth(min(cap, problem.widest + growing * quota), quota)
