"""Totals: the replies of all clients added up, in the open, as integers, or masked.

Whatever a strategy, a head or an interval only adds is asked for here, so that there is one place that has to see the
replies one by one, and one that masks can replace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import reduce
from typing import Any, Protocol, TypeVar

import numpy as np

from fedprognos.arrays import FloatArray
from fedprognos.errors import BundleError, DataError, FederationError, FedprognosError, MessageError, TrainingError
from fedprognos.federation.cohort import Cohort, OnLeftOut, gather, needed, too_few_error
from fedprognos.federation.exchanges import Exchange, Failure, Request, exchange_for
from fedprognos.federation.plausible import MOST_ROWS
from fedprognos.privacy import LEAST_MEMBERS, add, from_fixed, quorum, to_fixed


class Sums(Protocol):
    """A way to total replies."""

    def total(
        self, cohort: Cohort, requests: Mapping[str, Any], left_out: OnLeftOut, least: int = 0
    ) -> tuple[Any, tuple[str, ...]]:
        """The summed reply and the clients in it; `left_out` is called with the others.

        Where fewer than `least` answer, nothing is summed.
        """

    def forget(self, requests: Mapping[str, Any]) -> None:
        """Do not remember the total of these requests."""

    def about_other_units(self) -> Sums:
        """The same way for requests that are about other units from now on."""


def summed_exchange(request: Request) -> Exchange:
    """The exchange of a request whose replies are added up."""
    exchange = exchange_for(request)
    if exchange is None:
        raise MessageError(f"answers to a {type(request).__name__} cannot be added up")
    return exchange


class OpenSums:
    """Totals of integers where all clients are in one process: the bytes of a masked sum, without the masks."""

    def total(
        self, cohort: Cohort, requests: Mapping[str, Any], left_out: OnLeftOut, least: int = 0
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

    def about_other_units(self) -> OpenSums:
        """The same: nothing is remembered here."""
        return self


R = TypeVar("R")


def total(
    cohort: Cohort,
    requests: Mapping[str, Request],
    kind: type[R],
    min_clients: int | None,
    left_out: OnLeftOut,
) -> R:
    """Ask, and add the replies of the clients that sent good ones, in the order of their names.

    Raises
    ------
    FederationError
        When fewer than `min_clients` (all of them by default) did.
    """
    if cohort.sums is not None:
        return masked_total(cohort, requests, min_clients, left_out)  # type: ignore[no-any-return]
    return add_all(gather(cohort, requests, kind, min_clients, left_out))


def masked_total(cohort: Cohort, requests: Mapping[str, Request], min_clients: int | None, left_out: OnLeftOut) -> Any:
    """The sum of replies that nobody sees one by one; an impossible sum ends the step.

    A total that declares how many points all members have together bounds their later totals.
    """
    sums = cohort.sums
    if sums is None:
        raise FederationError("the clients' replies are not masked", hint='set federation.mode = "masked"')
    if len(requests) < LEAST_MEMBERS:
        raise FederationError(f"a masked sum needs {LEAST_MEMBERS} clients; {len(requests)} were asked")
    least = max(needed(len(requests), min_clients), quorum(len(requests)))
    request = next(iter(requests.values()))
    members: tuple[str, ...] = ()
    failures: list[Failure] = []

    def failed(failure: Failure) -> None:
        failures.append(failure)
        left_out(failure)

    try:
        summed, members = sums.total(cohort, requests, failed, least)
        if summed is not None and (exchange := exchange_for(request)) is not None:
            # Nobody says how many points are its own, so every member is bounded by the total that it was part of.
            exchange.check(request, summed, max(cohort.declared.get(name, MOST_ROWS) for name in members))
            if exchange.declares is not None:
                cohort.declared.update(dict.fromkeys(members, exchange.declares(summed, None)))
    except FederationError as error:
        raise too_few_error(failures)(error.what, where=error.where, hint=error.hint) from None
    except (MessageError, BundleError, TrainingError, DataError, ValueError, ArithmeticError) as error:
        sums.forget(requests)
        text = error.what if isinstance(error, FedprognosError) else str(error)
        raise FederationError(
            f"the sum of {len(members) or len(requests)} clients is impossible: {text}",
            hint="Sums are masked, so nobody can tell whose part is wrong. With the consent of all members, "
            'federation.mode = "checked" shows each reply and names the client.',
        ) from None
    if summed is None or len(members) < least:
        raise too_few_error(failures)(
            f"{len(members)} of {len(requests)} clients answered",
            hint="Fix the others, or set federation.min_clients to continue without them.",
        )
    return summed


def add_all(replies: Mapping[str, R]) -> R:
    """The sum of several clients' replies, in the order of their names.

    >>> from fedprognos.federation.exchanges.evaluate import ErrorSums, EvaluateReply
    >>> add_all({"a": EvaluateReply(ErrorSums(2, 1.0, 3.0, 5.0)), "b": EvaluateReply(None)}).validation.n
    2
    """
    if not replies:
        raise FederationError("no client sent anything to add", hint="errors.jsonl of each client says why")
    return reduce(_added, (replies[name] for name in sorted(replies)))


def _added(left: Any, right: Any) -> Any:
    """Field by field; what only one side has is the sum."""
    if left is None or right is None:
        return right if left is None else left
    if dataclasses.is_dataclass(left) and not isinstance(left, type) and type(left) is type(right):
        names = [field.name for field in dataclasses.fields(left)]
        return type(left)(**{name: _added(getattr(left, name), getattr(right, name)) for name in names})
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return tuple(map(_added, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):  # a sum that either side lacks cannot be known
        return {name: _added(value, right[name]) for name, value in left.items() if name in right}
    if isinstance(left, int | float | np.ndarray) and np.shape(left) == np.shape(right):
        return left + right
    raise FederationError(f"replies that cannot be added: {type(left).__name__} and {type(right).__name__}")
