"""How a cohort adds up replies that nobody is to see one by one: as integers, masked or in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.federation.messages import Failure
from fedprognos.federation.secure.fixed_point import FINE_LIMBS, LIMBS, add, from_fixed, to_fixed
from fedprognos.federation.secure.survey import MomentsRequest
from fedprognos.federation.secure.templates import summand, template_of
from fedprognos.federation.secure.vectors import from_vector, to_vector

LeftOut = Callable[[Failure], None]
Tag = tuple[str, int]
"""The batch and number of a masked sum that a request belongs to."""


class Asks(Protocol):
    """A cohort as sums need it."""

    def ask(self, requests: Mapping[str, Any], kinds: tuple[type, ...] = ..., tag: Tag | None = None) -> dict[str, Any]:
        """Replies or failures."""


class Sums(Protocol):
    """A way to total replies."""

    def total(
        self, cohort: Asks, requests: Mapping[str, Any], left_out: LeftOut, least: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        """The summed reply and the clients in it; `left_out` is called with the others.

        Where fewer than `least` answer, nothing is summed.
        """

    def forget(self, requests: Mapping[str, Any]) -> None:
        """Do not remember the total of these requests."""


def limbs_of(request: Any) -> int:
    """Moments of raw columns need a finer unit than statistics of scaled ones."""
    return FINE_LIMBS if isinstance(request, MomentsRequest) else LIMBS


class OpenSums:
    """Totals of integers where all clients are in one process: the bytes of a masked sum, without the masks."""

    def total(
        self, cohort: Asks, requests: Mapping[str, Any], left_out: LeftOut, least: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        replies = cohort.ask(requests)
        first = next(iter(requests.values()))
        template, limbs = template_of(first), limbs_of(first)
        members, total = [], None
        for name, reply in sorted(replies.items()):
            if isinstance(reply, Failure):
                left_out(reply)
                continue
            part = to_fixed(to_vector(summand(reply), template), limbs)
            total = part if total is None else add(total, part)
            members.append(name)
        values: FloatArray = np.zeros(0) if total is None else from_fixed(total)
        enough = members and len(members) >= least
        return (from_vector(values, template, len(members)) if enough else None), tuple(members)

    def forget(self, requests: Mapping[str, Any]) -> None:
        """Nothing is remembered here."""
