"""What masks cost: CPU seconds and bytes of one masked sum, at a site and at the coordinator, against the open sum.

`python benchmarks/masks.py` prints one line for each number of sites. The sum is that of the statistics of a head with
857 columns, both parts. `python benchmarks/masks.py --run` trains on FD004 once with masks and once without: whole
lives, three clients, 300 steps, `concat` with an exact head.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import load_fleets
from fedprognos.experiment.job import plan_of
from fedprognos.experiment.scenario import scenarios
from fedprognos.features import recipe_for
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import encode
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure, exchanges
from fedprognos.federation.exchanges.evaluate import EvaluateRequest
from fedprognos.federation.exchanges.survey import common_recipe
from fedprognos.federation.heads import judged_rounds
from fedprognos.federation.masked_sums import MaskedSums
from fedprognos.federation.strategies import strategies
from fedprognos.networks import Network, NetworkSpec
from fedprognos.networks.torch_threads import one_torch_thread
from fedprognos.privacy.mask_messages import MaskedReply
from fedprognos.privacy.masked_member import Member
from fedprognos.privacy.sum_vectors import add, to_fixed

COLUMNS, SITES = 857, (3, 10, 30)


class Sites:
    """Members in this process; their CPU time and bytes are counted apart from the coordinator's."""

    def __init__(self, names: tuple[str, ...], values: np.ndarray[Any, Any]) -> None:
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        self.identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
        self.members = {name: Member(name, key, self.identities) for name, key in keys.items()}
        self.values, self.seconds, self.bytes, self.setup = values, 0.0, 0, 0.0

    def ask(self, requests: Mapping[str, Any], kinds: tuple[type, ...] = (), tag: Any = None) -> dict[str, Any]:
        begun, replies = time.process_time(), {}
        for name, request in requests.items():
            member = self.members[name]
            replies[name] = member.answer(request) if tag is None else member.masked(*tag, "asked", self.values)
        if MaskedReply in kinds:
            self.setup, self.seconds = self.seconds, 0.0
        self.seconds += time.process_time() - begun
        self.bytes += sum(len(encode(reply)) for reply in replies.values())
        return replies


class HereCohort(MessageCohort):
    """Clients in this process, asked one after another."""

    def __init__(self, members: Mapping[str, Client], sums: Any = None) -> None:
        super().__init__(self, sums=sums)
        self.members = members

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self.members))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        """Encoded replies."""
        return {name: self.members[name].respond(data) for name, data in requests.items()}


def whole_run(data_dir: Path | None, steps: int = 300) -> None:
    """CPU seconds and bytes of a run with masks against one without, and how far their heads are apart."""
    changes = (f"train.steps={steps}", 'federation.methods=["concat"]', 'federation.heads=["exact"]')
    _, experiment, base = config.load("turbofan-life", changes)
    scenario = next(iter(scenarios(experiment, data_dir, base).values()))
    keys = {name: Ed25519PrivateKey.generate() for name in scenario.clients}
    identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
    heads, seconds, moved, errors = [], [], [], []
    for masked in (False, True):
        with tempfile.TemporaryDirectory() as folder, one_torch_thread():
            begun = time.process_time()
            members = {
                name: Client(
                    name,
                    fleet,
                    ClientFolder(Path(folder) / name),
                    member=Member(name, keys[name], identities) if masked else None,
                )
                for name, fleet in scenario.clients.items()
            }
            cohort = HereCohort(members, MaskedSums("run", identities) if masked else None)
            recipe = common_recipe(cohort, experiment.recipe, experiment.federation, lambda failure: None)
            *_, last = judged_rounds(strategies["concat"], cohort, plan_of(experiment, recipe, 0))
            seconds.append(time.process_time() - begun)
            moved.append(cohort.traffic.bytes)
            ((found,),) = [list(one.values()) for one in last.models.values()]
            heads.append(found.network.head)
            errors.append(found.validation_rmse)
    apart = float(np.abs(heads[1] - heads[0]).max() / np.abs(heads[0]).max())
    print(
        f"FD004, {steps} steps: {seconds[0]:.1f} s without masks, {seconds[1]:.1f} s with them "
        f"({seconds[1] / seconds[0]:.2f} x); "
        f"{moved[0] / 1e6:.2f} and {moved[1] / 1e6:.2f} MB; heads apart by {apart:.1e}; validation errors {errors}"
    )


def main() -> None:
    """Measure and print."""
    if "--run" in sys.argv:
        whole_run(next((Path(one) for one in sys.argv[1:] if one != "--run"), None))
        return
    _, experiment, _ = config.load("demo")
    recipe = recipe_for(experiment.recipe, {"all": load_fleets("demo")[0]})
    spec = NetworkSpec(
        inputs=recipe.channels, widths=(), cell="lstm", reservoir=COLUMNS - 1 - recipe.channels, direct=1
    )
    network = Network(spec, {name: np.zeros(shape, np.float32) for name, shape in spec.shapes.items()})
    request = EvaluateRequest(recipe, network, 0, 0.3, True)
    exchange = exchanges["EvaluateRequest"]
    values = 1 + 1000 * np.random.default_rng(0).random(exchange.vector_length(request))  # counts must be possible ones
    plain = len(encode(exchange.zeros(request)))
    for count in SITES:
        names = tuple(f"site-{k:02d}" for k in range(count))
        sites = Sites(names, values)
        sums = MaskedSums("run", sites.identities)
        begun = time.process_time()
        sums.total(sites, dict.fromkeys(names, request), lambda failure: None)
        coordinator = time.process_time() - begun - sites.setup - sites.seconds
        begun, total = time.process_time(), to_fixed(values)
        for _ in names[1:]:
            total = add(total, to_fixed(values))
        opened = time.process_time() - begun
        print(
            f"{count} sites, {len(values)} numbers: {sites.seconds / count:.2f} s a site and sum, "
            f"{sites.setup / count:.2f} s a site for the keys of 32 sums; coordinator {coordinator:.2f} s "
            f"(open {opened:.2f} s); {sites.bytes / count / 1e6:.1f} MB a site (open {plain / 1e6:.1f} MB)"
        )


if __name__ == "__main__":
    main()
