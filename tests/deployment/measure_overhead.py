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

from deployments import deployment

from fedprognos.deployment.flower.cohort import FlowerCohort
from fedprognos.deployment.flower.coordinator import Desk
from fedprognos.deployment.flower.folders import CoordinatorSettings, read_settings
from fedprognos.deployment.flower.holdings import read_holdings
from fedprognos.experiment import config
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.codec import decode, encode
from fedprognos.federation.messages import ANSWERS, SurveyRequest

TIMES = 15


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, deployment(Path(folder), ("plant-a",)) as federation:
        federation.start_site("plant-a")
        desk = Desk(federation.coordinator, read_settings(federation.coordinator, CoordinatorSettings), print, Path)
        _, experiment, base = config.load(federation.experiment)
        request = SurveyRequest(experiment.recipe)
        with desk.superlink(), desk._grid() as grid:
            cohort = FlowerCohort(grid, desk.keys, ("plant-a",), limit_in_bytes=desk.limit)
            while not cohort.online():
                time.sleep(0.5)
            remote = [_timed(lambda: cohort.ask({"plant-a": request})) for _ in range(TIMES)]
        fleet = read_holdings("plant-a", experiment, base, federation.folder / "plant-a.csv").train
        client = Client("plant-a", fleet, ClientFolder(Path(folder) / "here"))
        here = [_timed(lambda: decode(client.respond(encode(request)), ANSWERS)) for _ in range(TIMES)]
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
