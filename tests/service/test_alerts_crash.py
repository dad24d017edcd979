"""`fedprognos serve` killed again and again under load: no acknowledged row is lost, and each alert is raised once."""

from __future__ import annotations

import os
import random
import signal
import statistics
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import process, rows_of, small_bundle
from sinks import webhook
from test_alerts import wait_for

from fedprognos.prognosis import Predictor, Row
from fedprognos.service import DurableStream
from fedprognos.service.alerts import AlertRule
from fedprognos.service.fleet_view import status_of
from fedprognos.service.service_options import near_margin
from small_fleets import series_fleet

FLEET = series_fleet([45] * 12)
KILLS = int(os.environ.get("KILLS", "12"))
RAISE_AFTER, CLEAR_AFTER = 2, 1
pytestmark = pytest.mark.soak


def in_turn() -> list[dict[str, Any]]:
    """Rows of all units as they come: one of each in turn."""
    rows = [row for unit in FLEET for row in rows_of(unit, FLEET)]
    return sorted(rows, key=lambda row: (row["position"], row["unit"]))


def expected_alerts(
    predictor: Predictor, rows: list[dict[str, Any]]
) -> tuple[float, list[tuple[str, str, str, float]]]:
    """A threshold that healths cross again and again, and what a service that is never killed raises."""
    updates = DurableStream(predictor).take([Row(**row) for row in rows]).updates
    threshold = statistics.median(u.health.value for u in updates if u.health and u.health.value is not None)
    margin = near_margin(predictor.recipe)
    rule = AlertRule(lambda health: status_of(health, threshold, margin), RAISE_AFTER, CLEAR_AFTER)
    alerts = DurableStream(predictor, alert_rule=rule).take([Row(**row) for row in rows]).alerts
    return threshold, [(a.unit, a.before, a.status, a.health.position) for a in alerts if a.health is not None]


def test_kill_9_loses_and_doubles_no_alert(tmp_path: Path) -> None:
    bundle, rows = small_bundle(FLEET).save(tmp_path / "bundle"), in_turn()
    threshold, expected = expected_alerts(Predictor.load(bundle), rows)
    assert len(expected) > 15
    chance = random.Random(0)  # noqa: S311
    with webhook() as receiver:
        plant = tmp_path / "plant.toml"
        rule = f"raise_after = {RAISE_AFTER}\nclear_after = {CLEAR_AFTER}"
        plant.write_text(f'[alerts]\n{rule}\n[[alerts.sinks]]\nkind = "webhook"\nurl = "{receiver.url}"\n')
        options = ("--plant", str(plant), "--threshold", str(threshold))
        answered, step = 0, len(rows) // (KILLS + 1)
        for kill in range(KILLS + 1):
            last = len(rows) if kill == KILLS else min(len(rows), answered + chance.randrange(step // 2, 3 * step // 2))
            with process(bundle, tmp_path / "state", *options) as (address, child), httpx.Client() as client:
                while answered < last:
                    client.post(f"{address}/v1/rows", json=rows[answered])
                    answered += 1
                if kill == KILLS:
                    wait_for(lambda: len({post["id"] for post in receiver.posts}) == len(expected), 60)
                else:
                    with suppress(httpx.TransportError, httpx.TimeoutException):  # killed before it could answer
                        client.post(f"{address}/v1/rows", json=rows[answered : answered + 8], timeout=0.01)
                    child.send_signal(signal.SIGKILL)
                    child.wait(20)
    by_id = {post["id"]: post for post in receiver.posts}  # one sent again at a kill has the same id
    assert len(receiver.posts) <= len(by_id) + KILLS
    stream = DurableStream(Predictor.load(bundle), tmp_path / "state")
    stored = {unit.id: stream.rows(unit.id) for unit in FLEET}
    assert {name: table and table.positions for name, table in stored.items()} == {u.id: u.time.tolist() for u in FLEET}
    noted = [(post["unit"], post["before"], post["status"], post["health"]["position"]) for post in by_id.values()]
    assert noted == expected
