"""Worker processes that hold the clients of a simulated federation, one torch thread each.

One coordinator thread serves each worker: it takes the longest job waiting, sends it, relays progress and
hands back the answer. A worker that dies or overruns its time is replaced; only its job is lost.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedprognos.errors import FedprognosError
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.fleet import Fleet
from fedprognos.fleet.store import load_fleet, save_fleet
from fedprognos.networks import Epoch

EVENT, ANSWER, READY = b"E", b"A", b"R"
START_IN_S = 300.0
"""Longest wait for a worker process to come up; a busy machine imports torch slowly."""
OnEpoch = Callable[[str, Epoch], None]


class WorkerLostError(FedprognosError):
    """A worker process died or took too long."""

    code = "worker"


@dataclass(order=True)
class _Job:
    rank: tuple[float, int]
    client: str = field(compare=False)
    request: bytes = field(compare=False)
    on_epoch: OnEpoch | None = field(compare=False)
    timeout_in_s: float | None = field(compare=False)
    future: Future[bytes] = field(compare=False)


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
        self._sizes = {key: float(fleet.rows) for key, (_, fleet, _) in fleets.items()}
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._order = itertools.count()
        self._closing = threading.Event()
        self._lock, self._training = threading.Lock(), threading.Lock()
        self._here: dict[str, Client] | None = None
        self._threads: list[threading.Thread] = []
        self._store = tempfile.TemporaryDirectory(prefix="fedprognos-clients-")
        if count <= 1:
            self._here = {key: Client(*entry, device=device) for key, entry in fleets.items()}
            return
        for number, (_, fleet, _) in enumerate(fleets.values()):
            save_fleet(Path(self._store.name) / f"{number}.npz", fleet)
        index = {
            key: (name, f"{number}.npz", str(own.folder), None if own.bundle is None else str(own.bundle))
            for number, (key, (name, _, own)) in enumerate(fleets.items())
        }
        (Path(self._store.name) / "index.json").write_text(json.dumps([index, device]), encoding="utf-8")
        for _ in range(count):
            thread = threading.Thread(target=self._serve, daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(
        self, client: str, request: bytes, on_epoch: OnEpoch | None = None, timeout_in_s: float | None = None
    ) -> Future[bytes]:
        """Queue an encoded request; the future gives the encoded reply or failure."""
        future: Future[bytes] = Future()
        if self._here is not None:

            def relay(epoch: Epoch) -> None:
                if self._closing.is_set():
                    raise WorkerLostError("stopped", where=client)
                if on_epoch is not None:
                    on_epoch(client, epoch)

            with self._training:
                future.set_result(self._here[client].respond(request, relay))
            return future
        rank = (-self._sizes[client], next(self._order))
        with self._lock:  # nothing may be queued once closing has begun: nobody would answer it
            if self._closing.is_set():
                future.set_exception(WorkerLostError("stopped", where=client))
            else:
                self._jobs.put(_Job(rank, client, request, on_epoch, timeout_in_s, future))
        return future

    def close(self) -> None:
        """Stop the workers and remove their files."""
        with self._lock:
            self._closing.set()
        for thread in self._threads:
            thread.join()
        while True:  # nobody may wait for an answer that will not come
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            job.future.set_exception(WorkerLostError("stopped", where=job.client))
        self._store.cleanup()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        worker: _Process | None = None
        try:
            while not self._closing.is_set():
                try:
                    job = self._jobs.get(timeout=0.1)
                except queue.Empty:
                    continue
                try:
                    worker = worker or _Process(self._store.name)
                    job.future.set_result(worker.run(job, self._closing))
                except Exception as error:
                    if worker is not None:
                        worker.stop()
                        worker = None
                    job.future.set_exception(error)
        finally:
            if worker is not None:
                worker.stop()


class _Process:
    """One worker process and the pipe to it."""

    def __init__(self, store: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, store), daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False

    def run(self, job: _Job, closing: threading.Event) -> bytes:
        try:
            self._wait_until_ready(closing, job.client)
            deadline = None if job.timeout_in_s is None else time.monotonic() + job.timeout_in_s
            self.pipe.send_bytes(job.client.encode() + b"\0" + job.request)
            while True:
                ready = self.pipe.poll(0.1)
                if closing.is_set():
                    raise WorkerLostError("stopped", where=job.client)
                if deadline is not None and time.monotonic() > deadline:
                    raise WorkerLostError(f"no answer within {job.timeout_in_s:g} s", where=job.client)
                if not ready:
                    continue
                frame = self.pipe.recv_bytes()
                if frame[:1] == ANSWER:
                    return frame[1:]
                if job.on_epoch is not None:
                    job.on_epoch(job.client, Epoch(**json.loads(frame[1:])))
        except (EOFError, OSError) as error:
            self.process.join(1.0)
            code = self.process.exitcode
            raise WorkerLostError(
                f"its worker process died (exit code {code})",
                where=job.client,
                hint="killed by the system for want of memory? Use fewer workers",
            ) from error

    def _wait_until_ready(self, closing: threading.Event, client: str) -> None:
        """Starting up is not the client's time."""
        deadline = time.monotonic() + START_IN_S
        while not self.ready:
            if closing.is_set() or time.monotonic() > deadline:
                raise WorkerLostError("its worker process did not start", where=client)
            if self.pipe.poll(0.1):
                self.ready = self.pipe.recv_bytes() == READY

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join(5.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _work(pipe: Connection, store: str) -> None:
    """Main loop of a worker process: fleets are loaded when first asked for, once."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides when to stop
    torch.set_num_threads(1)
    index, device = json.loads((Path(store) / "index.json").read_text("utf-8"))
    clients: dict[str, Client] = {}

    def relay(epoch: Epoch) -> None:
        pipe.send_bytes(EVENT + json.dumps(asdict(epoch)).encode())

    pipe.send_bytes(READY)
    while True:
        try:
            header, _, request = pipe.recv_bytes().partition(b"\0")
        except (EOFError, OSError):
            os._exit(0)
        key = header.decode()
        if key not in clients:
            name, file, folder, bundle = index[key]
            own = ClientFolder(Path(folder), None if bundle is None else Path(bundle))
            clients[key] = Client(name, load_fleet(Path(store) / file), own, device=device)
        pipe.send_bytes(ANSWER + clients[key].respond(request, relay))


def cores() -> int:
    """Processors this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
