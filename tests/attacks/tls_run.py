"""The same small run with sites that are processes of their own, with their default settings, reached over TLS.

The coordinator's place is taken by the test: it has the keys of a real one, and does with them what it likes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import tomli_w
from deployments import Deployment, deployment, table
from small_run import NAMES, SmallRun, WatchedMailbox, experiment_of, fleet_of

from fedprognos.deployment import keys
from fedprognos.deployment.carrier import Hub, Mailbox
from fedprognos.deployment.coordinator.site_transport import ABSENT_IN_S
from fedprognos.deployment.flower.superlink import host
from fedprognos.deployment.folders import CoordinatorOptions, public_key_file, read_options

UNITS = 28
"""Of a site; with a quarter kept for the test and three tenths of the rest for validation, enough for every floor."""
DATA = {
    **{"kind": "table", "path": "pooled.csv", "unit": "unit", "time": "cycle", "site": "site"},
    "settings": ["altitude", "mach"],
}
PATIENCE_IN_S = 300.0


@dataclass
class TlsWorld:
    """Site processes that wait for whoever has the coordinator's keys."""

    federation: Deployment
    hub: Hub

    @contextlib.contextmanager
    def run(self, folder: Path, **options: Any) -> Iterator[TlsRun]:
        """A run of the hostile coordinator's with these sites."""
        folder.mkdir(parents=True)
        with self.hub.open_run(60.0) as mailbox:
            yield TlsRun(folder, **options, name=folder.name, absent_in_s=ABSENT_IN_S, world=self, way=mailbox)

    def most_memory_in_mb(self, name: str) -> float:
        """What a site's process has taken at most so far."""
        status = Path(f"/proc/{self.federation.processes[name].pid}/status").read_text("ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def alive(self, name: str) -> bool:
        return psutil.pid_exists(self.federation.processes[name].pid)


@dataclass
class TlsRun(SmallRun):
    """A run with the sites of a :class:`TlsWorld`."""

    world: TlsWorld = None  # type: ignore[assignment]
    way: Mailbox = None  # type: ignore[assignment]

    def _open(self) -> None:
        self.mailbox = WatchedMailbox(self.way)
        deadline = time.monotonic() + PATIENCE_IN_S
        while not all((found := self.way.presence().get(name)) and found.online for name in NAMES):
            assert time.monotonic() < deadline, {name: self.told(name) for name in NAMES}
            time.sleep(0.5)

    def place(self, name: str) -> Path:
        return self.world.federation.site[name]

    def told(self, name: str) -> str:
        return self.world.federation.said(name)

    def ask(self, name: str, *frames: bytes) -> list[bytes]:
        tickets = [self.way.push(name, frame, PATIENCE_IN_S) for frame in frames]
        replies: dict[str, bytes] = {}
        deadline = time.monotonic() + PATIENCE_IN_S
        while len(replies) < len(tickets):
            assert time.monotonic() < deadline, self.told(name)[-3000:]
            for ticket in tickets:
                if ticket not in replies and (reply := self.way.pull(ticket)) is not None:
                    replies[ticket] = reply
            self.way.wait(0.05)
        return [replies[ticket] for ticket in tickets]


@contextlib.contextmanager
def tls_world(folder: Path) -> Iterator[TlsWorld]:
    """Three sites as their engineers would start them; their engineers approve whatever contract comes."""
    parts = [table(fleet_of(name, UNITS), name) for name in NAMES]
    experiment = tomli_w.dumps({**experiment_of({}), "data": DATA})
    with deployment(folder, NAMES, experiment=experiment, frame=pd.concat(parts), settings={}) as federation:
        place = federation.coordinator.resolve()
        public = {name: keys.read_public_key(public_key_file(place, name)) for name in NAMES}
        with host(place, read_options(place, CoordinatorOptions), public) as hub:
            for name in NAMES:
                federation.start_site(name)
            yield TlsWorld(federation, hub)
