"""Maintenance: new lives, exchanged sensors, a log with names, and nothing lost or doubled by a restart."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from services import LIFE, Json, process, rows_of, running, small_bundle

from fedprognos.features import Recipe
from fedprognos.prognosis import HealthModel, Predictor, Row, Stream
from fedprognos.service import DurableStream
from fedprognos.service.maintenance import MaintenanceReport
from small_fleets import series_fleet

FLEET = series_fleet([60, 40])
BUNDLE = small_bundle(FLEET)
ROWS = rows_of(FLEET["engines-0"], FLEET)
DONE: Json = {"unit": "engines-0", "kind": "repair", "at": "2026-11-18T07:00:00Z", "who": "Mia", "note": "bearing"}


@pytest.mark.parametrize("kind", ["repair", "replacement"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_repair_begins_a_new_life_and_keeps_the_old(kind: str, restarted: bool, tmp_path: Path) -> None:
    with running(BUNDLE, state=tmp_path, threshold=1e6) as client:
        client.post("/v1/rows", json=ROWS[:30])
        assert client.get("/v1/fleet").json()["counts"]["due"] == 1
        answer = client.post("/v1/maintenance", json={**DONE, "kind": kind}).json()
        assert (answer["recorded"], answer["results"][0]["event"]["begins"]) == (1, "engines-0#2")
        if not restarted:
            check_new_life(client, kind)
    if restarted:
        with running(BUNDLE, state=tmp_path, threshold=1e6) as client:
            check_new_life(client, kind)


def check_new_life(client: Any, kind: str) -> None:
    counts = client.get("/v1/fleet").json()["counts"]
    assert (counts["due"], counts["warming-up"]) == (0, 1)
    assert client.post("/v1/rows", json=ROWS[29]).json()["results"][0]["result"] == "duplicate"  # delivered again
    results = client.post("/v1/rows", json=ROWS[30:50]).json()["results"]
    assert {result["unit"] for result in results} == {"engines-0#2"}
    fresh = Stream(Predictor.from_bundle(BUNDLE)).feed_many([Row(**row) for row in ROWS[30:50]])
    values = [update.health.value for update in fresh if update.health is not None]
    assert [result["health"]["value"] for result in results] == values
    new, old = (client.get(f"/v1/units/{name}").json() for name in ("engines-0%232", "engines-0"))
    assert new["lives"] == ["engines-0", "engines-0#2"] and old["status"] == "ended" and len(old["history"]) == 30
    assert old["forecast"] is None and old["end_date"] is None  # a life that has ended is never due
    (event,) = new["maintenance"]
    assert (event["kind"], event["who"], event["position"], event["unit"]) == (kind, "Mia", 30.0, "engines-0")
    assert client.post("/v1/rows", json={**ROWS[0], "sensors": {}}).status_code == 422


def test_a_dated_row_that_comes_again_stays_with_the_life_before() -> None:
    recipe = Recipe(
        task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0, time_measure="hours"
    )
    rows = [Row("pump", f"2026-11-0{day}T07:00:00", {"heat": 1.0 * day}) for day in (1, 2, 3)]  # type: ignore[arg-type]
    stream = DurableStream(HealthModel(recipe, lambda windows: windows.mean(axis=(1, 2))))
    stream.take(rows[:2])
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    stream.record(MaintenanceReport(unit="pump", kind="repair", at=at, who="Mia"))
    results = [(update.unit, update.verdict.value) for update in stream.take(rows[1:]).updates]
    assert results == [("pump", "duplicate"), ("pump#2", "accepted")]


def test_the_same_event_is_one_and_a_life_without_rows_is_not_ended_again() -> None:
    with running(BUNDLE) as client:
        client.post("/v1/rows", json=ROWS[:20])
        both = client.post("/v1/maintenance", json=[DONE, DONE]).json()
        again = client.post("/v1/maintenance", json={**DONE, "note": "sent again"}).json()
        assert (both["recorded"], both["duplicates"], again["duplicates"]) == (1, 1, 1)
        later = client.post("/v1/maintenance", json={**DONE, "kind": "replacement"}).json()
        assert later["recorded"] == 1 and later["results"][0]["event"]["begins"] == ""
        assert len(client.get("/v1/maintenance?unit=engines-0").json()["events"]) == 2


@pytest.mark.parametrize("history", [{}, LIFE])
@pytest.mark.parametrize("tidied", ["no", "before", "after"])
def test_events_are_applied_in_the_order_of_rows_after_a_restart(
    history: dict[str, Any], tidied: str, tmp_path: Path
) -> None:
    """A sensor that stands still is flagged, exchanged, and not flagged again, with a restart or without."""
    predictor = Predictor.from_bundle(small_bundle(FLEET, **history))
    frozen = [{**row, "sensors": {**row["sensors"], "pressure": 512.0}} for row in ROWS[:40]]
    rows = [Row(**row) for row in [*frozen, *ROWS[40:]]]
    exchange = MaintenanceReport.model_validate({**DONE, "kind": "sensor-exchange", "sensor": "pressure"})
    other = MaintenanceReport.model_validate({**DONE, "kind": "sensor-exchange", "sensor": "temperature"})

    plain = DurableStream(predictor)
    assert "stuck" in (plain.take(rows[:40]).updates[-1].health or rows).flags  # type: ignore[union-attr]
    plain.record(exchange)
    expected = [update.health for update in plain.take(rows[40:]).updates]
    assert all(health is not None and "stuck" not in health.flags for health in expected)

    own = DurableStream(predictor, tmp_path)
    own.take(rows[:40])
    own.record(other)  # no fault of the other sensor ends by it
    assert "stuck" in (own.stream.health("engines-0") or rows).flags  # type: ignore[union-attr]
    if tidied == "before":
        own.tidy()
    own.record(exchange)
    if tidied == "after":
        own.tidy()
    own.store.close()  # as a kill leaves it
    own = DurableStream(predictor, tmp_path)
    after = [update.health for update in own.take(rows[40:]).updates]
    own.close()
    assert [health and health.flags for health in after] == [health and health.flags for health in expected]
    values = [health.value for health in expected if health is not None]
    assert [health.value for health in after if health is not None] == pytest.approx(values, abs=1e-5)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"kind": "explosion"}, "kind"),
        ({"at": "yesterday"}, "at"),
        ({"who": ""}, "who"),
        ({"colour": "red"}, "colour"),
        ({"unit": "nobody"}, "nobody"),
        ({"kind": "sensor-exchange"}, "sensor"),
        ({"kind": "sensor-exchange", "sensor": "smell"}, "smell"),
        ({"sensor": "pressure"}, "sensor"),
    ],
)
def test_reports_that_mean_nothing_are_refused(changed: Json, named: str) -> None:
    with running(BUNDLE) as client:
        client.post("/v1/rows", json=ROWS[:5])
        answer = client.post("/v1/maintenance", json={**DONE, **changed})
        assert answer.status_code == 422 and named in answer.json()["results"][0]["reason"]
        assert client.post("/v1/maintenance?colour=red", json=DONE).status_code == 400
        assert client.post("/v1/maintenance", content=b"x", headers={"content-type": "text/html"}).status_code == 415


def test_a_table_of_events_is_taken() -> None:
    lines = [
        "unit,kind,at,who,sensor",
        "engines-0,sensor-exchange,2026-11-18 07:00,Mia,pressure",
        "nobody,repair,2026-11-18,Mia,",
    ]
    table = "\n".join(lines)
    with running(BUNDLE) as client:
        client.post("/v1/rows", json=ROWS[:5])
        answer = client.post("/v1/maintenance", content=table, headers={"content-type": "text/csv"}).json()
        assert [result["result"] for result in answer["results"]] == ["recorded", "refused"]
        ragged = client.post("/v1/maintenance", content="unit,kind\na\n", headers={"content-type": "text/csv"})
        assert ragged.status_code == 400


def test_a_repair_ends_the_alert_and_forgetting_all_lives_ends_the_log() -> None:
    with running(BUNDLE, threshold=1e6) as client:
        client.post("/v1/rows", json=ROWS[:30])
        client.post("/v1/maintenance", json=DONE)
        alerts = client.get("/v1/alerts").json()["alerts"]
        assert [(alert["before"], alert["status"]) for alert in alerts] == [("due", "ended"), ("ok", "due")]
        client.post("/v1/rows", json=ROWS[30:50])
        assert client.get("/v1/alerts").json()["alerts"][0]["unit"] == "engines-0#2"  # due again: told again
        for name in ("engines-0%232", "engines-0"):
            assert client.delete(f"/v1/units/{name}").status_code == 204
        assert client.get("/v1/maintenance").json()["events"] == []
        assert client.post("/v1/rows", json=ROWS[0]).json()["results"][0]["unit"] == "engines-0"


@pytest.mark.soak
def test_kill_9_loses_no_event(tmp_path: Path) -> None:
    bundle = BUNDLE.save(tmp_path / "bundle")
    for k in range(3):
        with process(bundle, tmp_path / "state") as (address, child):
            rows = ROWS[10 * k : 10 * k + 10]
            assert httpx.post(f"{address}/v1/rows", json=rows).json()["accepted"] == 10
            event = {**DONE, "at": f"2026-11-1{k}T07:00:00Z"}
            assert httpx.post(f"{address}/v1/maintenance", json=event).json()["recorded"] == 1
            child.send_signal(signal.SIGKILL)
            child.wait(20)
    with process(bundle, tmp_path / "state") as (address, _):
        begun = [event["begins"] for event in httpx.get(f"{address}/v1/maintenance").json()["events"]]
        assert begun == ["engines-0#4", "engines-0#3", "engines-0#2"]
