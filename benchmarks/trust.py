"""What contract, signatures, replay, masks, floors and tripwire cost on a clean run: time, bytes, accuracy.

    OMP_NUM_THREADS=1 python benchmarks/trust.py

An experiment with whole lives of FD004 runs three times in this process: with bare clients, and with sites of default
settings that hold a coordinator to a contract, once with replies that are seen ("checked") and once with masked sums.
Time is processor time of coordinator and all sites together, on one thread as in a real site; on machines of their own,
sites replay side by side. Bare clients receive no model at the end. Sites do, and make a head and an evaluation of
their own; that is counted apart.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from fedprognos.deployment.carrier import Presence
from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.coordinator.coordinator_service import DeployedRun, deployable
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.site.site_data import SiteData
from fedprognos.deployment.site.site_service import Site
from fedprognos.deployment.steps.signed_steps import REPLY, read_reply
from fedprognos.evaluation import EVERYONE, Results
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import run
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.experiment.scenario import scenarios
from fedprognos.federation.codec import ledger_line
from fedprognos.identity import identity_of

PRESET = "turbofan-life"
CHANGES = (
    "federation.methods=['fedavg', 'concat', 'absorb']",
    "federation.heads=['exact', 'mean']",
    "federation.fedavg={rounds=3, epochs=1, average='weighted'}",  # as bare clients average
    "model.widths=[32]",
    "train.steps=300",
    "evaluation.seeds=1",
    "evaluation.baselines=[]",
    "evaluation.bootstrap=0",
    "evaluation.least_rows=1",
    "evaluation.intervals='none'",
)
WARM_UP = (*CHANGES, "model.widths=[4]", "train.steps=1", "federation.fedavg={rounds=1, epochs=1}")
MODES = ("checked", "masked")


@dataclass(frozen=True)
class Cost:
    """What a run took, what it sent, and its results by method and head."""

    seconds: float
    delivering_in_s: float
    bytes: int
    errors: dict[tuple[str, str], float]
    weights: dict[Path, bytes]


class Here:
    """A mailbox whose sites answer at once, and approve whatever contract comes."""

    def __init__(self, sites: dict[str, Site]) -> None:
        self.sites, self.replies, self.bytes, self.delivering_in_s = sites, list[bytes](), 0, 0.0

    def presence(self) -> dict[str, Presence]:
        return dict.fromkeys(self.sites, Presence(True, None, "once"))

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        started = time.process_time()
        self.replies.append(self.sites[site].respond(data))
        if self.replies[-1].startswith(REPLY) and ledger_line(read_reply(self.replies[-1])[1]).kind == "DeliverReply":
            self.delivering_in_s += time.process_time() - started
        self.bytes += len(data) + len(self.replies[-1])
        for entry in self.sites[site].approvals.entries():
            if entry.state == "waiting":
                self.sites[site].approvals.approve(entry.contract.digest)
        return str(len(self.replies) - 1)

    def wait(self, longest_in_s: float) -> None:
        """Every reply is there already."""

    def pull(self, ticket: str) -> bytes:
        return self.replies[int(ticket)]


def bare(place: Path, changes: tuple[str, ...]) -> Cost:
    """The experiment with clients of this process that answer whatever they are asked."""
    started = time.process_time()
    folder = run(PRESET, out=place, overrides=changes, workers=1).folder
    seconds = time.process_time() - started
    largest: dict[str, int] = {}
    for row in Results.load(folder / "results.json").rows:
        largest[row.method] = max(largest.get(row.method, 0), row.bytes or 0)
    return Cost(seconds, 0.0, sum(largest.values()), _errors(folder), _weights(folder))


def held(place: Path, mode: str) -> Cost:
    """The same with sites that hold a coordinator to a contract."""
    _, experiment, base = config.load(PRESET, (*CHANGES, f"federation.mode='{mode}'"))
    dealt = next(iter(scenarios(experiment, None, base).values()))
    names, test, sites = sorted(dealt.clients), dealt.tests[EVERYONE], {}
    for k, name in enumerate(names):
        folder = place / "sites" / name
        folder.mkdir(parents=True)
        own = SiteData(
            dealt.clients[name], replace(test, units=test.units[k :: len(names)])
        )  # the test engines in turn
        sites[name] = Site(folder, SiteOptions(name=name, coordinator="x:1", splits="public"), own, lambda text: None)
    mailbox, wanted, started = Here(sites), deployable(experiment, lambda text: None), time.process_time()
    transport = SiteTransport(mailbox, tuple(names), 1 << 28)
    results, identity = RunFolder(place / "run", PRESET, wanted, "deployed"), identity_of(place)
    nobody = (lambda text: None, lambda path: path)
    DeployedRun(PRESET, wanted, results, transport, identity, 0.0, *nobody).perform()
    seconds = time.process_time() - started - mailbox.delivering_in_s
    return Cost(seconds, mailbox.delivering_in_s, mailbox.bytes, _errors(place / "run"), _weights(place / "run"))


def _errors(folder: Path) -> dict[tuple[str, str], float]:
    """The test error of every model over all clients."""
    rows = Results.load(folder / "results.json").rows
    return {(row.method, str(row.head)): row.rmse for row in rows if row.test_client == EVERYONE}


def _weights(folder: Path) -> dict[Path, bytes]:
    return {p.relative_to(folder): p.read_bytes() for p in (folder / "bundles").rglob("weights.safetensors")}


def main() -> None:
    site_transport.CHECK_IN_S = handshake.ASK_AGAIN_IN_S = 0.0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        bare(place / "warm-up", WARM_UP)
        plain = bare(place / "bare", CHANGES)
        costs = {mode: held(place / mode, mode) for mode in MODES}
    out = sys.stdout.write
    out("| | processor time | with delivery | bytes | models with the same bits | largest change of a test RMSE |\n")
    out("|---|---|---|---|---|---|\n")
    out(f"| bare clients | {plain.seconds:.1f} s | | {plain.bytes / 1e6:.2f} MB | | |\n")
    for mode, cost in costs.items():
        same = sum(cost.weights.get(path) == found for path, found in plain.weights.items())
        change = max(abs(cost.errors[key] - error) / error for key, error in plain.errors.items())
        whole = cost.seconds + cost.delivering_in_s
        out(f"| {mode} | {cost.seconds:.1f} s ({cost.seconds / plain.seconds:.2f}x) ")
        out(f"| {whole:.1f} s ({whole / plain.seconds:.2f}x) | {cost.bytes / 1e6:.2f} MB ")
        out(f"| {same} of {len(plain.weights)} | {change:.1e} of it |\n")
    for key in plain.errors:
        found = ", ".join(f"{mode} {cost.errors[key]:.9f}" for mode, cost in costs.items())
        out(f"{key[0]}, {key[1]} head: bare {plain.errors[key]:.9f}, {found}\n")


if __name__ == "__main__":
    main()
