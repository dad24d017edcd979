"""The coordinator's queue: a run that waits for a missing site can be cancelled, and nothing in it ends the process."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deployments import Deployment
from test_carrier import QueueCarrier

from fedprognos.deployment.coordinator import coordinator_service as coordinator
from fedprognos.deployment.processes import ProcessError
from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.report import write_report
from refusals import refuses


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def coordinator_without_sites(made: Deployment, said: list[str]) -> Iterator[None]:
    carrier = QueueCarrier()

    def serve() -> None:
        with contextlib.suppress(ProcessError):
            coordinator.serve_coordinator(made.coordinator, carrier.host, said.append, write_report)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        carrier.ended.set()
        thread.join(30)


def state_of(place: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, str] = json.loads((place / coordinator.STATE).read_text("utf-8"))
        return found
    return {}


def test_a_run_that_waits_for_a_missing_site_can_be_cancelled_and_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "STATUS_IN_S", 0.05)
    made, said = Deployment(tmp_path), list[str]()
    _, experiment, _ = config.load(made.experiment)
    (made.coordinator / coordinator.QUEUE).mkdir()
    (made.coordinator / coordinator.QUEUE / "broken.json").write_text("[" * 100_000)
    first = coordinator.submit(made.coordinator, "first", experiment)
    with coordinator_without_sites(made, said):
        wait_for(lambda: any("first: 0 of 3 sites" in text for text in said))
        second = coordinator.submit(made.coordinator, "second", experiment)
        coordinator.cancel(made.coordinator, "first")
        wait_for(lambda: any("second: 0 of 3 sites" in text for text in said))
        assert state_of(first)["state"] == "cancelled"
        with refuses(ConfigError, "third"):
            coordinator.cancel(made.coordinator, "third")
        coordinator.cancel(made.coordinator, "second")
        wait_for(lambda: any(text == "second: cancelled" for text in said))
        assert not list((made.coordinator / coordinator.QUEUE).glob("*.json"))
        again = coordinator.submit(made.coordinator, "first", experiment)
        assert state_of(again) == {}  # it is queued anew
        wait_for(lambda: sum("first: 0 of 3 sites" in text for text in said) == 2)
    assert any(".damaged" in text for text in said)
    assert state_of(second)["state"] == "cancelled"
