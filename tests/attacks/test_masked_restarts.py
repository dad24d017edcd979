"""Masked sums survive restarts: secrets are on disk before anything leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import SmallRun


@pytest.mark.long
def test_sites_that_restart_again_and_again_come_to_the_same_bytes(tmp_path: Path) -> None:
    changes = {"federation": {"mode": "masked"}}
    steady = SmallRun(tmp_path / "steady", changes)
    steady.perform()
    restless = SmallRun(tmp_path / "restless", changes)
    push, pushed = restless.mailbox.push, 0

    def restarting(site: str, data: bytes, ttl_in_s: float) -> str:
        nonlocal pushed
        pushed += 1
        if pushed % 4 == 0:
            restless.sites[site] = restless.site(site)
        return push(site, data, ttl_in_s)

    restless.mailbox.push = restarting  # type: ignore[method-assign]
    restless.perform()
    assert pushed > 40
    assert restless.weights() == steady.weights()
