"""Steps travel without requests: few of them, and of no more bytes than the replies in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "attacks"))

from small_run import NAMES, SmallRun

from fedprognos.deployment.coordinator import handshake, site_transport
from fedprognos.deployment.steps.signed_steps import open_step

FEDMA = {
    "model": {"widths": [16, 16]},
    "federation": {"methods": ["fedma"], "heads": ["mean"], "fedma": {"rounds": 2, "width_limit": 1.0}},
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_transport, "CHECK_IN_S", 0.0)
    monkeypatch.setattr(handshake, "ASK_AGAIN_IN_S", 0.0)


def test_a_round_of_fedma_asks_a_site_twice_a_layer_and_once_more(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, FEDMA)
    run.perform()
    rounds, layers = 2, 3  # two recurrent ones and the head
    other = 6  # joining, moments, scores, sums of features and their distances, delivery
    for name in NAMES:
        asked = sum(site == name for site, _ in run.mailbox.steps) - other
        assert asked == rounds * (2 * layers + 1)  # each layer is trained and screened, then all is evaluated


def test_a_step_holds_the_others_replies_once_and_no_request(tmp_path: Path) -> None:
    run = SmallRun(tmp_path, FEDMA)
    run.perform()
    for name in NAMES:
        relayed = list[tuple[int, str]]()
        for site, data in run.mailbox.steps:
            if site == name:
                _, replies = open_step(data)
                relayed += [key for key, reply in replies.items() if reply]
                assert len(data) - sum(map(len, replies.values())) < 8000  # signed notes and a fingerprint
        assert len(set(relayed)) == len(relayed)
        assert name not in {site for _, site in relayed}
