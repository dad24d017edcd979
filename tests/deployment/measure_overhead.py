"""What a message costs over Flower, TLS and two processes, against a call in this one.

python tests/deployment/measure_overhead.py
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from deployments import deployment
from sites_here import site_here

from fedprognos.deployment import keys
from fedprognos.deployment.coordinator.site_transport import SiteTransport
from fedprognos.deployment.flower.superlink import host
from fedprognos.deployment.folders import CoordinatorOptions, public_key_file, read_options
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges.site_messages import HelloReply, HelloRequest

TIMES = 15


def main() -> None:
    request = HelloRequest("overhead")
    with tempfile.TemporaryDirectory() as folder, deployment(Path(folder), ("plant-a",)) as federation:
        federation.start_site("plant-a")
        place = federation.coordinator.resolve()
        public = {"plant-a": keys.read_public_key(public_key_file(place, "plant-a"))}
        with host(place, read_options(place, CoordinatorOptions), public) as hub, hub.open_run(60.0) as box:
            transport = SiteTransport(box, ("plant-a",), 1 << 26)
            while not transport.online():
                time.sleep(0.5)
            cohort = MessageCohort(transport)

            def ask() -> None:
                reply = cohort.ask({"plant-a": request}, (HelloReply,))["plant-a"]
                assert isinstance(reply, HelloReply)

            remote = [_timed(ask) for _ in range(TIMES)]
        site = site_here(Path(folder) / "here")
        here = [_timed(lambda: decode(site.respond(encode(request)), (HelloReply,))) for _ in range(TIMES)]
    for name, times in (("over Flower", remote), ("in this process", here)):
        middle, worst = statistics.median(times), max(times)
        sys.stdout.write(f"{name}: median {1e3 * middle:.1f} ms, longest {1e3 * worst:.1f} ms of {TIMES}\n")


def _timed(work: object) -> float:
    started = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - started


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
