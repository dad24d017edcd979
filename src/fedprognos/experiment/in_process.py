"""Clients on this machine: a cohort that asks the worker processes of a pool."""

from __future__ import annotations

from collections.abc import Mapping

from fedprognos.errors import MessageError
from fedprognos.experiment.workers import OnEpoch, WorkerLostError, Workers
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.messages import ANSWERS, Failure, Reply, Request
from fedprognos.federation.options import Wire


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
        wire: Wire = "float32",
    ) -> None:
        self._workers, self._keys, self.wire = workers, dict(keys), wire
        self._on_epoch, self._timeout_in_s = on_epoch, timeout_in_s

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self._keys))

    def ask(self, requests: Mapping[str, Request]) -> dict[str, Reply | Failure]:
        futures = {
            name: self._workers.submit(self._keys[name], encode(request, self.wire), self._on_epoch, self._timeout_in_s)
            for name, request in sorted(requests.items())
        }
        replies: dict[str, Reply | Failure] = {}
        for name, future in futures.items():
            try:
                replies[name] = decode(future.result(), ANSWERS, f"client {name}")
            except (WorkerLostError, MessageError) as error:
                replies[name] = Failure(name, error.code, error.what)
        return replies
