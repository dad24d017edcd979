"""What Absorb moves for a client, from 3 to 249 clients: bytes up and down, and the largest message.

    OMP_NUM_THREADS=1 python benchmarks/absorb_bytes.py [--clients 3,10]

Every client has two synthetic engines and a GRU of 64 neurons that was trained 8 steps: bytes follow from shapes, not
from what was learnt. Counted are training, all sums, and the statistics of the final head.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fedprognos.experiment import config
from fedprognos.experiment.job import plan_of
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.cohort import MessageCohort
from fedprognos.federation.exchanges import Failure
from fedprognos.federation.exchanges.survey import recipe_from_survey
from fedprognos.federation.heads import with_heads
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import synthetic

EXPERIMENT = {
    "data": {"kind": "table", "path": "not read: the engines are made up", "unit": "unit", "time": "cycle"},
    "partition": {"by": "column", "column": "site"},
    "recipe": {"history": "life", "cap": 125},
    "model": {"cell": "gru", "widths": [64]},
    "train": {"steps": 8, "learning_rate": 0.02, "validation_fraction": 0},
    "federation": {"methods": ["absorb"], "heads": ["exact"], "alike": True, "absorb": {"alpha": 0.3}},
}


class Here:
    """Clients in this process; notes the largest message."""

    def __init__(self, clients: Mapping[str, Client]) -> None:
        self._clients, self.largest = clients, 0

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self._clients))

    def send(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Failure]:
        replies = {name: self._clients[name].respond(data) for name, data in sorted(requests.items())}
        self.largest = max([self.largest, *map(len, requests.values()), *map(len, replies.values())])
        return replies  # type: ignore[return-value]


def traffic(count: int, place: Path, window: bool) -> tuple[float, float, float]:
    """MB down and up a client, and of the largest message."""
    fleet, _ = synthetic.synthetic_engines(sites=count, units_per_site=2, test_units_per_site=1, seed=0)
    owners = sorted({str(unit.attributes["site"]) for unit in fleet})
    parts = {name: fleet.select([u for u in fleet if u.attributes["site"] == name]) for name in owners}
    transport = Here({n: Client(n, part, ClientFolder(place / n), device="cpu") for n, part in parts.items()})
    recipe = {"window": 30, "cap": 125} if window else EXPERIMENT["recipe"]
    _, experiment, _ = config.load({**EXPERIMENT, "recipe": recipe})
    cohort = MessageCohort(transport)
    plan = plan_of(experiment, recipe_from_survey(cohort, experiment.recipe, lambda failure: None), 0)
    *_, last = strategies["absorb"].run(cohort, plan)
    ((members, network),) = last.models.items()
    with_heads(cohort, plan, members, network)
    moved = cohort.traffic
    return moved.bytes_down / 1e6 / count, moved.bytes_up / 1e6 / count, transport.largest / 1e6


def main() -> None:
    """A row for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="3,10,30,100,249", help="how many, with commas between")
    parser.add_argument("--window", action="store_true", help="windows of 30 rows instead of whole lives")
    options = parser.parse_args()
    sys.stdout.write("| clients | MB a client | down | up | largest message |\n|--:|--:|--:|--:|--:|\n")
    for count in map(int, options.clients.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            down, up, largest = traffic(count, Path(folder), options.window)
        sys.stdout.write(f"| {count} | {down + up:.2f} | {down:.2f} | {up:.2f} | {largest:.2f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
