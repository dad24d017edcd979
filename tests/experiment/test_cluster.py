"""Clients that answer on a Dask cluster: the same bytes, also when a worker is killed half-way."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedprognos.errors import ConfigError
from fedprognos.experiment import run
from fedprognos.experiment.engines import DaskCluster
from fedprognos.experiment.run_events import EpochDone, Event, Notice
from refusals import refuses

SMALL = (
    "search=0",
    "data.sites=2",
    "data.units_per_site=4",
    "data.test_units_per_site=2",
    "train.steps=60",
    "evaluation.seeds=1",
    "evaluation.intervals=none",
    "evaluation.refit=false",
    "federation.methods=['local', 'fedavg', 'absorb']",
)
distributed = pytest.importorskip("distributed")


def _scores(folder: Path) -> list[dict[str, object]]:
    from fedprognos import Results

    return [row.model_dump() for row in Results.load(folder / "results.json").rows]


def _weights(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob("bundles/**/*.safetensors"))}


@pytest.fixture
def address() -> Iterator[str]:
    """A scheduler of its own process, without workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*command, "--dashboard-address", "127.0.0.1:0"], stderr=subprocess.DEVNULL)
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _worker(address: str, place: Path) -> subprocess.Popen[bytes]:
    place.mkdir()
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
    return subprocess.Popen([*command, "--local-directory", str(place)], cwd=place, stderr=subprocess.DEVNULL)


@pytest.mark.soak
def test_a_cluster_gives_the_same_bytes_though_a_worker_is_killed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = run("demo", out=tmp_path / "here", overrides=SMALL, workers=1)
    with ExitStack() as stack:
        workers = [_worker(address, tmp_path / f"worker-{k}") for k in range(2)]
        for process in workers:
            stack.callback(process.wait)
            stack.callback(process.kill)
        _until_there_are(2, address)
        events: list[Event] = []

        def watch(event: Event) -> None:
            events.append(event)
            clients = {e.client for e in events if isinstance(e, EpochDone)}
            if len(clients) == 2 and workers[0].poll() is None:  # both workers have trained
                workers[0].kill()

        there = run("demo", out="there", overrides=SMALL, cluster=address, observers=[watch])  # a relative folder
        assert workers[0].wait(60) != 0
    assert any("http://" in e.text for e in events if isinstance(e, Notice))  # the dashboard
    assert _scores(there.folder) == _scores(here.folder)
    assert _weights(there.folder) == _weights(here.folder)
    assert not list(there.folder.glob("fedprognos-clients-*"))


def _until_there_are(workers: int, address: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with distributed.Client(address, timeout=5, set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=30)
                return
        except (OSError, TimeoutError):
            time.sleep(0.5)
    raise TimeoutError(address)


@pytest.mark.long
def test_a_local_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    few = (*SMALL, "train.steps=20", "federation.methods=['local', 'fedavg']")
    here = run("demo", out=tmp_path / "here", overrides=few, workers=1)
    there = run("demo", out=tmp_path / "there", overrides=few, workers=2, cluster="local")
    assert _scores(there.folder) == _scores(here.folder)
    assert _weights(there.folder) == _weights(here.folder)


def test_an_address_where_nobody_listens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprognos.experiment.engines.CONNECT_IN_S", 1)
    with refuses(ConfigError, "tcp://127.0.0.1:9"):
        DaskCluster("tcp://127.0.0.1:9", 1)
