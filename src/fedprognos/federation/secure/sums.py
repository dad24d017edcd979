"""How a cohort adds up replies that nobody is to see one by one: as integers, masked or in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import MessageError
from fedprognos.federation.exchanges import Exchange, Failure, Request, exchange_for
from fedprognos.federation.secure.fixed_point import add, from_fixed, to_fixed

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


def summed_exchange(request: Request) -> Exchange:
    """The exchange of a request whose replies are added up."""
    exchange = exchange_for(request)
    if exchange is None:
        raise MessageError(f"answers to a {type(request).__name__} cannot be added up")
    return exchange


class OpenSums:
    """Totals of integers where all clients are in one process: the bytes of a masked sum, without the masks."""

    def total(
        self, cohort: Asks, requests: Mapping[str, Any], left_out: LeftOut, least: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        replies = cohort.ask(requests)
        request = next(iter(requests.values()))
        exchange = summed_exchange(request)
        members, total = [], None
        for name, reply in sorted(replies.items()):
            if isinstance(reply, Failure):
                left_out(reply)
                continue
            part = to_fixed(exchange.vector(request, reply)[0], exchange.limbs)
            total = part if total is None else add(total, part)
            members.append(name)
        values: FloatArray = np.zeros(0) if total is None else from_fixed(total)
        enough = members and len(members) >= least
        return (exchange.unvector(request, values, len(members)) if enough else None), tuple(members)

    def forget(self, requests: Mapping[str, Any]) -> None:
        """Nothing is remembered here."""
