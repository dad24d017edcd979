"""How questions reach clients. A strategy asks and does not know where its clients live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedprognos.errors import FederationError
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.messages import ANSWERS, Failure, FitReply, Reply, Request, SurveyReply
from fedprognos.federation.workers import OnEpoch, WorkerLostError, Workers


class Cohort(Protocol):
    """The clients of a federation."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Names, sorted."""

    def ask(self, requests: Mapping[str, Request]) -> dict[str, Reply | Failure]:
        """Ask several clients at once; every one of them is in the answer."""


class InProcessCohort:
    """Clients on this machine, in the worker processes of a pool.

    Parameters
    ----------
    keys
        Client name to its key in the pool.
    """

    def __init__(
        self,
        workers: Workers,
        keys: Mapping[str, str],
        *,
        on_epoch: OnEpoch | None = None,
        timeout_in_s: float | None = None,
    ) -> None:
        self._workers, self._keys = workers, dict(keys)
        self._on_epoch, self._timeout_in_s = on_epoch, timeout_in_s

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self._keys))

    def ask(self, requests: Mapping[str, Request]) -> dict[str, Reply | Failure]:
        futures = {
            name: self._workers.submit(self._keys[name], encode(request), self._on_epoch, self._timeout_in_s)
            for name, request in sorted(requests.items())
        }
        replies: dict[str, Reply | Failure] = {}
        for name, future in futures.items():
            try:
                replies[name] = decode(future.result(), ANSWERS, f"client {name}")
            except WorkerLostError as error:
                replies[name] = Failure(name, error.code, str(error))
        return replies


def answered(replies: Mapping[str, Reply | Failure], kind: type[SurveyReply] | type[FitReply]) -> None:
    """Raise when a client failed or answered something else."""
    failures = [r for r in replies.values() if isinstance(r, Failure)]
    if failures:
        first = failures[0]
        raise FederationError(
            first.text, where=f"client {first.client}", hint=f"{len(failures)} of {len(replies)} clients failed"
        )
    wrong = [name for name, reply in replies.items() if not isinstance(reply, kind)]
    if wrong:
        raise FederationError("answered something else", where=f"client {wrong[0]}")
