"""What contract, signatures, replay, floors and tripwire cost on a clean run: time, bytes, accuracy.

    python benchmarks/trust.py

The same experiment on FD004 runs twice in this process: with bare clients, and with sites that hold a coordinator to a
contract. Time is processor time of everybody together; on machines of their own, sites replay side by side.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from fedprognos.deployment import handshake, site_transport
from fedprognos.deployment.deployed_run import DeployedRun, deployable
from fedprognos.deployment.engine import Presence
from fedprognos.deployment.folders import SiteOptions
from fedprognos.deployment.identity import identity_of
from fedprognos.deployment.site import Site
from fedprognos.deployment.site_data import read_site_data
from fedprognos.deployment.site_transport import SiteTransport
from fedprognos.evaluation import Results
from fedprognos.experiment import config
from fedprognos.experiment.run import run
from fedprognos.experiment.run_folder import RunFolder
from fedprognos.experiment.scenario import scenarios

CHANGES = (
    "partition={by='lifespan', edges=[200, 350]}",
    "federation.methods=['fedavg', 'concat', 'absorb']",
    "federation.fedavg={rounds=3, epochs=1}",
    "federation.heads=['exact']",
    "federation.mode='checked'",
    "model.widths=[32]",
    "train.epochs=3",
    "train.steps=200",
    "evaluation.seeds=1",
    "evaluation.baselines=[]",
    "evaluation.bootstrap=0",
    "recipe.stride=10",
    "train.validation_fraction=0.2",
)


class Here:
    """A mailbox whose sites answer at once, and approve whatever contract comes."""

    def __init__(self, sites: dict[str, Site]) -> None:
        self.sites, self.replies, self.bytes = sites, list[bytes](), 0

    def presence(self) -> dict[str, Presence]:
        return dict.fromkeys(self.sites, Presence(True, None, "once"))

    def push(self, site: str, data: bytes, ttl_in_s: float) -> str:
        self.replies.append(self.sites[site].respond(data))
        self.bytes += len(data) + len(self.replies[-1])
        for entry in self.sites[site].approvals.entries():
            if entry.state == "waiting":
                self.sites[site].approvals.approve(entry.contract.digest)
        return str(len(self.replies) - 1)

    def pull(self, ticket: str) -> bytes:
        return self.replies[int(ticket)]


def main(preset: str = "turbofan") -> None:
    site_transport.LOOK_IN_S = handshake.ASK_AGAIN_IN_S = 0.0
    _, experiment, base = config.load(preset, CHANGES)
    names = sorted(next(iter(scenarios(experiment, None, base).values())).clients)
    with tempfile.TemporaryDirectory() as folder:
        place, started = Path(folder), time.process_time()
        alone = run(preset, out=place / "alone", overrides=CHANGES, seeds=1, workers=1).folder
        bare = time.process_time() - started
        sites = {}
        for name in names:
            (place / name).mkdir()
            (place / name / "tasks.secret").write_text("s")
            options = SiteOptions(name=name, coordinator="x:1", min_units=1)
            sites[name] = Site(place / name, options, read_site_data(name, experiment, base), lambda text: None)
        mailbox, wanted, started = Here(sites), deployable(experiment, lambda text: None), time.process_time()
        transport = SiteTransport(mailbox, tuple(names), 1 << 28)
        folder_of_run = RunFolder(place / "run", preset, wanted, "deployed")
        identity = identity_of(place)
        DeployedRun(
            preset, wanted, folder_of_run, transport, identity, 0.0, lambda text: None, lambda path: path
        ).perform()
        held = time.process_time() - started
        theirs = {p.relative_to(alone): p.read_bytes() for p in (alone / "bundles").rglob("weights.safetensors")}
        same = sum((place / "run" / path).read_bytes() == weights for path, weights in theirs.items())
        counted = max(row.bytes or 0 for row in Results.load(alone / "results.json").rows)
    for line in (
        f"processor time: bare clients {bare:.0f} s, held to a contract {held:.0f} s ({held / bare:.2f}x)",
        f"messages of the largest method {counted / 1e6:.2f} MB, all frames {mailbox.bytes / 1e6:.2f} MB",
        f"weights that are the same to the bit: {same} of {len(theirs)} models",
    ):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
