"""A small deployed run in this process, whose coordinator can be made to do more than it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sites_here import MailboxHere

from fedprognos.deployment.deployed_run import DeployedRun, deployable
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.identity import Identity, identity_of
from fedprognos.deployment.site import Site
from fedprognos.deployment.site_data import SiteData
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.deployment.steps import REQUEST, RequestHeader, open_request
from fedprognos.deployment.tensor_cache import SentTensors
from fedprognos.experiment import config
from fedprognos.experiment.run_folder import RunFolder
from small_fleets import series_fleet

LAX: dict[str, Any] = {"min_units": 1, "max_leverage": 1.0}
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
class WatchedMailbox(MailboxHere):
    """Lets a test see every step before the site does, and do something else first."""

    before: Callable[[str, RequestHeader, bytes], None] = lambda site, header, data: None
    steps: list[tuple[str, bytes]] = field(default_factory=list)
    at_most: int = 500
    """Messages after which the coordinator is killed."""

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        if sum(self.asked.values()) >= self.at_most:
            raise CrashError
        if data.startswith(REQUEST):
            header, _, _ = open_request(data)
            self.before(site, header, data)
            self.steps.append((site, data))
        return super().push(site, data, ttl_in_s)


@dataclass
class SmallRun:
    """Three sites and a coordinator."""

    folder: Path
    changes: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=lambda: LAX)
    units: int = 6
    limit_in_mb: int = 64
    said: list[str] = field(default_factory=list)
    sent: SentTensors = field(default_factory=SentTensors)

    def __post_init__(self) -> None:
        self.sites = {name: self.site(name) for name in "abc"}
        self.mailbox = WatchedMailbox(self.sites)
        document = {k: {**v, **self.changes.get(k, {})} for k, v in EXPERIMENT.items()}
        self.experiment = deployable(config.parse(document, "test"), lambda text: None)

    def site(self, name: str, seed: int = 0) -> Site:
        """A site as it is after a restart; another seed gives it other data."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "tasks.secret").write_text("s")
        lengths = [30 + "abc".index(name)] * self.units
        fleet = series_fleet(lengths, seed=seed + ord(name), name=name)
        options = SiteOptions(name=name, coordinator="x:1", max_message_in_mb=self.limit_in_mb, **self.options)
        return Site(place, options, SiteData(fleet, None), self.said.append)

    @property
    def identity(self) -> Identity:
        return identity_of(self.folder)

    def perform(self) -> Path:
        """Run it; the coordinator's folder. Called again it continues."""
        place = RunFolder(self.folder / "run", "small", self.experiment, "deployed")
        limit = self.limit_in_mb << 20
        transport = SiteTransport(self.mailbox, tuple(self.sites), limit, absent_in_s=5.0, sent=self.sent)
        report = self.folder / "run" / "report.html"
        DeployedRun(
            "small", self.experiment, place, transport, self.identity, 0.0, self.said.append, lambda path: report
        ).perform()
        return self.folder / "run"

    def weights(self) -> bytes:
        """The model that was published."""
        return (self.folder / "run" / "bundle" / "weights.safetensors").read_bytes()
