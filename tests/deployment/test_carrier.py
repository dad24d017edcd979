"""Another carrier than Flower, in one file: the same coordinator and sites run over it, to the same bytes."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deployments import SITES, Deployment, same_results

from fedprognos.deployment.carrier import Presence
from fedprognos.deployment.coordinator import coordinator_service as coordinator
from fedprognos.deployment.coordinator import site_transport
from fedprognos.deployment.coordinator.coordinator_service import deployable
from fedprognos.deployment.processes import ProcessError
from fedprognos.deployment.site import site_service as site
from fedprognos.deployment.site.site_data import read_site_data
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import run
from fedprognos.report import write_report


@dataclass
class Task:
    data: bytes
    carrier: QueueCarrier
    replies: list[bytes] = field(default_factory=list)

    def reply(self, data: bytes) -> None:
        self.replies.append(data)
        self.carrier.at_work.release()


@dataclass
class Inbox:
    carrier: QueueCarrier
    tasks: queue.SimpleQueue[Task] = field(default_factory=queue.SimpleQueue)

    def next(self) -> Task | None:
        self.carrier.check()
        with contextlib.suppress(queue.Empty):
            task = self.tasks.get(timeout=0.02)
            self.carrier.at_work.acquire()  # torch's random numbers are those of the process: one site at a time
            return task
        return None


class QueueCarrier:
    """Coordinator and sites as threads of one process, with queues between them; hub and mailbox in one."""

    def __init__(self) -> None:
        self.inboxes: dict[str, Inbox] = {}
        self.sent: dict[str, Task] = {}
        self.ended, self.at_work = threading.Event(), threading.Lock()

    @contextlib.contextmanager
    def host(self, folder: Path, options: Any, keys: Any) -> Iterator[QueueCarrier]:
        assert sorted(keys) == sorted(options.sites)
        yield self

    @contextlib.contextmanager
    def join(self, folder: Path, options: Any, tell: Any) -> Iterator[Inbox]:
        self.inboxes[options.name] = Inbox(self)
        yield self.inboxes[options.name]

    @contextlib.contextmanager
    def open_run(self, arrival_in_s: float) -> Iterator[QueueCarrier]:
        yield self

    def check(self) -> None:
        if self.ended.is_set():
            raise ProcessError("the test is over")

    def refusals(self) -> list[str]:
        return []

    def presence(self) -> dict[str, Presence]:
        return dict.fromkeys(self.inboxes, Presence(True, None, "once"))

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        ticket = str(len(self.sent))
        self.sent[ticket] = Task(data, self)
        self.inboxes[site].tasks.put(self.sent[ticket])
        return ticket

    def wait(self, longest_in_s: float) -> None:
        time.sleep(0.02)

    def pull(self, ticket: str) -> bytes | None:
        return next(iter(self.sent[ticket].replies), None)


@pytest.mark.long
def test_coordinator_and_sites_run_over_any_carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.02)
    made, carrier, said = Deployment(tmp_path), QueueCarrier(), list[str]()
    _, experiment, base = config.load(made.experiment)
    works: list[Any] = [(coordinator.serve_coordinator, made.coordinator, carrier.host, said.append, write_report)]
    for name in SITES:
        data = read_site_data(name, experiment, base, tmp_path / f"{name}.csv")
        works.append((site.serve_site, made.site[name], carrier.join, data, said.append, write_report))
    threads = [threading.Thread(target=_until_over, args=work) for work in works]
    place = coordinator.submit(made.coordinator, "small", deployable(experiment, said.append))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    while not (place / coordinator.STATE).is_file() and time.monotonic() < deadline:
        time.sleep(0.1)
    status = json.loads((made.coordinator / "status.json").read_text("utf-8"))
    carrier.ended.set()
    for thread in threads:
        thread.join(30)
    assert json.loads((place / coordinator.STATE).read_text("utf-8")) == {"state": "done"}, said
    assert set(status["sites"]) == set(SITES)
    assert not list(tmp_path.rglob("running.lock"))
    same_results(run(made.experiment, out=tmp_path / "alone", workers=1).folder, place)


def _until_over(serve: Any, *arguments: Any) -> None:
    with contextlib.suppress(ProcessError):
        serve(*arguments)
