"""Sites in this process, asked as over a network: everything of a deployment but its processes and its engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedprognos.deployment.carrier import Presence
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_service import Site
from small_fleets import series_fleet


@dataclass
class MailboxHere:
    """A mailbox whose sites answer at once."""

    sites: Mapping[str, Site]
    replies: list[bytes] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    approving: bool = True
    """Whether every site's engineer approves whatever contract comes."""

    def presence(self) -> dict[str, Presence]:
        return dict.fromkeys(self.sites, Presence(True, None, "monday"))

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        self.asked[site] += 1
        self.replies.append(self.sites[site].respond(data))
        if self.approving:
            approvals = self.sites[site].approvals
            for entry in approvals.entries():
                if entry.state == "waiting":
                    approvals.approve(entry.contract.digest)
        return str(len(self.replies) - 1)

    def wait(self, longest_in_s: float) -> None:
        """Every reply is there already."""

    def pull(self, ticket: str) -> bytes:
        return self.replies[int(ticket)]


def site_here(
    folder: Path, name: str = "a", seed: int = 1, said: list[str] | None = None, data: SiteData | None = None
) -> Site:
    """A site with a small fleet and a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    fleet = series_fleet([60, 58, 70, 66], seed=seed, name=name)
    options = SiteOptions(name=name, coordinator="x:1", min_units=1, max_leverage=1.0)
    return Site(folder, options, data or SiteData(fleet, None), ([] if said is None else said).append)
