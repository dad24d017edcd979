"""Power cuts at random moments of deployed runs: they end with the bytes of an undisturbed run.

FEDPROGNOS_KILLS=20 python -m pytest tests/deployment/test_kills.py
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

import pytest
from deployments import SITES, Deployment, deployment

KILLS = int(os.environ.get("FEDPROGNOS_KILLS", "50"))
CHANGES = ("federation.methods=['fedavg', 'fedma']", "federation.fedavg={rounds=3, epochs=1}", "train.epochs=5")


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["checked", "masked"])
def test_runs_whose_processes_are_killed_at_random_end_with_the_same_bytes(tmp_path: Path, mode: str) -> None:
    rng = random.Random(mode)  # noqa: S311 - when to kill, not a secret
    changes, kills = (*CHANGES, f"federation.mode='{mode}'"), KILLS // 2
    with deployment(tmp_path) as federation:
        alone = federation.in_process(*changes)
        expected = (alone / "bundle" / "weights.safetensors").read_bytes()
        federation.start_coordinator()
        for name in SITES:
            federation.start_site(name)
        killed = number = 0
        while killed < kills:
            number += 1
            name = f"run-{number}"
            federation.submit(*changes, name=name)
            killed += kills_during(federation, name, rng, kills - killed)
            state = federation.coordinator / "runs" / name / "state.json"
            federation.wait(state.is_file)
            assert json.loads(state.read_text()) == {"state": "done"}, federation.said("coordinator")
            if mode == "checked":  # masked scores are of all sites together, so rows differ from those of one process
                federation.compare(alone, name)
            for place in (
                federation.coordinator / "runs" / name,
                *(federation.site[s] / "results" / name for s in SITES),
            ):
                assert (place / "bundle" / "weights.safetensors").read_bytes() == expected
            sys.stdout.write(f"{mode}: {killed} of {kills} kills, {number} runs with the same bytes\n")
            sys.stdout.flush()


def kills_during(federation: Deployment, name: str, rng: random.Random, most: int) -> int:
    """Kill somebody again and again until the run has ended, mostly after some more of its steps; how often."""
    place = federation.coordinator / "runs" / name
    killed = 0
    while killed < most and not (place / "state.json").is_file():
        wanted = steps_of(place) + rng.randint(0, 4)
        if rng.random() < 0.8:  # else whoever has just been started is hit, too
            federation.wait(lambda wanted=wanted: (place / "state.json").is_file() or steps_of(place) >= wanted)
        time.sleep(rng.uniform(0.0, 2.0))
        if (place / "state.json").is_file():
            break
        who = rng.choice(("coordinator", "coordinator", *SITES))
        federation.kill(who)
        killed += 1
        time.sleep(rng.uniform(0.0, 2.0))
        if who == "coordinator":
            federation.start_coordinator()
        else:
            federation.start_site(who)
    return killed


def steps_of(place: Path) -> int:
    """How many steps of a run are settled: those that a coordinator has on its disk."""
    return len(list((place / "journals").glob("*/steps/0*")))
