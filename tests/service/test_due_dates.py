"""Dates: the rate at which rows come, and what is said where it is not known."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from services import rows_of, running, small_bundle

from fedprognos.service.arrivals import DAY_IN_S, KEPT_DAYS, ArrivalLog, rates
from fedprognos.service.fleet_view import UnitView
from fedprognos.service.forecasts import Clock, Forecast, due_date
from fedprognos.service.row_store import StoredRow
from small_fleets import series_fleet

FLEET = series_fleet([60, 40])
BUNDLE = small_bundle(FLEET)
ROWS = rows_of(FLEET["engines-0"], FLEET)
NOON = 20_000 * DAY_IN_S + DAY_IN_S / 2


def days_of(unit: int, positions: list[float], step_in_s: float = DAY_IN_S) -> list[tuple[float, float, float]]:
    return [(unit, NOON + k * step_in_s, position) for k, position in enumerate(positions)]


@given(st.integers(3, 14), st.floats(0.01, 1e5), st.floats(0, 1e6))
def test_an_even_pace_is_recovered(count: int, per_day: float, first: float) -> None:
    days = days_of(1, [first + per_day * k for k in range(count)])
    (rate,) = rates(np.array(days), days[-1][1]).values()
    assert rate * DAY_IN_S == pytest.approx(per_day, rel=1e-3)


@given(st.lists(st.lists(st.floats(0.1, 100), min_size=1, max_size=14), min_size=1, max_size=6))
def test_units_do_not_change_each_others_rates(steps: list[list[float]]) -> None:
    fleet = [days_of(unit, np.cumsum(each).tolist()) for unit, each in enumerate(steps)]
    now = NOON + 13 * DAY_IN_S
    together = rates(np.array([day for days in fleet for day in days]), now)
    alone: dict[int, float] = {}
    for days in fleet:
        alone |= rates(np.array(days), now)
    assert together == alone
    assert set(together) >= {unit for unit, each in enumerate(steps) if len(each) >= 8}
    assert set(together) <= {unit for unit, each in enumerate(steps) if len(each) >= 3}


def test_an_old_file_sent_at_once_does_not_make_the_rate() -> None:
    log = ArrivalLog(sqlite3.connect(":memory:"), nullcontext())
    for day, positions in enumerate((range(1, 5001), (5010,), (5020,))):
        received = NOON + day * DAY_IN_S
        log.write([StoredRow(k, 1, None, float(k), False, received, True, b"") for k in positions])
    assert log.rates(NOON + 2 * DAY_IN_S)[1] * DAY_IN_S == pytest.approx(10)


def test_rows_within_two_days_give_no_rate() -> None:
    assert rates(np.array(days_of(1, [1.0, 2.0, 3.0], DAY_IN_S / 3)), NOON + DAY_IN_S) == {}
    assert rates(np.array(days_of(1, [1.0, 2.0])), NOON + 2 * DAY_IN_S) == {}


def test_a_machine_that_stands_gets_slower() -> None:
    days = np.array(days_of(1, [10.0, 20.0, 30.0]))
    assert rates(days, NOON + 9 * DAY_IN_S)[1] < rates(days, NOON + 2 * DAY_IN_S)[1]


def test_hours_do_not_pass_faster_than_in_real_time() -> None:
    view = UnitView("pump", 100.0, NOON)
    assert Clock.from_view(view, "hours", 1.0, NOON).rate == pytest.approx(1 / 3600)
    assert Clock.from_view(view, "cycles", 1.0, NOON).rate == 1.0


def test_positions_that_are_dates_need_no_rate() -> None:
    view = UnitView("pump", NOON / 3600, NOON)
    hours = NOON / 3600
    due = due_date(Forecast(-1.0, hours + 24, hours + 12, None, ""), Clock.from_view(view, "hours", None, NOON))
    assert due is not None and due.latest is None and due.per_day is None
    assert [due.earliest, due.date] == ["2024-10-05T00:00:00", "2024-10-05T12:00:00"]


def test_days_long_ago_are_dropped_but_for_the_first() -> None:
    log = ArrivalLog(sqlite3.connect(":memory:"), nullcontext())
    for day in range(40):
        log.write([StoredRow(day, 1, None, 10.0 * day + k, False, NOON + day * DAY_IN_S, True, b"") for k in (3, 5)])
    before = log.rates(NOON + 39 * DAY_IN_S)
    log.prune(NOON + 39 * DAY_IN_S)
    assert log.rates(NOON + 39 * DAY_IN_S) == log.rates(NOON + 39 * DAY_IN_S, 1) == before
    assert log.first_positions() == {1: 3.0}
    (kept,) = log._db.execute("SELECT count(*) FROM arrivals").fetchone()
    assert kept == KEPT_DAYS + 2
    log.forget(1)
    assert log.rates(NOON + 39 * DAY_IN_S) == {} and log.first_positions() == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_unit_gets_a_date_on_the_third_day(restarted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [NOON]
    monkeypatch.setattr("time.time", lambda: clock[0])
    with running(BUNDLE, state=tmp_path, threshold=0.0) as client:
        for day in range(3):
            clock[0] = NOON + day * DAY_IN_S
            client.post("/v1/rows", json=ROWS[20 * day : 20 * day + 20])
            answer = client.get("/v1/units/engines-0").json()
            assert (answer["due_date"]["date"] is None) == (day < 2) == bool(answer["due_date"]["reason"])
        if not restarted:
            check_dates(answer)
    if restarted:
        with running(BUNDLE, state=tmp_path, threshold=0.0) as client:
            check_dates(client.get("/v1/units/engines-0").json())


def check_dates(answer: dict[str, Any]) -> None:
    due = answer["due_date"]
    assert due["per_day"] == pytest.approx(20)
    in_days = (answer["forecast"]["due"] - answer["position"]) / 20
    expected = datetime.fromtimestamp(NOON + (2 + in_days) * DAY_IN_S, UTC)
    assert abs((datetime.fromisoformat(due["date"] + "+00:00") - expected).total_seconds()) <= 1
    assert answer["forecast"]["due"] > answer["position"]
