"""The calendar: what is due now, what has a date, and what has none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from services import rows_of, running, small_bundle

from fedprognos.fleet import Fleet
from fedprognos.service.arrivals import DAY_IN_S
from small_fleets import cyclic_fleet, series_fleet

NOON = 20_000 * DAY_IN_S + DAY_IN_S / 2
DATES = ("date", "earliest", "latest")


@pytest.mark.parametrize("fleet", [series_fleet([60, 40, 45]), cyclic_fleet(3, 12)], ids=["rul", "soh"])
def test_the_calendar_says_what_the_units_say(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [NOON]
    monkeypatch.setattr("time.time", lambda: clock[0])
    bundle = small_bundle(fleet)
    with running(bundle) as client:  # to find a threshold that parts the fleet
        for unit in fleet:
            client.post("/v1/rows", json=rows_of(unit, fleet))
        values = sorted(unit["health"]["value"] for unit in client.get("/v1/units").json()["units"])
    with running(bundle, threshold=(values[0] + values[1]) / 2) as client:
        for day in range(3):
            clock[0] = NOON + day * DAY_IN_S
            for unit in fleet:
                rows = rows_of(unit, fleet)
                part = len(rows) // 3
                client.post("/v1/rows", json=rows[day * part : (day + 1) * part if day < 2 else None])
        client.post("/v1/rows", json={**rows_of(next(iter(fleet)), fleet)[0], "unit": "north/new"})
        calendar = client.get("/v1/calendar").json()
        entries = {entry["unit"]: entry for entry in calendar["entries"]}
        assert calendar["total"] == len(entries) and calendar["total"] + calendar["undated"] == 4
        assert [entry["status"] == "due" for entry in entries.values()] == [True] + [False] * (len(entries) - 1)
        assert all(a["date"] <= b["date"] for a, b in pairwise(calendar["entries"][1:]))
        for name in [*(unit.id for unit in fleet), "north/new"]:
            answer = client.get(f"/v1/units/{name}").json()
            due = answer["due_date"] or dict.fromkeys(DATES)
            assert (name in entries) == (answer["status"] == "due" or due["date"] is not None)
            assert name not in entries or {key: entries[name][key] for key in DATES} == {key: due[key] for key in DATES}
        if fleet.schema.task == "rul":
            assert len(entries) == 3
        first = calendar["entries"][:1]
        assert client.get("/v1/calendar", params={"limit": 1}).json()["entries"] == first
        assert client.get("/v1/calendar", params={"site": "north"}).json()["total"] == 0
        assert client.get("/v1/calendar", params={"q": first[0]["unit"]}).json()["entries"] == first
        assert client.get("/v1/calendar", params={"week": 1}).status_code == 400
