"""What a deployed run costs beside its work: bytes by the number of sites, and the time of an empty step.

    OMP_NUM_THREADS=1 python benchmarks/relay.py          # bytes, then time
    OMP_NUM_THREADS=1 python benchmarks/relay.py --time   # time alone

A site replays the coordinator, so it gets the replies of the others. Sites of ten synthetic engines each run one
exchange of Absorb and three rounds of FedAvg with a contract, in this process. Counted is what one site receives and
sends, and the largest message.

The empty step asks three sites for their names, over loopback and TLS: processes of their own, a SuperLink, and this
process as their coordinator. Beside it stands the same question to a site in this process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from trust import Here

from fedprognos.deployment import keys
from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.coordinator.coordinator_service import DeployedRun, deployable
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.deployment.flower.superlink import host
from fedprognos.deployment.folders import CoordinatorOptions, SiteOptions, public_key_file, read_options
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_service import Site
from fedprognos.experiment import config
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges.site_messages import HelloReply, HelloRequest
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
STEPS = 30
sys.path.append(str(Path(__file__).parents[1] / "tests" / "deployment"))
sys.path.append(str(Path(__file__).parents[1] / "tests"))


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
        sites[name] = Site(folder, SiteOptions(name=name, coordinator="x:1"), SiteData(fleet, None), lambda text: None)
    mailbox, wanted = Counting(sites), deployable(experiment, lambda text: None)
    transport = SiteTransport(mailbox, tuple(fleets), 1 << 28)
    results = RunFolder(place / "run", "relay", wanted, "deployed")
    nobody = (lambda text: None, lambda path: path)
    DeployedRun("relay", wanted, results, transport, identity_of(place), 0.0, *nobody).perform()
    return mailbox


def empty_steps() -> None:
    """Seconds of an empty step with three sites over TLS, and of processors, by process."""
    from deployments import SITES, deployment  # it needs what tests need
    from sites_here import site_here

    with tempfile.TemporaryDirectory() as folder, deployment(Path(folder)) as federation:
        for name in SITES:
            federation.start_site(name)
        place = federation.coordinator.resolve()
        public = {name: keys.read_public_key(public_key_file(place, name)) for name in SITES}
        with host(place, read_options(place, CoordinatorOptions), public) as hub, hub.open_run(60.0) as mailbox:
            transport = SiteTransport(mailbox, SITES, 1 << 26)
            while len(transport.online()) < len(SITES):
                time.sleep(0.5)
            cohort, request = MessageCohort(transport), HelloRequest("empty")
            pids = {"coordinator": psutil.Process().pid, "SuperLink": psutil.Process().children()[-1].pid}
            pids |= {name: process.pid for name, process in federation.processes.items()}

            def work() -> dict[str, float]:
                return {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in pids.items()}

            cohort.ask(dict.fromkeys(SITES, request), (HelloReply,))
            before = work()
            deployed = timed(lambda: cohort.ask(dict.fromkeys(SITES, request), (HelloReply,)))
            after = work()
        site = site_here(Path(folder) / "here")
        here = timed(lambda: site.respond(encode(request)))
    show("three sites over TLS", deployed)
    show("one site in this process", here)
    used = {name: (after[name] - before[name]) / STEPS for name in pids}
    parts = ", ".join(f"{name} {1e3 * seconds:.0f}" for name, seconds in used.items())
    sys.stdout.write(f"ms of processors a step: {1e3 * sum(used.values()):.0f} in all; {parts}\n")


def timed(work: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(STEPS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return times


def show(what: str, times: list[float]) -> None:
    middle, longest = 1e3 * statistics.median(times), 1e3 * max(times)
    sys.stdout.write(f"{what}: median {middle:.1f} ms, longest {longest:.1f} ms of {len(times)} steps\n")


def main() -> None:
    if "--time" not in sys.argv:
        count_bytes()
    empty_steps()


def count_bytes() -> None:
    site_transport.CHECK_IN_S = handshake.ASK_AGAIN_IN_S = 0.0
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
