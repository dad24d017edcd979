"""Processes that stand still for longer than Flower waits: the run goes on by itself, with the same bytes.

FEDPROGNOS_PAUSE_IN_S=600 python -m pytest -m soak tests/deployment/test_pauses.py
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest
from deployments import PATIENCE_IN_S, SITES, Deployment, deployment

PAUSE_IN_S = float(os.environ.get("FEDPROGNOS_PAUSE_IN_S", "75"))
"""More than the 60 s after which Flower gives up a task whose heartbeat it misses; a node is missed after 20 s."""
SLOW = ("federation.methods=['fedavg']", "federation.fedavg={rounds=3, epochs=40}", "federation.mode='checked'")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment(tmp_path_factory.mktemp("pauses")) as started:
        started.start_coordinator()
        for name in SITES:
            started.start_site(name)
        started.wait_for_sites(*SITES)
        yield started


@pytest.fixture(scope="module")
def expected(federation: Deployment) -> bytes:
    """The weights of a run that nothing disturbed."""
    return (federation.in_process(*SLOW) / "bundle" / "weights.safetensors").read_bytes()


@pytest.mark.soak
@pytest.mark.parametrize(
    "paused",
    [
        ("plant-b",),
        ("coordinator",),
        ("plant-b", "coordinator"),
        ("plant-b", "plant-c"),
        ("coordinator/superlink",),
        ("plant-b", "coordinator/superlink"),
    ],
    ids="+".join,
)
def test_a_run_whose_processes_stand_still_goes_on_by_itself(
    federation: Deployment, expected: bytes, paused: tuple[str, ...]
) -> None:
    name = "+".join(paused).replace("/", "-")
    place, said_before = federation.coordinator / "runs" / name, len(federation.said("plant-b"))
    federation.submit(*SLOW, name=name)
    federation.wait(lambda: "training: round 2" in federation.said("plant-b")[said_before:])
    processes = [process_of(federation, one) for one in paused]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE_IN_S)
    for process in processes:
        process.send_signal(signal.SIGCONT)
    federation.wait((place / "state.json").is_file, PATIENCE_IN_S)
    assert json.loads((place / "state.json").read_text()) == {"state": "done"}, federation.said("coordinator")
    for bundle in (place, *(federation.site[site] / "results" / name for site in SITES)):
        assert (bundle / "bundle" / "weights.safetensors").read_bytes() == expected


def process_of(federation: Deployment, name: str) -> psutil.Process:
    """A coordinator or site, or with `/NAME` the child of it that has this word in its command."""
    owner, _, child = name.partition("/")
    process = psutil.Process(federation.processes[owner].pid)
    if not child:
        return process
    with contextlib.suppress(psutil.Error):
        for candidate in process.children():
            if any(child in word for word in candidate.cmdline()):
                return candidate
    raise AssertionError(name)
