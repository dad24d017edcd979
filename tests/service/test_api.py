"""What the HTTP interface promises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from services import Json, rows_of, running, small_bundle

from fedprognos.prognosis.health import Health
from fedprognos.service.fleet_view import STATUSES, FleetView, status_of
from fedprognos.service.forecasts import forecast
from small_fleets import cyclic_fleet, series_fleet

FLEET = series_fleet([24, 14, 17])
BUNDLE = small_bundle(FLEET)
ROWS = [row for unit in FLEET for row in rows_of(unit, FLEET)]


@pytest.fixture
def client() -> Iterator[TestClient]:
    with running(BUNDLE, threshold=30.0, max_rows=500) as client:
        yield client


def post(client: TestClient, body: Any) -> tuple[int, Json]:
    answer = client.post("/v1/rows", json=body)
    return answer.status_code, answer.json()


def changed(**parts: Any) -> Json:
    return {**ROWS[0], **parts}


def test_rows_one_by_one_give_the_offline_numbers(client: TestClient) -> None:
    expected = BUNDLE.predict(FLEET, last=False)
    for unit in FLEET:
        found = []
        for row in rows_of(unit, FLEET):
            status, answer = post(client, row)
            assert status == 200
            if answer["results"][0]["health"]["state"] == "ok":
                found.append(answer["results"][0]["health"]["value"])
        assert found == pytest.approx(expected[unit.id].tolist(), abs=1e-5)


def test_cycles_give_the_offline_numbers() -> None:
    fleet = cyclic_fleet(units=2, cycles=6)
    bundle = small_bundle(fleet)
    with running(bundle) as client:
        for unit, values in bundle.predict(fleet, last=False).items():
            status, answer = post(client, rows_of(fleet[unit], fleet))
            found = [r["health"]["value"] for r in answer["results"] if r["health"] is not None]
            assert status == 200
            assert found == pytest.approx(values.tolist()[: len(found)], abs=1e-5)
            assert len(found) >= len(values) - 1


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (changed(sensors={"pressure": 1.0}), "temperature"),
        (changed(sensors={**ROWS[0]["sensors"], "smell": 1.0}), "smell"),
        (changed(sensors={"pressure": "high", "temperature": 1.0}), "high"),
        (changed(sensors={"pressure": 10**400, "temperature": 1.0}), "pressure"),
        (changed(sensors={"pressure": 1e300, "temperature": 1.0}), "pressure"),
        (changed(settings={}), "altitude"),
        (changed(position="yesterday"), "yesterday"),
        (changed(position=10**400), "position"),
        (changed(position=10**16), "10000000000000000"),
        (changed(position=True), "True"),
        (changed(cycle=3), "cycle"),
        (changed(cycle=1.5), "cycle"),
        (changed(end=1), "end is 1"),
        (changed(end=True), "end"),
        (changed(unit=""), "unit"),
        (changed(unit="x" * 257), "unit"),
        (changed(unit=["a"]), "unit"),
        (changed(unit=".."), "unit"),
        (changed(unit="a\nb"), "unit"),
        *((changed(unit=f"engines{mark}-0"), "unit") for mark in "\x85\u200b\u202e\u2028\u2066\ufeff"),
        (changed(colour="red"), "colour"),
        ({"unit": "a", "position": 1}, "sensors"),
        ("a row", "unit"),
        (None, "unit"),
        (changed(sensors=[1, 2]), "sensors"),
    ],
)
def test_a_bad_row_is_refused_with_its_reason_and_harms_no_other(client: TestClient, row: Any, named: str) -> None:
    status, answer = post(client, [row])
    assert status == 422
    assert named in answer["results"][0]["reason"]
    assert client.get("/v1/fleet").json()["units"] == 0
    status, answer = post(client, [ROWS[0], row, ROWS[1]])
    assert status == 200
    assert [r["result"] for r in answer["results"]] == ["accepted", "refused", "accepted"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(client: TestClient, text: str) -> None:
    body = '{"unit":"a","position":1,"settings":{"altitude":0,"mach":0},"sensors":{"pressure":VALUE,"temperature":1}}'
    answer = client.post("/v1/rows", content=body.replace("VALUE", text), headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "pressure" in answer.json()["results"][0]["reason"]


def test_clocks_that_repeat_run_backwards_or_jump(client: TestClient) -> None:
    rows = rows_of(FLEET["engines-0"], FLEET)
    assert post(client, rows[:10])[0] == 200
    status, answer = post(client, rows[9])
    assert (status, answer["results"][0]["result"]) == (200, "duplicate")
    status, answer = post(client, rows[3])
    assert (status, answer["results"][0]["result"]) == (422, "late")
    assert {"4", "10"} <= set(answer["results"][0]["reason"].split())
    status, answer = post(client, {**rows[10], "position": 365 * 24 * 3600.0})
    assert (status, answer["results"][0]["result"]) == (422, "jumped")
    assert post(client, rows[10])[1]["accepted"] == 1


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 10_000, "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"[" + b"{}," * 500 + b"{}]", "application/json", 400),
    ],
)
def test_bodies_that_are_no_rows(client: TestClient, content: bytes, kind: str, status: int) -> None:
    answer = client.post("/v1/rows", content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_units_come_most_urgent_first_in_pages_and_by_name(client: TestClient) -> None:
    post(client, ROWS)
    post(client, changed(unit="engines-new"))
    answer = client.get("/v1/units").json()
    statuses = [unit["status"] for unit in answer["units"]]
    assert answer["total"] == 4
    assert statuses == sorted(statuses, key=STATUSES.index)
    assert answer["units"][-1]["health"]["reason"] == "1 of 10 rows"
    assert paged(client, "limit=1") == [unit["unit"] for unit in answer["units"]]
    assert [u["unit"] for u in client.get("/v1/units?q=NEW").json()["units"]] == ["engines-new"]
    assert client.get("/v1/units?limit=0").status_code == 422


def paged(client: TestClient, query: str) -> list[str]:
    """Names of all units of all parts."""
    names: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = client.get(f"/v1/units?{query}&cursor={cursor}")
        assert answer.status_code == 200, answer.text
        names += [unit["unit"] for unit in answer.json()["units"]]
        cursor = answer.json()["next"]
    return names


@pytest.mark.parametrize("sort", ["urgency", "-urgency", "unit", "-unit", "health", "-health", "received", "-received"])
def test_every_order_is_complete_in_parts_and_its_reverse(client: TestClient, sort: str) -> None:
    post(client, ROWS)
    post(client, [changed(unit=f"{site}/{k}") for site in ("north", "south") for k in range(3)])
    names = paged(client, f"limit=2&sort={sort}")
    assert len(names) == len(set(names)) == 9
    back = sort.removeprefix("-") if sort.startswith("-") else f"-{sort}"
    assert paged(client, f"limit=4&sort={back}") == names[::-1]


def test_units_are_filtered_by_status_and_site_and_exported(client: TestClient) -> None:
    post(client, ROWS)
    post(client, [changed(unit=f"{site}/{k}") for site in ("north", "south") for k in range(3)])
    assert paged(client, "site=south&sort=unit") == ["south/0", "south/1", "south/2"]
    assert client.get("/v1/fleet").json()["sites"] == ["north", "south"]
    every = [name for status in STATUSES for name in paged(client, f"status={status}")]
    assert every == paged(client, "limit=100")
    lines = client.get("/v1/units.csv?site=north&sort=-unit").text.splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [[f"north/{k}", "warming-up"] for k in (2, 1, 0)]


@pytest.mark.parametrize(
    ("query", "status", "named"),
    [
        ("colour=red", 400, "colour"),
        ("offset=1", 400, "offset"),
        ("status=broken", 422, "status"),
        ("sort=colour", 422, "sort"),
        ("cursor=nonsense", 400, "cursor"),
        ("cursor=WyJ1bml0IiwgMV0=&sort=unit", 400, "cursor"),
        ("cursor=WyJ1bml0IiwgImEiXQ==", 400, "cursor"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(client: TestClient, query: str, status: int, named: str) -> None:
    post(client, ROWS)
    answer = client.get(f"/v1/units?{query}")
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status) and named in problem["detail"]
    assert answer.headers["content-type"] == "application/problem+json" and problem["title"]
    assert client.get("/v1/fleet?q=a").status_code == client.post("/v1/rows?q=a", json=ROWS[0]).status_code == 400


def test_another_value_at_a_position_that_is_there_is_a_conflict(client: TestClient) -> None:
    rows = rows_of(FLEET["engines-0"], FLEET)
    post(client, rows[:12])
    name = FLEET.schema.sensors[0]
    other = {**rows[11], "sensors": {**rows[11]["sensors"], name: 5.0}}
    status, answer = post(client, other)
    assert (status, answer["results"][0]["result"], answer["refused"]) == (409, "conflict", 1)
    assert post(client, [rows[11], other])[1]["duplicates"] == 1
    assert client.get("/v1/units/engines-0").json()["samples"][-1]["sensors"] == rows[11]["sensors"]


def test_the_interface_says_how_the_token_is_shown() -> None:
    with running(BUNDLE, token="t" * 20) as client:
        document = client.get("/openapi.json", headers={"Authorization": "Bearer " + "t" * 20}).json()
    (scheme,) = document["security"][0]
    assert document["components"]["securitySchemes"][scheme] == {"type": "http", "scheme": "bearer"}
    assert document["paths"]["/healthz"]["get"]["security"] == []


def test_a_unit_shows_its_history_forecast_and_rows(client: TestClient) -> None:
    post(client, rows_of(FLEET["engines-0"], FLEET))
    unit = client.get("/v1/units/engines-0").json()
    assert [h["position"] for h in unit["history"]] == list(range(1, 25))
    assert unit["samples"][-1]["sensors"] == ROWS[23]["sensors"]
    assert unit["forecast"]["slope"] == -1.0
    assert client.get("/v1/units/nobody").status_code == 404


@pytest.mark.parametrize(
    "name", ["a/b c", "<img src=x onerror=alert(1)>", "100%", "ünit 7", "a?b#c", "'; DROP TABLE rows"]
)
def test_any_name_can_be_asked_for(client: TestClient, name: str) -> None:
    post(client, changed(unit=name))
    from urllib.parse import quote

    assert client.get("/v1/units/" + quote(name, safe="")).json()["unit"] == name


def test_a_health_is_explained_by_its_sensors(client: TestClient) -> None:
    unit = FLEET.units[0]
    client.post("/v1/rows", json=rows_of(unit, FLEET))
    explained = client.get(f"/v1/why/{unit.id}").json()
    assert explained["unit"] == unit.id and explained["position"] == unit.time[-1]
    assert {cause["sensor"] for cause in explained["causes"]} == set(FLEET.schema.sensors)
    assert sum(cause["effect"] for cause in explained["causes"]) == pytest.approx(explained["total"], abs=0.5)
    client.post("/v1/rows", json={**rows_of(unit, FLEET)[0], "unit": "new"})
    assert client.get("/v1/why/new").status_code == 409 and client.get("/v1/why/nobody").status_code == 404


def test_more_units_than_allowed_are_refused_and_the_known_go_on() -> None:
    with running(BUNDLE, max_units=2) as client:
        first = [changed(unit="a"), changed(unit="b")]
        assert post(client, first)[1]["accepted"] == 2
        status, answer = post(client, [changed(unit="c"), changed(unit="a", position=2)])
        assert (status, answer["accepted"]) == (200, 1)
        assert "2 units" in answer["results"][0]["reason"]


@pytest.mark.parametrize("name", ["engines-1", "a/b c", "100%", "ünit 7"])
def test_a_unit_can_be_forgotten(client: TestClient, name: str) -> None:
    from urllib.parse import quote

    path = "/v1/units/" + quote(name, safe="")
    post(client, [*ROWS, changed(unit=name, position=1e3), changed(unit="a/b c d")])
    before = client.get("/v1/fleet").json()
    assert client.delete(path).status_code == 204
    assert client.delete(path).status_code == 404
    assert client.get(path).status_code == 404
    after = client.get("/v1/fleet").json()
    assert after["units"] == before["units"] - 1 == sum(after["counts"].values())
    assert post(client, changed(unit=name))[1]["results"][0]["health"]["reason"].startswith("1 of 10 rows")


def test_forgetting_makes_room_for_another_unit() -> None:
    with running(BUNDLE, max_units=2) as client:
        post(client, [changed(unit="a"), changed(unit="b")])
        assert post(client, changed(unit="c"))[0] == 422
        client.delete("/v1/units/a")
        assert post(client, changed(unit="c"))[0] == 200


def test_operation(client: TestClient) -> None:
    post(client, ROWS)
    post(client, ROWS[-1])
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    text = client.get("/metrics").text
    assert f'fedprognos_rows_total{{result="accepted"}} {len(ROWS)}.0' in text
    assert 'fedprognos_rows_total{result="duplicate"} 1.0' in text
    assert "fedprognos_batch_rows_count 2.0" in text
    schema = client.get("/openapi.json").json()
    row = schema["paths"]["/v1/rows"]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]
    assert row["properties"]["sensors"]["required"] == ["pressure", "temperature"]


def test_the_fleet_says_where_its_model_comes_from() -> None:
    provenance = {"experiment": "pumps", "method": "absorb", "head": "exact", "seed": 0, "round": 1, "units": 40}
    provenance |= {"train_clients": ["north", "south"], "fedprognos": "0.1.0", "ridge": 0.01}
    with running(replace(BUNDLE, provenance=provenance)) as client:
        assert client.get("/v1/fleet").json()["origin"] == {
            **{key: provenance[key] for key in ("experiment", "method", "head", "seed", "round", "units")},
            "trained_by": ["north", "south"],
            "version": "0.1.0",
        }
    odd = {"experiment": 7, "method": ["x"], "seed": True, "units": "many", "train_clients": "north"}
    with running(replace(BUNDLE, provenance=odd)) as client:
        origin = client.get("/v1/fleet").json()["origin"]
    assert origin.pop("trained_by") == []
    assert set(origin.values()) == {None, ""}


def test_without_calibration_no_unit_near_its_threshold_is_fine_and_no_coverage_is_claimed(client: TestClient) -> None:
    fleet = client.get("/v1/fleet").json()
    assert fleet["coverage"] is None
    assert fleet["no_intervals"] == "this model was not calibrated"
    assert "whether the machine wears in an unknown way" in fleet["unchecked"]
    assert fleet["signed_by"] is None
    assert fleet["margin"] == pytest.approx(BUNDLE.recipe.label_std / 2)
    post(client, ROWS)
    for unit in client.get("/v1/units").json()["units"]:
        value = unit["health"]["value"]
        near = "due" if value <= 30.0 else "soon" if value - fleet["margin"] <= 30.0 else None
        assert unit["health"]["low"] is None and (near is None or unit["status"] == near)


def test_a_unit_with_a_broken_sensor_is_to_be_checked() -> None:
    with running(BUNDLE, threshold=0.0) as client:
        rows = rows_of(FLEET["engines-0"], FLEET)
        post(client, rows)
        assert client.get("/v1/units/engines-0").json()["status"] == "ok"
        last = rows[-1]["sensors"]
        alive = [{**last, "temperature": last["temperature"] + 0.01 * k, "pressure": 512.0} for k in range(40)]
        frozen = [{**rows[-1], "position": 25.0 + k, "sensors": own} for k, own in enumerate(alive)]
        post(client, frozen)
        unit = client.get("/v1/units/engines-0").json()
        assert unit["status"] == "unknown" and "stuck" in unit["health"]["flags"]
        assert "pressure" in unit["health"]["reason"] and unit["health"]["low"] is None
        assert unit["forecast"] is None  # a value that is not to be trusted has no date
        assert client.post("/v1/acknowledged/engines-0").status_code == 204
        assert client.post("/v1/acknowledged/nobody").status_code == 404
        moving = [{**row, "position": row["position"] + 64.0} for row in rows[-3:]]
        post(client, moving)
        assert "stuck" not in client.get("/v1/units/engines-0").json()["health"]["flags"]


def test_soh_is_carried_on_as_it_fell_lately() -> None:
    healths = [Health("cell", k, 1.0 - 0.01 * k, 0.9 - 0.01 * k, None) for k in range(20)]
    found = forecast("soh", healths, 0.7)
    assert found is not None
    assert found.slope == pytest.approx(-0.01)
    assert found.due == pytest.approx(30)
    assert found.due_low == pytest.approx(20)
    assert found.due_high is None
    assert forecast("soh", healths[:3], 0.7) is None
    rising = forecast("soh", [Health("cell", k, 1.0 + 0.01 * k) for k in range(9)], 0.7)
    assert rising is not None
    assert rising.due is None
    assert math.isclose(rising.slope, 0.01)


def test_a_value_at_the_cap_has_no_date() -> None:
    capped = Health("engine", 10, 125.0, 97.0, None, flags=("at-cap",))
    assert forecast("rul", [capped], 25.0) is None
    assert status_of(capped, 25.0) == "ok"


def test_a_repaired_machine_is_one_line_and_its_ended_life_is_not_due(client: TestClient) -> None:
    post(client, [changed(unit="pump", position=k) for k in range(1, 30)])
    post(client, [changed(unit="pump", life=2, position=k) for k in range(1, 4)])
    listed = client.get("/v1/units").json()["units"]
    assert [unit["unit"] for unit in listed] == ["pump#2"] and listed[0]["machine"] == "pump"
    fleet = client.get("/v1/fleet").json()
    assert fleet["units"] == sum(fleet["counts"].values()) == 1
    assert client.get("/v1/units/pump").json()["status"] == "ended"
    assert client.get("/v1/units/pump%232").json()["lives"] == ["pump", "pump#2"]


def test_names_that_end_like_a_life_are_machines_of_their_own_without_a_first_life(client: TestClient) -> None:
    post(client, [changed(unit="press#2"), changed(unit="press#3")])
    assert {unit["unit"] for unit in client.get("/v1/units").json()["units"]} == {"press#2", "press#3"}


def test_refused_rows_are_shown(client: TestClient) -> None:
    post(client, [ROWS[0], changed(unit="engines-9", sensors={"pressure": 1.0}), "no row"])
    fleet = client.get("/v1/fleet").json()
    assert fleet["refused"] == 2
    assert {refusal["unit"] for refusal in fleet["refusals"]} == {"engines-9", None}
    assert any("temperature" in refusal["reason"] for refusal in fleet["refusals"])


def test_refused_rows_are_shown_in_part_where_they_are_long(client: TestClient) -> None:
    post(client, [changed(unit="x" * 100_000), changed(unit=["x" * 100_000]), {"y" * 100_000: 1}])
    fleet = client.get("/v1/fleet")
    assert fleet.json()["refused"] == 3 and len(fleet.content) < 10_000


def test_a_unit_that_falls_silent_is_no_longer_fine(client: TestClient) -> None:
    post(client, rows_of(FLEET["engines-0"], FLEET))
    view: FleetView = client.app.state.service.view  # type: ignore[attr-defined]
    unit = view.units["engines-0"]
    view.threshold, view.margin = 0.0, 0.0
    view._set_status(unit)
    assert unit.status == "ok" and view.note_silence(unit.received + 60) == []
    assert view.note_silence(unit.received + 1000) == [unit]
    assert unit.status == "unknown" and unit.silent_since == unit.received
    assert view.counts()["unknown"] == 1 and view.note_silence(unit.received + 2000) == []
    post(client, {**rows_of(FLEET["engines-0"], FLEET)[-1], "position": 25.0})
    assert unit.status == "ok" and unit.silent_since is None
