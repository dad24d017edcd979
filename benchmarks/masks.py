"""What masks cost: CPU seconds and bytes of one masked sum, at a site and at the coordinator, against the open sum.

`python benchmarks/masks.py` prints one line for each number of sites. The sum is that of the statistics of a head with
857 columns, both parts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedprognos.experiment import config
from fedprognos.experiment.run import load_fleets
from fedprognos.features import recipe_for
from fedprognos.federation.codec import encode
from fedprognos.federation.messages import EvaluateRequest
from fedprognos.federation.secure.coordinator import MaskedSums
from fedprognos.federation.secure.fixed_point import add, to_fixed
from fedprognos.federation.secure.member import Member
from fedprognos.federation.secure.messages import MaskedReply
from fedprognos.federation.secure.templates import template_of
from fedprognos.federation.secure.vectors import size_of
from fedprognos.networks import Network, NetworkSpec

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


def main() -> None:
    """Measure and print."""
    _, experiment, _ = config.load("demo")
    recipe = recipe_for(experiment.recipe, {"all": load_fleets("demo")[0]})
    spec = NetworkSpec(
        inputs=recipe.channels, widths=(), cell="lstm", reservoir=COLUMNS - 1 - recipe.channels, direct=1
    )
    network = Network(spec, {name: np.zeros(shape, np.float32) for name, shape in spec.shapes.items()})
    request = EvaluateRequest(recipe, network, 0, 0.3, True)
    template = template_of(request)
    values = 1 + 1000 * np.random.default_rng(0).random(size_of(template))  # counts must be possible ones
    plain = len(encode(template))
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
