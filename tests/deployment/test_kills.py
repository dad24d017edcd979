"""Power cuts at random moments of deployed runs: they end with the bytes of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from deployments import SITES, Deployment, deployment

KILLS = int(os.environ.get("FEDPROGNOS_KILLS", "50"))
CHANGES = ("federation.methods=['fedavg', 'fedma']", "federation.fedavg={rounds=3, epochs=1}", "train.epochs=5")


@pytest.mark.long
def test_runs_whose_processes_are_killed_at_random_end_with_the_same_bytes(tmp_path: Path) -> None:
    rng = random.Random(0)  # noqa: S311 - when to kill, not a secret
    with deployment(tmp_path) as federation:
        alone = federation.in_process(*CHANGES)
        federation.start_coordinator()
        for name in SITES:
            federation.start_site(name)
        killed = number = 0
        while killed < KILLS:
            number += 1
            name = f"run-{number}"
            federation.submit(*CHANGES, name=name)
            killed += kills_during(federation, name, rng, KILLS - killed)
            state = federation.coordinator / "runs" / name / "state.json"
            federation.wait(state.is_file, 600)
            assert json.loads(state.read_text()) == {"state": "done"}, federation.said("coordinator")
            federation.compare(alone, name)
            for site in SITES:
                kept = federation.site[site] / "results" / name / "bundle" / "weights.safetensors"
                assert kept.read_bytes() == (alone / "bundle" / "weights.safetensors").read_bytes()


def kills_during(federation: Deployment, name: str, rng: random.Random, most: int) -> int:
    """Kill somebody every few seconds until the run has ended; how often."""
    killed = 0
    state = federation.coordinator / "runs" / name / "state.json"
    while killed < most and not state.is_file():
        time.sleep(rng.uniform(0.2, 8.0))
        if state.is_file():
            break
        who = rng.choice(("coordinator", "coordinator", *SITES))
        federation.kill(who)
        killed += 1
        time.sleep(rng.uniform(0.0, 2.0))
        if who == "coordinator":
            federation.start_coordinator()
        else:
            federation.start_site(who)
        if rng.random() < 0.5:  # let it come up before the next one
            federation.wait(lambda: state.is_file() or (federation.coordinator / "status.json").is_file())
    return killed
