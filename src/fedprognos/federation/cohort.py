"""How questions reach clients. A strategy asks and does not know where its clients live."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from fedprognos.errors import BundleError, FederationError
from fedprognos.federation.client import learnt_tensors
from fedprognos.federation.messages import BringReply, Failure, FitReply, FitRequest, Reply, Request
from fedprognos.federation.options import Wire
from fedprognos.networks import check_weights

R = TypeVar("R", bound=Reply)


class Cohort(Protocol):
    """The clients of a federation."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of those who are there now, sorted."""

    @property
    def wire(self) -> Wire:
        """Precision of the weights in messages."""

    def ask(self, requests: Mapping[str, Request]) -> dict[str, Reply | Failure]:
        """Ask several clients at once; every one of them is in the answer."""


def gather(
    cohort: Cohort,
    requests: Mapping[str, Request],
    kind: type[R],
    min_clients: int | None,
    left_out: Callable[[Failure], None],
) -> dict[str, R]:
    """Ask, check the answers, and go on with those who answered as they should.

    Raises
    ------
    FederationError
        When fewer than `min_clients` (all of them by default) did.
    """
    replies = {name: _checked(name, requests[name], reply) for name, reply in cohort.ask(requests).items()}
    failures = [reply for reply in replies.values() if isinstance(reply, Failure)]
    good: dict[str, R] = {name: reply for name, reply in sorted(replies.items()) if isinstance(reply, kind)}
    for one in failures:
        left_out(one)
    if len(good) < (len(requests) if min_clients is None else min(min_clients, len(requests))):
        first = next(iter(failures), None) or Failure(min(replies), "message", "answered something else")
        raise FederationError(
            f"{len(good)} of {len(requests)} clients answered; {first.text}",
            where=f"client {first.client}",
            hint="mend that client, or let the federation go on without it: federation.min_clients",
        )
    return good


def _checked(name: str, request: Request, reply: Reply | Failure) -> Reply | Failure:
    """A reply whose weights do not fit what was asked becomes a failure."""
    try:
        if isinstance(reply, FitReply) and isinstance(request, FitRequest):
            if set(reply.weights) != learnt_tensors(request) or reply.windows < 1:
                return Failure(name, "message", "sent other tensors than asked for")
            known = {} if request.weights is None else dict(request.weights)
            check_weights(request.network, {**known, **reply.weights}, f"client {name}")
        if isinstance(reply, BringReply):
            check_weights(reply.network, reply.weights, f"client {name}")
    except BundleError as error:
        return Failure(name, "message", error.what)
    return reply
