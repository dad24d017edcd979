"""Worker processes that answer for the clients of a simulated federation, one torch thread each.

A job is the module's function `_answer`: a client's key and an encoded request in, an encoded reply out. Whatever has
the interface of `concurrent.futures.Executor` can run it, and where it runs changes no byte; here that is a
`ProcessPoolExecutor`. The pool breaks as a whole if one process dies. Then a new pool takes over and the jobs under way
are done again.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from pathlib import Path
from typing import Any

from fedprognos.errors import FedprognosError
from fedprognos.federation import Client, ClientFolder
from fedprognos.fleet import Fleet, load_fleet, save_fleet
from fedprognos.networks import Epoch

ATTEMPTS = 3
"""A job is given up when the pool broke so often while it ran: then the job itself is the likely cause."""
LAST_EPOCH_IN_S = 5.0
"""Longest wait for progress that a worker sent before its answer; if it is lost, only a progress bar is wrong."""
OnEpoch = Callable[[str, Epoch], None]


class WorkerLostError(FedprognosError):
    """A worker process died or took too long."""

    code = "worker"


class Workers:
    """Processes that answer for clients; a context manager that leaves no process and no file behind.

    Parameters
    ----------
    fleets
        Name, training fleet and own folder of each client, by a key that is unique in this pool.
    count
        Processes; with 1 the clients live in this process and nothing is started.
    device
        Where networks are trained.
    """

    def __init__(self, fleets: Mapping[str, tuple[str, Fleet, ClientFolder]], count: int, device: str = "auto") -> None:
        self._rows = {key: fleet.rows for key, (_, fleet, _) in fleets.items()}
        self._count = count
        self._closing = threading.Event()
        self._lock, self._training = threading.Lock(), threading.Lock()
        self._pool: _Pool | None = None
        self._here: dict[str, Client] | None = None
        self._store = tempfile.TemporaryDirectory(prefix="fedprognos-clients-")
        if count <= 1:
            self._here = {key: Client(*entry, device=device) for key, entry in fleets.items()}
            return
        index = {}
        for number, (key, (name, fleet, folder)) in enumerate(fleets.items()):
            save_fleet(Path(self._store.name) / f"{number}.npz", fleet)
            bundle = None if folder.bundle is None else str(folder.bundle)
            index[key] = (name, f"{number}.npz", str(folder.folder), bundle)
        (Path(self._store.name) / "index.json").write_text(json.dumps([index, device]), encoding="utf-8")

    def answers(
        self, requests: Mapping[str, bytes], on_epoch: OnEpoch | None = None, timeout_in_s: float | None = None
    ) -> dict[str, bytes | WorkerLostError]:
        """The encoded reply of each client to its encoded request, or why there is none.

        Parameters
        ----------
        timeout_in_s
            Longest time for one answer, counted from when a worker begins with it.
        """
        if self._here is not None:
            return {
                key: self._answer_here(self._here[key], key, request, on_epoch) for key, request in requests.items()
            }
        replies: dict[str, bytes | WorkerLostError] = {}
        attempts = dict.fromkeys(requests, 0)
        while waiting := [key for key in requests if key not in replies]:
            try:
                pool = self._current_pool()
            except WorkerLostError as error:
                return {**dict.fromkeys(requests, error), **replies}
            # The pool takes jobs in order. The longest comes first, so that no worker idles behind it at the end.
            waiting.sort(key=lambda key: (-self._rows[key], key))
            tasks = {key: pool.submit(key, requests[key], on_epoch) for key in waiting}
            for key, task in tasks.items():
                reply = self._reply(pool, task, timeout_in_s)
                if reply is None:
                    attempts[key] += task.started_at is not None and not pool.stopped_for_time
                    if attempts[key] < ATTEMPTS:
                        continue  # done again in the next pool
                    reply = WorkerLostError(
                        f"its worker process died {ATTEMPTS} times",
                        where=key,
                        hint="the system may have killed it for want of memory: use fewer workers",
                    )
                replies[key] = reply
        return replies

    def close(self) -> None:
        """Stop the workers and remove their files; who waits for an answer gets an error."""
        with self._lock:
            self._closing.set()
            if self._pool is not None:
                self._pool.stop()
            self._store.cleanup()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer_here(self, client: Client, key: str, request: bytes, on_epoch: OnEpoch | None) -> bytes:
        def relay(epoch: Epoch) -> None:
            if self._closing.is_set():
                raise WorkerLostError("stopped", where=key)
            if on_epoch is not None:
                on_epoch(key, epoch)

        with self._training:  # jobs are threads, and torch trains one network at a time in this process
            return client.respond(request, relay)

    def _current_pool(self) -> _Pool:
        """The pool in use; a new one in place of a broken one."""
        with self._lock:
            if self._closing.is_set():
                raise WorkerLostError("stopped")
            if self._pool is None or self._pool.broken:
                if self._pool is not None:
                    self._pool.stop()
                self._pool = _Pool(self._store.name, self._count)
            return self._pool

    def _reply(self, pool: _Pool, task: _Task, timeout_in_s: float | None) -> bytes | WorkerLostError | None:
        """The answer, or why there will be none; None where the pool broke and the job is to be done again."""
        while True:
            if task.error is not None:
                raise task.error
            try:
                reply = task.future.result(timeout=0.2)
            except TimeoutError:
                begun = task.started_at
                if timeout_in_s is not None and begun is not None and time.monotonic() > begun + timeout_in_s:
                    # No interface ends a single process of a pool. The others' jobs are done again in a new pool.
                    pool.stopped_for_time = True
                    pool.stop()
                    return WorkerLostError(f"no answer within {timeout_in_s:g} s", where=task.key)
            except (BrokenProcessPool, CancelledError):
                if self._closing.is_set():
                    return WorkerLostError("stopped", where=task.key)
                pool.broken = True
                return None
            else:
                task.ended.wait(LAST_EPOCH_IN_S)
                return reply


@dataclass(eq=False)
class _Task:
    """A request under way."""

    key: str
    on_epoch: OnEpoch | None
    future: Future[bytes]
    ended: threading.Event
    started_at: float | None = None
    error: BaseException | None = None


class _Pool:
    """One generation of worker processes, and the pipe on which they report progress.

    Each generation has its own pipe: a process that is killed while it writes may leave half a message behind.
    """

    def __init__(self, store: str, count: int) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process may inherit torch's locked threads
        self._reader, self._writer = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(count, context, _start_worker, (store, self._writer, context.Lock()))
        self._numbers = itertools.count()
        self._tasks: dict[int, _Task] = {}
        self.broken = self.stopped_for_time = False
        self._stopping = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def submit(self, key: str, request: bytes, on_epoch: OnEpoch | None) -> _Task:
        number = next(self._numbers)
        # The task is known before the job runs, so that no progress can come too early.
        task = self._tasks[number] = _Task(key, on_epoch, Future(), threading.Event())
        try:
            task.future = self._executor.submit(_answer, number, key, request)
        except (BrokenProcessPool, RuntimeError):  # it broke or was stopped a moment ago
            task.future.cancel()
        return task

    def stop(self) -> None:
        """End all processes now, also those that are training."""
        self.broken = True
        self._stopping.set()
        processes = self._executor._processes or {}  # `kill_workers` does this from Python 3.14 on
        for process in list(processes.values()):
            process.kill()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._writer.close()

    def _listen(self) -> None:
        """Hand progress to whoever waits for it."""
        while not self._stopping.is_set():
            try:
                if not self._reader.poll(0.1):
                    continue
                number, what, facts = json.loads(self._reader.recv_bytes())
            except (EOFError, OSError):
                return
            task = self._tasks[number]
            if what == "start":
                task.started_at = time.monotonic()
            elif what == "epoch" and task.on_epoch is not None:
                try:
                    task.on_epoch(task.key, Epoch(**facts))
                except BaseException as error:  # the thread that waits for the answer raises it
                    task.error = error
            elif what == "end":
                del self._tasks[number]
                task.ended.set()


class _Worker:
    """What one worker process holds: its clients, loaded when first asked for, once."""

    def __init__(self, store: str, progress: Connection, lock: Lock) -> None:
        self._store, self._progress, self._lock = Path(store), progress, lock
        self._index, self._device = json.loads((self._store / "index.json").read_text("utf-8"))
        self._clients: dict[str, Client] = {}

    def client(self, key: str) -> Client:
        if key not in self._clients:
            name, file, folder, bundle = self._index[key]
            own_folder = ClientFolder(Path(folder), None if bundle is None else Path(bundle))
            self._clients[key] = Client(name, load_fleet(self._store / file), own_folder, device=self._device)
        return self._clients[key]

    def report(self, number: int, what: str, facts: dict[str, Any] | None = None) -> None:
        with self._lock:
            self._progress.send_bytes(json.dumps([number, what, facts]).encode())


_worker: _Worker | None = None
"""Set in worker processes only."""


def _start_worker(store: str, progress: Connection, lock: Lock) -> None:
    """Prepare a worker process."""
    import torch

    global _worker  # noqa: PLW0603 - an executor's jobs can reach what its initializer made in no other way
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides when to stop
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = _Worker(store, progress, lock)


def _end_with_parent() -> None:
    """A worker whose main process was killed would otherwise wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer(number: int, key: str, request: bytes) -> bytes:
    """Answer one request for one client, in a worker process."""
    worker = _worker
    if worker is None:
        raise WorkerLostError("the worker process was not prepared", where=key)
    client = worker.client(key)
    worker.report(number, "start")  # loading the data is not the client's time
    reply = client.respond(request, lambda epoch: worker.report(number, "epoch", asdict(epoch)))
    worker.report(number, "end")
    return reply


def cores() -> int:
    """Processors this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
