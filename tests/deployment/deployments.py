"""Real federations on loopback for tests: every process is started here, and ended here whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import tomli_w

from fedprognos.deployment.folders import make_deployment
from fedprognos.deployment.site.approvals import Approvals
from fedprognos.evaluation import Results
from fedprognos.evaluation.metrics import metrics
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Fleet, synthetic

SITES = ("plant-a", "plant-b", "plant-c")
DEPLOYED = [name for name, strategy in strategies.items() if not strategy.pooled]
PATIENCE_IN_S = 1200.0
"""The longest that anything may take on a machine with other work to do; every wait ends when its condition holds."""
HOSTILE = Path(__file__).with_name("hostile_site.py")
EXPERIMENT = """
[data]
kind = "table"
path = "pooled.csv"
unit = "unit"
time = "cycle"
site = "site"
settings = ["altitude_in_kft", "mach"]
test_fraction = 0.34
[partition]
by = "column"
column = "site"
[recipe]
window = 20
stride = 4
cap = 125
short = "pad"
conditions = { altitude_in_kft = 0, mach = 2 }
[model]
widths = [6]
[train]
epochs = 1
[federation]
methods = ["fedma"]
heads = ["exact"]
mode = "checked"
[evaluation]
seeds = 1
bootstrap = 0
baselines = []
intervals = "none"
"""
CONSENT: dict[str, Any] = {"min_units": 1, "max_leverage": 1.0, "splits": "public"}
"""Fleets of six units: their owners consent to sums of so few, and to parts as in one process."""


def table(fleet: Fleet, site: str = "") -> pd.DataFrame:
    """A fleet as its owner would keep it; units that name no owner belong to `site`."""
    frames = []
    for unit in fleet:
        frame = pd.DataFrame(unit.sensors, columns=list(fleet.schema.sensors))
        frame[list(fleet.schema.settings)] = unit.settings
        frame.insert(0, "unit", unit.id)
        frame.insert(1, "cycle", unit.time)
        frame["site"] = unit.attributes.get("site", site)
        frames.append(frame)
    return pd.concat(frames)


def free_port() -> int:
    """A free port on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """A coordinator and sites in folders of their own below `folder`; the table's `site` column deals out the rows."""

    def __init__(
        self,
        folder: Path,
        sites: tuple[str, ...] = SITES,
        units: int = 6,
        experiment: str = EXPERIMENT,
        frame: pd.DataFrame | None = None,
        settings: Mapping[str, Any] = CONSENT,
    ) -> None:
        self.folder, self.sites, self.port = folder, sites, free_port()
        self.experiment = folder / "small.toml"
        self.experiment.write_text(experiment, encoding="utf-8")
        if frame is None:
            fleet, _ = synthetic.synthetic_engines(sites=3, units_per_site=units, test_units_per_site=1, seed=0)
            frame = table(fleet)
        frame.to_csv(folder / "pooled.csv", index=False)
        for name, rows in frame.groupby("site"):
            rows.to_csv(folder / f"{name}.csv", index=False)
        self.coordinator, self.site = make_deployment(
            folder / "deployment", sites, "localhost", self.port, "127.0.0.1", self.experiment
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for place in self.site.values():
            path = place / "settings.toml"
            path.write_text(tomli_w.dumps({**tomllib.loads(path.read_text()), **settings}))
        self.ended = threading.Event()
        threading.Thread(target=self._approve, daemon=True).start()

    def _approve(self) -> None:
        """Every site's engineer approves whatever contract comes."""
        while not self.ended.wait(0.2):
            for place in self.site.values():
                approvals = Approvals(place)
                for entry in approvals.entries():
                    if entry.state == "waiting":
                        approvals.approve(entry.contract.digest)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own; what it prints goes to NAME.out."""
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.folder, start_new_session=True)
        self.processes[name] = process
        return process

    def start_coordinator(self, grace_in_s: float = 2.0) -> None:
        settings = self.coordinator / "settings.toml"
        settings.write_text(tomli_w.dumps({**tomllib.loads(settings.read_text()), "grace_in_s": grace_in_s}))
        self.start("coordinator", *FEDPROGNOS, "deploy", "coordinator", str(self.coordinator))

    def start_site(self, name: str, *more: str) -> None:
        data = ("--data", str(self.folder / f"{name}.csv"))
        self.start_command(name, "deploy", "site", str(self.site[name]), *data, *more)

    def start_command(self, name: str, *words: str) -> None:
        self.start(name, *FEDPROGNOS, *words)

    def start_hostile(self, name: str, how: str) -> None:
        data = str(self.folder / f"{name}.csv")
        self.start(name, sys.executable, str(HOSTILE), str(self.site[name]), data, str(self.experiment), how)

    def run(
        self, *overrides: str, name: str = "small", source: str = "", timeout_in_s: float = PATIENCE_IN_S
    ) -> subprocess.CompletedProcess[str]:
        changes = [word for change in overrides for word in ("--set", change)]
        what = [source or str(self.experiment), "--dir", str(self.coordinator), "--name", name]
        command = [*FEDPROGNOS, "deploy", "run", *what, *changes]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=timeout_in_s, check=False
        )

    def submit(self, *overrides: str, name: str = "small") -> None:
        changes = [word for change in overrides for word in ("--set", change)]
        what = [str(self.experiment), "--dir", str(self.coordinator), "--name", name, "--no-wait"]
        command = [*FEDPROGNOS, "deploy", "run", *what, *changes]
        subprocess.run(command, cwd=self.folder, check=True, timeout=PATIENCE_IN_S, capture_output=True)

    @property
    def results(self) -> Path:
        return self.coordinator / "runs" / "small"

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text("utf-8", "replace")

    def wait(self, what: Callable[[], bool], timeout_in_s: float = PATIENCE_IN_S) -> None:
        deadline = time.monotonic() + timeout_in_s
        while not what():
            assert time.monotonic() < deadline, {name: self.said(name)[-1500:] for name in self.processes}
            time.sleep(0.2)

    def wait_for_sites(self, *names: str) -> None:
        """Until the coordinator sees them."""
        self.wait(lambda: all(map(self.online, names)))

    def online(self, name: str) -> bool:
        """Whether the coordinator sees a site."""
        with contextlib.suppress(OSError, ValueError):
            known = json.loads((self.coordinator / "status.json").read_text("utf-8"))["sites"]
            return bool(known.get(name, {}).get("online"))
        return False

    def kill(self, name: str) -> None:
        """As a power cut would: the process itself gets no word; its children must notice by themselves."""
        self.processes[name].kill()
        self.processes[name].wait(PATIENCE_IN_S)

    def in_process(self, *overrides: str, name: str = "small", source: str = "") -> Path:
        """The same experiment in one process, for comparison; its folder."""
        out = self.folder / "in-process" / name
        changes = [word for change in overrides for word in ("--set", change)]
        what = [source or str(self.experiment), "--out", str(out)]
        command = [*FEDPROGNOS, "run", *what, "--workers", "1", "-q", *changes]
        subprocess.run(command, check=True, timeout=PATIENCE_IN_S, cwd=self.folder)
        return out

    def compare(self, alone: Path, name: str = "small") -> None:
        same_results(alone, self.coordinator / "runs" / name)

    def left_over(self) -> list[str]:
        """Processes that still belong to this deployment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(str(self.folder) in word for word in process.cmdline()):
                    found.append(" ".join(process.cmdline()))
        return found

    def end(self) -> None:
        self.ended.set()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(120)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_IN_S)


def same_results(alone: Path, deployed: Path) -> None:
    """Hold a run to the same one in one process: every bundle to the bit, every score but for the last digits."""
    expected = {p.relative_to(alone): p.read_bytes() for p in alone.rglob("weights.safetensors")}
    assert expected
    found = {p.relative_to(deployed): p.read_bytes() for p in deployed.rglob("weights.safetensors")}
    assert found == expected
    theirs, ours = (Results.load(folder / "results.json") for folder in (alone, deployed))
    rows = [row for row in theirs.rows if row.method != "mean-of-locals"]
    assert len(ours.rows) == len(rows)
    for mine, other in zip(ours.rows, rows, strict=True):
        assert mine.scored_on == "test"
        for key, value in other.model_dump().items():
            same = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
            found = mine.model_dump()[key]
            assert found == (same if key not in ONE_BY_ONE else None), (mine.method, mine.test_client, key)
    epochs = [row for row in theirs.history if row.epoch is not None]
    assert [row for row in ours.history if row.epoch is not None] == epochs


ONE_BY_ONE = ("rmse_low", "rmse_high", *(name for name, metric in metrics.items() if not metric.sums))
"""Scores that need test units one by one, so that no site sends them."""
FEDPROGNOS = (sys.executable, "-m", "fedprognos")


@contextlib.contextmanager
def deployment(folder: Path, sites: tuple[str, ...] = SITES, units: int = 6, **more: Any) -> Iterator[Deployment]:
    """A deployment that leaves nothing behind."""
    made = Deployment(folder, sites, units, **more)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(made.coordinator / "flower", ignore_errors=True)
