"""Answers of the clients of a simulated federation, by whatever engine runs jobs.

A job is the module's function `_answer`: a client's key and an encoded request in, an encoded reply and the processor
time it took out. It reads the client's data from the store, a folder that the engine's workers see, and writes its
progress there. So an engine needs nothing but the interface of `concurrent.futures.Executor`, and where a job runs
changes no byte.

An executor may break as a whole if one process dies. Then a new one takes over and the jobs under way are done again.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedprognos.errors import FedprognosError
from fedprognos.experiment.engines import Engine
from fedprognos.federation import Client, ClientFolder
from fedprognos.files import AddedLines
from fedprognos.fleet import Fleet, load_fleet, save_fleet
from fedprognos.networks import Epoch, one_torch_thread

ATTEMPTS = 3
"""A job is given up when its worker died so often: then the job itself is the likely cause."""
POLL_IN_S = 0.2
PREFIX = "fedprognos-clients-"
OnEpoch = Callable[[str, Epoch], None]


class WorkerLostError(FedprognosError):
    """A worker process died or took too long."""

    code = "worker"


class Workers:
    """Whoever answers for clients; a context manager that leaves no process and no file behind.

    Parameters
    ----------
    fleets
        Name, training fleet and own folder of each client, by a key that is unique here.
    engine
        Where clients answer; None: in this process, and nothing is started.
    device
        Where networks are trained.
    place
        A folder that other machines see, for engines that need one.
    """

    def __init__(
        self,
        fleets: Mapping[str, tuple[str, Fleet, ClientFolder]],
        engine: Engine | None,
        device: str = "auto",
        place: Path | None = None,
    ) -> None:
        self._rows = {key: fleet.rows for key, (_, fleet, _) in fleets.items()}
        self._engine = engine
        self._closing = threading.Event()
        self._lock, self._training = threading.Lock(), threading.Lock()
        self._processor_seconds = dict.fromkeys(fleets, 0.0)
        self._pool: _Pool | None = None
        self._here: dict[str, Client] | None = None
        if engine is None:
            self._here = {key: Client(*entry, device=device) for key, entry in fleets.items()}
            return
        if engine.shares_folder and place is not None:
            for left_by_a_killed_run in place.glob(f"{PREFIX}*"):
                shutil.rmtree(left_by_a_killed_run, ignore_errors=True)
            place = place.resolve()
        else:
            place = None
        self._store = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._numbers = itertools.count()
        self._progress = _Progress(self._store)
        index = {}
        for number, (key, (name, fleet, folder)) in enumerate(fleets.items()):
            save_fleet(self._store / f"{number}", fleet)
            bundle = None if folder.bundle is None else str(folder.bundle.resolve())
            index[key] = (name, f"{number}", str(folder.folder.resolve()), bundle)
        (self._store / "index.json").write_text(json.dumps([index, device]), encoding="utf-8")

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
            # Jobs are taken in order. The longest comes first, so that no worker idles behind it at the end.
            waiting.sort(key=lambda key: (-self._rows[key], key))
            tasks = {key: self._submit(pool, key, requests[key], on_epoch) for key in waiting}
            for key, task in tasks.items():
                reply = self._reply(pool, task, timeout_in_s)
                del self._progress.tasks[task.number]
                if reply is None:
                    attempts[key] += task.started_at is not None and not pool.stopped_for_time
                    if attempts[key] < ATTEMPTS:
                        continue  # done again by the next executor
                    reply = WorkerLostError(
                        f"its worker process died {ATTEMPTS} times",
                        where=key,
                        hint="the system may have killed it for want of memory: use fewer workers",
                    )
                if isinstance(reply, tuple):
                    replies[key], seconds = reply
                    self._processor_seconds[key] += seconds
                else:
                    replies[key] = reply
        return replies

    def seconds_if_idle(self) -> float:
        """How long all answers so far take on a machine with nothing else to do: processor time side by side."""
        spent = self._processor_seconds.values()
        return max(*spent, sum(spent) / (1 if self._engine is None else self._engine.jobs))

    def close(self) -> None:
        """Stop the workers and remove their files; who waits for an answer gets an error."""
        with self._lock:
            self._closing.set()
            if self._pool is not None:
                self._pool.stop()
            if self._here is None:
                shutil.rmtree(self._store, ignore_errors=True)

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
            began = time.thread_time()
            reply = client.respond(request, relay)
            self._processor_seconds[key] += time.thread_time() - began
            return reply

    def _current_pool(self) -> _Pool:
        """The executor in use; a new one in place of a broken one."""
        with self._lock:
            if self._closing.is_set() or self._engine is None:
                raise WorkerLostError("stopped")
            if self._pool is None or self._pool.broken:
                if self._pool is not None:
                    self._pool.stop()
                self._pool = _Pool(self._engine, self._engine.start())
            return self._pool

    def _submit(self, pool: _Pool, key: str, request: bytes, on_epoch: OnEpoch | None) -> _Task:
        number = next(self._numbers)
        # The task is known before the job runs, so that no progress can come too early.
        task = self._progress.tasks[number] = _Task(number, key, on_epoch, Future())
        try:
            task.future = pool.executor.submit(_answer, str(self._store), number, key, request)
        except RuntimeError:  # it broke or was stopped a moment ago; a broken executor is one, too
            task.future.cancel()
        return task

    def _reply(
        self, pool: _Pool, task: _Task, timeout_in_s: float | None
    ) -> tuple[bytes, float] | WorkerLostError | None:
        """What `_answer` gave, or why it gives none; None where its worker died and the job is to be done again."""
        while True:
            try:
                reply = task.future.result(timeout=POLL_IN_S)
            except TimeoutError:
                self._progress.read()
                if task.error is not None:
                    raise task.error from None
                begun = task.started_at
                if timeout_in_s is not None and begun is not None and time.monotonic() > begun + timeout_in_s:
                    # No interface ends a single running job. The others' jobs are done again by a new executor.
                    pool.stopped_for_time = True
                    pool.stop()
                    return WorkerLostError(f"no answer within {timeout_in_s:g} s", where=task.key)
                if not pool.stopped:
                    continue
                # Not every executor wakes those who wait when it is stopped.
                return WorkerLostError("stopped", where=task.key) if self._closing.is_set() else None
            except pool.engine.lost:
                if self._closing.is_set():
                    return WorkerLostError("stopped", where=task.key)
                self._progress.read()  # whether the job had begun
                pool.broken = True
                return None
            except FileNotFoundError as error:
                return WorkerLostError(
                    f"its worker does not see {error.filename}",
                    where=task.key,
                    hint="give --out a folder that every worker of the cluster sees under the same path",
                )
            self._progress.read()
            if task.error is not None:
                raise task.error
            return reply


@dataclass(eq=False)
class _Task:
    """A request under way."""

    number: int
    key: str
    on_epoch: OnEpoch | None
    future: Future[tuple[bytes, float]]
    started_at: float | None = None
    error: BaseException | None = None


@dataclass(eq=False)
class _Pool:
    """One executor of the engine, until it breaks."""

    engine: Engine
    executor: Executor
    broken: bool = False
    stopped: bool = False
    stopped_for_time: bool = False

    def stop(self) -> None:
        if not self.stopped:
            self.broken = self.stopped = True
            self.engine.stop(self.executor)


class _Progress:
    """What jobs report: each worker process appends lines of JSON to a file of its own in the store.

    A process that is killed while it writes leaves half a line in its own file, which nobody reads.
    """

    def __init__(self, store: Path) -> None:
        self.tasks: dict[int, _Task] = {}
        self._folder = store / "progress"
        self._folder.mkdir()
        self._files: dict[Path, AddedLines] = {}
        self._lock = threading.Lock()

    def read(self) -> None:
        """Hand the news to whoever waits for it."""
        with self._lock:
            for path in sorted(self._folder.glob("*.jsonl")):
                for line in self._files.setdefault(path, AddedLines(path)).read():
                    self._tell(line["job"], line["epoch"])

    def _tell(self, number: int, facts: dict[str, Any] | None) -> None:
        task = self.tasks.get(number)
        if task is None:
            return
        if facts is None:
            task.started_at = time.monotonic()
        elif task.on_epoch is not None:
            try:
                task.on_epoch(task.key, Epoch(**facts))
            except BaseException as error:  # the thread that waits for the answer raises it
                task.error = error


class _Worker:
    """What a worker process holds of one store: its clients, loaded when first asked for, once."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._index, self._device = json.loads((store / "index.json").read_text("utf-8"))
        self._clients: dict[str, Client] = {}
        self._progress = store / "progress" / f"{socket.gethostname()}-{os.getpid()}.jsonl"
        self.training = threading.Lock()

    def client(self, key: str) -> Client:
        if key not in self._clients:
            name, file, folder, bundle = self._index[key]
            own_folder = ClientFolder(Path(folder), None if bundle is None else Path(bundle))
            self._clients[key] = Client(name, load_fleet(self._store / file), own_folder, device=self._device)
        return self._clients[key]

    def report(self, number: int, facts: dict[str, Any] | None = None) -> None:
        """Append a line. It fails when the run is over and its store is gone: that ends a forgotten job."""
        with self._progress.open("ab", buffering=0) as file:
            file.write(json.dumps({"job": number, "epoch": facts}).encode() + b"\n")


@lru_cache(maxsize=1)
def _worker(store: str) -> _Worker:
    """The clients of the run that this process works for; those of an earlier run are let go."""
    return _Worker(Path(store))


def _answer(store: str, number: int, key: str, request: bytes) -> tuple[bytes, float]:
    """Answer one request for one client, wherever the engine runs jobs; with the processor seconds it took."""
    worker = _worker(store)
    with worker.training, one_torch_thread():  # torch trains one network at a time in a process
        client = worker.client(key)
        worker.report(number)  # loading the data is not the client's time
        began = time.thread_time()
        reply = client.respond(request, lambda epoch: worker.report(number, asdict(epoch)))
        return reply, time.thread_time() - began
