"""Clients on this machine: a transport to the worker processes of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedprognos.experiment.workers import OnEpoch, WorkerLostError, Workers
from fedprognos.federation.messages import Failure


@dataclass(frozen=True, eq=False)
class InProcess:
    """Sends to clients in worker processes.

    Parameters
    ----------
    keys
        Client name to its key in the pool.
    on_epoch
        Called after every epoch of training, with the client's key.
    """

    workers: Workers
    keys: Mapping[str, str]
    on_epoch: OnEpoch | None = None
    timeout_in_s: float | None = None

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.keys))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        futures = {
            name: self.workers.submit(self.keys[name], data, self.on_epoch, self.timeout_in_s)
            for name, data in sorted(requests.items())
        }
        replies: dict[str, bytes | Failure] = {}
        for name, future in futures.items():
            try:
                replies[name] = future.result()
            except WorkerLostError as error:
                replies[name] = Failure(name, error.code, error.what)
        return replies
