"""What a deployed site receives grows with the number of sites: it replays the coordinator, so it gets their replies.

    OMP_NUM_THREADS=1 python benchmarks/relay.py

Sites of ten synthetic engines each run one exchange of Absorb and three rounds of FedAvg with a contract, in this
process. Counted is what one site receives and sends, and the largest message.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from trust import Here

from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.coordinator.coordinator_service import DeployedRun, deployable
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_service import Site
from fedprognos.experiment import config
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.fleet import Fleet, synthetic
from fedprognos.identity import identity_of

EXPERIMENT: dict[str, dict[str, Any]] = {
    "data": {"kind": "table", "path": "not read: every site has its own", "unit": "unit", "time": "cycle"},
    "partition": {"by": "column", "column": "site"},
    "recipe": {"history": "life", "cap": 125},
    "model": {"cell": "gru", "widths": [32]},
    "train": {"steps": 60, "learning_rate": 0.01},
    "federation": {"heads": ["exact"], "fedavg": {"rounds": 3, "epochs": 1}},
    "evaluation": {"seeds": 1, "baselines": [], "bootstrap": 0, "intervals": "none"},
}
CLIENTS = (3, 6, 12)


class Counting(Here):
    """Counts what each site receives and sends."""

    def __init__(self, sites: dict[str, Site]) -> None:
        super().__init__(sites)
        self.received, self.sent, self.largest = Counter[str](), Counter[str](), 0

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        ticket = super().push(site, data, ttl_in_s)
        self.received[site] += len(data)
        self.sent[site] += len(self.pull(ticket))
        self.largest = max(self.largest, len(data))
        return ticket


def traffic(place: Path, fleets: dict[str, Fleet], method: str, mode: str) -> Counting:
    """What a run with these sites moves."""
    federation = {**EXPERIMENT["federation"], "methods": [method], "mode": mode}
    _, experiment, _ = config.load({**EXPERIMENT, "federation": federation})
    sites = {}
    for name, fleet in fleets.items():
        folder = place / "sites" / name
        folder.mkdir(parents=True)
        (folder / "tasks.secret").write_text("s")
        sites[name] = Site(folder, SiteOptions(name=name, coordinator="x:1"), SiteData(fleet, None), lambda text: None)
    mailbox, wanted = Counting(sites), deployable(experiment, lambda text: None)
    transport = SiteTransport(mailbox, tuple(fleets), 1 << 28)
    results = RunFolder(place / "run", "relay", wanted, "deployed")
    nobody = (lambda text: None, lambda path: path)
    DeployedRun("relay", wanted, results, transport, identity_of(place), 0.0, *nobody).perform()
    return mailbox


def main() -> None:
    site_transport.LOOK_IN_S = handshake.ASK_AGAIN_IN_S = 0.0
    fleet, _ = synthetic.synthetic_engines(sites=max(CLIENTS), units_per_site=10, test_units_per_site=1, seed=0)
    owners = sorted({str(unit.attributes["site"]) for unit in fleet})
    parts = {name: fleet.select([u for u in fleet if u.attributes["site"] == name]) for name in owners}
    out = sys.stdout.write
    out("| method | mode | sites | MB a site receives | MB a site sends | largest message in MB |\n")
    out("|---|---|--:|--:|--:|--:|\n")
    for method in ("absorb", "fedavg"):
        for mode in ("checked", "masked"):
            for clients in CLIENTS:
                chosen = {name: parts[name] for name in owners[:clients]}
                with tempfile.TemporaryDirectory() as folder:
                    found = traffic(Path(folder), chosen, method, mode)
                received, sent = (max(one.values()) / 1e6 for one in (found.received, found.sent))
                out(f"| {method} | {mode} | {clients} | {received:.2f} | {sent:.2f} | {found.largest / 1e6:.2f} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
