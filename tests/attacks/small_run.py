"""A small deployed run in this process, whose coordinator can be made to do more than it should."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sites_here import MailboxHere

from fedprognos.deployment.carrier import Mailbox, Presence
from fedprognos.deployment.coordinator.coordinator_service import DeployedRun, deployable
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_ledger import SiteLedger
from fedprognos.deployment.site.site_service import Site
from fedprognos.deployment.steps.signed_steps import STEP, StepHeader, open_step
from fedprognos.experiment import config
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.fleet import Fleet
from fedprognos.identity import Identity, identity_of
from small_fleets import series_fleet

NAMES = ("a", "b", "c")
LAX: dict[str, Any] = {"min_units": 1, "max_leverage": 1.0, "splits": "public"}
EXPERIMENT: dict[str, Any] = {
    "data": {"kind": "synthetic-engines"},
    "partition": {"by": "column", "column": "site"},
    "recipe": {"window": 8, "stride": 3, "cap": 40, "conditions": {"altitude": 0}},
    "model": {"widths": [3]},
    "train": {"epochs": 1, "validation_fraction": 0.3},
    "federation": {
        **{"methods": ["fedavg"], "heads": ["exact"], "fedavg": {"rounds": 2, "epochs": 1}},
        **{"min_clients": 2, "mode": "checked"},
    },
    "evaluation": {"seeds": 1, "baselines": [], "bootstrap": 0},
}


class CrashError(Exception):
    """The coordinator is killed."""


@dataclass
class WatchedMailbox:
    """Lets a test see every step before the site does, and do something else first."""

    inner: Mailbox
    before: Callable[[str, StepHeader, bytes], None] = lambda site, header, data: None
    steps: list[tuple[str, bytes]] = field(default_factory=list)
    at_most: int = 500
    """Messages after which the coordinator is killed."""
    pushed: int = 0

    def presence(self) -> Mapping[str, Presence]:
        return self.inner.presence()

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        if self.pushed >= self.at_most:
            raise CrashError
        self.pushed += 1
        if data.startswith(STEP):
            header, _ = open_step(data)
            self.before(site, header, data)
            self.steps.append((site, data))
        return self.inner.push(site, data, ttl_in_s)

    def wait(self, longest_in_s: float) -> None:
        self.inner.wait(longest_in_s)

    def pull(self, ticket: str) -> bytes | None:
        return self.inner.pull(ticket)


def fleet_of(name: str, units: int, seed: int = 0) -> Fleet:
    """The machines of one of the three sites."""
    return series_fleet([30 + NAMES.index(name)] * units, seed=seed + ord(name), name=name)


def experiment_of(changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {k: {**v, **changes.get(k, {})} for k, v in EXPERIMENT.items()}


@dataclass
class SmallRun:
    """Three sites in this process, and a coordinator."""

    folder: Path
    changes: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=lambda: LAX)
    units: int = 6
    limit_in_mb: int = 64
    largest_request: int | None = None
    """In bytes, where the coordinator sends less at once than a site would take."""
    name: str = "small"
    absent_in_s: float = 5.0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.experiment = deployable(config.parse(experiment_of(self.changes), "test"), lambda text: None)
        self._open()

    def _open(self) -> None:
        self.sites = {name: self.site(name) for name in NAMES}
        self.mailbox = WatchedMailbox(MailboxHere(self.sites))

    def site(self, name: str, seed: int = 0) -> Site:
        """A site as it is after a restart; another seed gives it other data."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        fleet = fleet_of(name, self.units, seed)
        options = SiteOptions(name=name, coordinator="x:1", max_message_in_mb=self.limit_in_mb, **self.options)
        return Site(place, options, SiteData(fleet, None), self.said.append)

    def place(self, name: str) -> Path:
        """A site's own folder."""
        return self.folder / name

    def ask(self, name: str, *frames: bytes) -> list[bytes]:
        """What a site answers to these messages, whoever sends them."""
        return [self.sites[name].respond(frame) for frame in frames]

    def told(self, name: str) -> str:
        """What sites showed their engineers."""
        return "\n".join(self.said)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """A site's ledger."""
        return SiteLedger(self.place(name)).lines()

    @property
    def identity(self) -> Identity:
        return identity_of(self.folder)

    def perform(self) -> Path:
        """Run it; the coordinator's folder. Called again it continues."""
        place = RunFolder(self.folder / "run", self.name, self.experiment, "deployed")
        limit = self.largest_request or self.limit_in_mb << 20
        transport = SiteTransport(self.mailbox, NAMES, limit, absent_in_s=self.absent_in_s)
        report = self.folder / "run" / "report.html"
        DeployedRun(
            self.name, self.experiment, place, transport, self.identity, 0.0, self.said.append, lambda path: report
        ).perform()
        return self.folder / "run"

    def weights(self) -> bytes:
        """The model that was published."""
        return (self.folder / "run" / "bundle" / "weights.safetensors").read_bytes()


Start = Callable[..., AbstractContextManager[SmallRun]]
"""Starts a run in a world of the test's choice."""
