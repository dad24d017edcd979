"""Engines: where the clients of a simulated run answer. An engine gives an executor of `concurrent.futures`.

Own processes are the default; a Dask cluster is the other engine here. Jobs are functions of bytes and read the
clients' data from a folder, so where a job runs changes no byte of its result.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor
from typing import Any

from fedprognos.errors import ConfigError, MissingExtraError

CONNECT_IN_S = 30
"""Longest wait for a scheduler and its first worker."""
SAME_VERSIONS = ("fedprognos", "numpy", "torch")
"""Packages whose versions must be equal on all machines of a cluster: others may round differently."""


class Engine(ABC):
    """Somewhere that jobs run.

    Attributes
    ----------
    jobs
        How many run side by side.
    shares_folder
        True if jobs run on other machines: then the clients' data goes into the run's folder, which all must see.
    lost
        What a future raises whose job did not finish because its process died. The job is done again.
    note
        Shown to the user when the engine starts.
    """

    jobs: int
    shares_folder: bool = False
    lost: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError)
    note: str = ""

    @abstractmethod
    def start(self) -> Executor:
        """A new executor. It is asked for again when one broke or was stopped."""

    def stop(self, executor: Executor) -> None:
        """End an executor now, also the jobs that run."""
        executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:  # noqa: B027 - most engines have nothing of their own to free
        """Free all that belongs to the engine itself; no executor is in use any more."""


class OwnProcesses(Engine):
    """Processes of this machine. They end with the process that started them."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def start(self) -> Executor:
        context = multiprocessing.get_context("spawn")  # a forked process may inherit torch's locked threads
        return ProcessPoolExecutor(self.jobs, context, _prepare_process)

    def stop(self, executor: Executor) -> None:
        if isinstance(executor, ProcessPoolExecutor):
            processes = executor._processes or {}  # `kill_workers` does this from Python 3.14 on
            for process in list(processes.values()):
                process.kill()
        executor.shutdown(wait=True, cancel_futures=True)


class DaskCluster(Engine):
    """Workers of a Dask cluster. Dask gives the job of a killed worker to another one.

    Parameters
    ----------
    address
        Of the scheduler, such as `tcp://10.0.0.5:8786`; `local` starts a cluster on this machine.
    jobs
        Workers of a local cluster. A cluster that runs already has as many jobs side by side as it has threads.
    """

    shares_folder = True

    def __init__(self, address: str, jobs: int) -> None:
        try:
            import distributed
        except ImportError:
            raise MissingExtraError("distributed", "cluster", "--cluster") from None
        self.lost = (*Engine.lost, distributed.client.FutureCancelledError, distributed.scheduler.KilledWorker)
        self._local: Any = None
        self._address = address
        if address == "local":
            self._local = distributed.LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=":0")
            self._address = self._local.scheduler_address
        with self._connected() as client:
            try:
                client.wait_for_workers(1, timeout=CONNECT_IN_S)
                client.get_versions(check=True, packages=list(SAME_VERSIONS))
            except TimeoutError:
                raise ConfigError(
                    "the cluster has no workers", where=address, hint=f"start one: dask worker {address} --nthreads 1"
                ) from None
            except ValueError as error:  # versions differ; the text is a table of them
                raise ConfigError(
                    str(error), where=address, hint="install the same versions on all workers and here"
                ) from None
            self.jobs = sum(client.nthreads().values())
            self.note = f"Dask cluster of {self.jobs} worker(s); dashboard: {client.dashboard_link}"

    def start(self) -> Executor:
        executor: Executor = self._connected().get_executor(pure=False)  # equal requests are different jobs
        return executor

    def stop(self, executor: Any) -> None:
        executor.shutdown(wait=False)
        executor._client.close()

    def close(self) -> None:
        if self._local is not None:
            self._local.close()

    def _connected(self) -> Any:
        import distributed

        try:
            return distributed.Client(self._address, timeout=CONNECT_IN_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot connect to a Dask scheduler ({error})",
                where=self._address,
                hint="give --cluster tcp://HOST:PORT as `dask scheduler` prints it, or --cluster local",
            ) from None


def engine_for(cluster: str | Engine | None, workers: int | None) -> Engine | None:
    """The engine for a run: None where all clients live in this process."""
    if isinstance(cluster, Engine):
        return cluster
    jobs = workers or cores()
    if cluster is not None:
        return DaskCluster(cluster, jobs)
    return OwnProcesses(jobs) if jobs > 1 else None


def cores() -> int:
    """Processors this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _prepare_process() -> None:
    """The first thing a process of our own does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides when to stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose main process was killed would otherwise wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
