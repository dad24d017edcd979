"""What was accepted stays: across restarts, crashes and full disks."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from services import LIFE, process, rows_of, running, small_bundle

from fedprognos.errors import DataError, OutputError
from fedprognos.fleet import Fleet
from fedprognos.prognosis import Predictor, Row, Stream, Update
from fedprognos.service import DurableStream, durable_stream, fleet_service
from fedprognos.service.row_store import KEPT_ROWS
from refusals import refuses
from small_fleets import cyclic_fleet, series_fleet

FLEETS = {"series": series_fleet([40, 25, 33]), "cyclic": cyclic_fleet(2, 8)}


def mixed(fleet: Fleet, seed: int = 0) -> list[Row]:
    """Rows of all units in turn, with repeats, steps back and a jump that is confirmed."""
    rng = np.random.default_rng(seed)
    queues = [[Row(**row) for row in rows_of(unit, fleet)] for unit in fleet]
    order = rng.permutation(np.repeat(np.arange(len(queues)), [len(q) for q in queues]))
    places = [iter(q) for q in queues]
    rows: list[Row] = []
    for n, k in enumerate(order):
        row = next(places[k])
        if fleet.schema.task == "rul" and k == 0 and row.position > 20:
            row = dataclasses.replace(row, position=row.position + 1e6)
        rows.append(dataclasses.replace(row, end=True) if fleet.schema.task == "soh" and n % 5 == 0 else row)
        if n % 7 == 3:
            rows.append(rows[rng.integers(len(rows))])
    return rows


def healths(stream: DurableStream, rows: list[Row], at_once: int = 1) -> list[object]:
    parts = [rows[a : a + at_once] for a in range(0, len(rows), at_once)]
    return [(u.verdict, u.reason, u.healths) for part in parts for u in stream.take(part).updates]


@pytest.mark.parametrize("kind", FLEETS)
@pytest.mark.parametrize("tidied", [False, True])
def test_a_restart_changes_no_number(kind: str, tidied: bool, tmp_path: Path) -> None:
    fleet = FLEETS[kind]
    predictor = Predictor.from_bundle(small_bundle(fleet))
    rows = mixed(fleet)
    expected = healths(DurableStream(predictor), rows)
    found: list[object] = []
    cuts = [0, len(rows) // 5, len(rows) // 2, len(rows) // 2 + 1, len(rows)]
    for a, b in itertools.pairwise(cuts):
        own = DurableStream(predictor, tmp_path)
        found += healths(own, rows[a:b])
        own.close() if tidied else own.store.close()
    assert found == expected


@pytest.mark.parametrize("tidied", [False, True])
def test_a_life_goes_on_after_a_restart(tidied: bool, tmp_path: Path) -> None:
    fleet = FLEETS["series"]
    predictor, rows = Predictor.from_bundle(small_bundle(fleet, **LIFE)), mixed(fleet)
    expected = DurableStream(predictor).take(rows).updates
    found: list[Update] = []
    for a, b in itertools.pairwise([0, len(rows) // 5, len(rows) // 2, len(rows) // 2 + 1, len(rows)]):
        own = DurableStream(predictor, tmp_path)
        found += [update for row in rows[a:b] for update in own.take([row]).updates]
        own.close() if tidied else own.store.close()
    for one, other in zip(found, expected, strict=True):
        assert (one.verdict, one.reason) == (other.verdict, other.reason)
        if one.health is not None and other.health is not None:
            assert dataclasses.replace(one.health, value=other.health.value) == other.health
            assert one.health.value == pytest.approx(other.health.value, abs=1e-5 * predictor.recipe.label_std)


def test_a_new_model_of_lives_that_has_not_all_rows_says_since_when(tmp_path: Path) -> None:
    fleet = FLEETS["series"]
    unit = fleet["engines-0"]
    rows = [Row(**row) for row in rows_of(unit, fleet)]
    first = DurableStream(Predictor.from_bundle(small_bundle(fleet, **LIFE)), tmp_path, keep_rows=8)
    updates = first.take(rows[:30]).updates
    assert all(update.health is not None and "mid-life" not in update.health.flags for update in updates)
    first.close()
    new = Predictor.from_bundle(small_bundle(fleet, seed=4, **LIFE))
    with running(new.bundle, state=tmp_path, keep_rows=8) as client:
        health = client.post("/v1/rows", json=rows_of(unit, fleet)[30]).json()["results"][0]["health"]
        assert "mid-life" in health["flags"] and "watched from 23 on" in health["reason"]
        assert client.get(f"/v1/units/{unit.id}").json()["health"] == health
    expected = Stream(new).feed_many(rows[22:31])[-1].health
    assert expected is not None and health["value"] == pytest.approx(expected.value, abs=1e-5)


def test_the_next_life_of_a_repaired_machine_is_a_unit_of_its_own() -> None:
    fleet = FLEETS["series"]
    rows = rows_of(fleet["engines-0"], fleet)
    with running(small_bundle(fleet, **LIFE)) as client:
        first = client.post("/v1/rows", json=rows).json()["results"]
        again = client.post("/v1/rows", json=[{**row, "life": 2} for row in rows]).json()["results"]
        assert [one["health"]["value"] for one in again] == [one["health"]["value"] for one in first]
        assert {one["unit"] for one in again} == {"engines-0#2"}
        assert client.post("/v1/rows", json={**rows[0], "life": 2}).json()["results"][0]["result"] == "late"
        assert "counts the lives" in client.post("/v1/rows", json={**rows[0], "life": 0}).json()["results"][0]["reason"]


def test_a_unit_begun_anew_after_a_repair_must_be_forgotten_first() -> None:
    fleet = FLEETS["series"]
    own = DurableStream(Predictor.from_bundle(small_bundle(fleet, **LIFE)))
    rows = [Row(**row) for row in rows_of(fleet["engines-0"], fleet)]
    before = [update.health for update in own.take(rows).updates]
    (refused,) = own.take(rows[:1]).updates
    assert not refused.accepted and "after a repair, forget the unit or count its lives" in refused.reason
    own.forget("engines-0")
    assert [update.health for update in own.take(rows).updates] == before


@pytest.mark.parametrize("tidied", ["never", "before", "after", "both"])
def test_a_forgotten_unit_stays_forgotten_and_may_begin_anew(tidied: str, tmp_path: Path) -> None:
    fleet = FLEETS["series"]
    predictor = Predictor.from_bundle(small_bundle(fleet))
    rows = {unit.id: [Row(**row) for row in rows_of(unit, fleet)] for unit in fleet}
    own = DurableStream(predictor, tmp_path)
    for history in rows.values():  # the one forgotten came last, so its numbers are the highest
        own.take(history)
    if tidied in {"before", "both"}:
        own.tidy()
    assert own.forget("engines-2") and not own.forget("engines-2")
    assert own.history("engines-2") == ([], []) and own.stream.health("engines-2") is None
    if tidied in {"after", "both"}:
        own.tidy()
    own.store.close()
    own = DurableStream(predictor, tmp_path)
    assert set(own.names().values()) == {"engines-0", "engines-1"} == set(own.stream.units())
    fresh = healths(DurableStream(predictor), rows["engines-2"], 7)
    assert healths(own, rows["engines-2"][:14], 7) == fresh[:14]
    own.store.close()
    own = DurableStream(predictor, tmp_path)
    assert healths(own, rows["engines-2"][14:], 7) == fresh[14:]
    goes_on = dataclasses.replace(rows["engines-0"][-1], position=41.0)
    assert own.take([goes_on]).updates[0].health is not None
    own.close()


def test_what_clients_see_survives_a_restart(tmp_path: Path) -> None:
    fleet = FLEETS["series"]
    bundle = small_bundle(fleet)
    rows = [row for unit in fleet for row in rows_of(unit, fleet)]
    with running(bundle, state=tmp_path, threshold=25.0) as client:
        assert client.post("/v1/rows", json=rows).json()["accepted"] == len(rows)
        before = [client.get("/v1/units").json()["units"], client.get("/v1/units/engines-1").json()]
    with running(bundle, state=tmp_path, threshold=25.0) as client:
        after = [client.get("/v1/units").json()["units"], client.get("/v1/units/engines-1").json()]
    assert before[0] == after[0]
    assert {**before[1], "now": 0} == {**after[1], "now": 0}


def test_the_state_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_stream, "ROWS_BETWEEN_SNAPSHOTS", 200)
    fleet = series_fleet([900])
    predictor = Predictor.from_bundle(small_bundle(fleet))
    rows = [Row(**row) for row in rows_of(fleet["engines-0"], fleet)]
    own = DurableStream(predictor, tmp_path)
    expected = healths(DurableStream(predictor), rows, 10)
    assert healths(own, rows[:850], 10) == expected[:850]
    assert KEPT_ROWS <= len(list(own.store.rows_after(0))) <= KEPT_ROWS + 200
    assert len(list(tmp_path.glob("stream-*"))) == 1
    own.store.close()
    again = DurableStream(predictor, tmp_path)
    assert healths(again, rows[850:], 10) == expected[850:]
    again.close()


def test_a_full_disk_undoes_the_batch_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FLEETS["series"]
    rows = [row for unit in fleet for row in rows_of(unit, fleet)]
    with running(small_bundle(fleet), state=tmp_path) as client:
        assert client.post("/v1/rows", json=rows[:5]).status_code == 200
        database = client.app.state.service.stream.store._db  # type: ignore[attr-defined]
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count={pages}")
        bulky = [{**row, "unit": f"{row['unit']} {'x' * 200}"} for row in rows]
        refused = client.post("/v1/rows", json=bulky)
        assert refused.status_code == 503
        assert "nothing of this batch was stored" in refused.json()["detail"]
        assert client.get("/v1/fleet").json()["units"] == 1
        monkeypatch.setattr(fleet_service, "CHECKED_IN_S", 0.0)
        not_ready = client.get("/readyz")
        assert not_ready.status_code == 503 and "cannot be stored" in not_ready.json()["detail"]
        database.execute("PRAGMA max_page_count=1000000")
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/rows", json=bulky).json()["accepted"] == len(rows)
        assert client.post("/v1/rows", json=rows[5:]).json()["accepted"] == len(rows) - 5


def test_a_state_in_use_or_of_another_model_is_refused(tmp_path: Path) -> None:
    predictor = Predictor.from_bundle(small_bundle(FLEETS["series"]))
    own = DurableStream(predictor, tmp_path)
    with refuses(OutputError, tmp_path, "--state"):
        DurableStream(predictor, tmp_path)
    own.close()
    with refuses(DataError, tmp_path, "columns"):
        DurableStream(Predictor.from_bundle(small_bundle(FLEETS["series"], conditions={})), tmp_path)
    (tmp_path / "state.sqlite").write_bytes(b"not a database" * 100)
    with refuses(OutputError, tmp_path):
        DurableStream(predictor, tmp_path)


@pytest.mark.parametrize("history", [{"window": 12}, LIFE])
def test_a_new_model_goes_on_from_the_rows_that_are_stored(history: dict[str, object], tmp_path: Path) -> None:
    fleet = FLEETS["series"]
    old = Predictor.from_bundle(small_bundle(fleet, **history))
    new = Predictor.from_bundle(small_bundle(fleet, seed=4, **history))
    rows = {unit.id: [Row(**row) for row in rows_of(unit, fleet)] for unit in fleet}
    first = DurableStream(old, tmp_path)
    for own in rows.values():
        first.take(own[:20])
    first.close()  # with a snapshot of the old model
    second = DurableStream(new, tmp_path)
    found = {name: second.take(own[20:]).updates for name, own in rows.items()}
    second.close()
    for name, own in rows.items():
        whole = Stream(new)
        expected = whole.feed_many(own)[20:]
        assert [u.health.position for u in found[name]] == [u.health.position for u in expected]  # type: ignore[union-attr]
        values = [u.health.value for u in expected]  # type: ignore[union-attr]
        assert [u.health.value for u in found[name]] == pytest.approx(values, abs=1e-5)  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o777])
def test_nobody_else_can_look_into_the_state(mode: int, tmp_path: Path) -> None:
    predictor, state = Predictor.from_bundle(small_bundle(FLEETS["series"])), tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    own = DurableStream(predictor, state)
    own.take([Row(**row) for row in rows_of(FLEETS["series"].units[0], FLEETS["series"])])
    assert state.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in state.iterdir())
    own.close()
    state.chmod(0o755)  # as a copy may have it
    DurableStream(predictor, state).close()
    assert state.stat().st_mode & 0o077 == 0


def test_a_folder_with_other_things_in_it_is_not_closed_to_others_but_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("shared with colleagues")
    tmp_path.chmod(0o755)
    with refuses(OutputError, "0755", "chmod 700"):
        DurableStream(Predictor.from_bundle(small_bundle(FLEETS["series"])), tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    predictor = Predictor.from_bundle(small_bundle(FLEETS["series"]))
    own = DurableStream(predictor, tmp_path)
    own.take([Row(**row) for row in rows_of(FLEETS["series"].units[0], FLEETS["series"])])
    own.close()
    (path,) = tmp_path.glob("stream-*.safetensors")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with refuses(DataError, path):
        DurableStream(predictor, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize(("history", "first"), [({}, 10), (LIFE, 1)])
def test_kill_9_under_load_loses_nothing_acknowledged(history: dict[str, Any], first: int, tmp_path: Path) -> None:
    fleet = series_fleet([2000] * 4)
    bundle = small_bundle(fleet, **history).save(tmp_path / "bundle")
    acknowledged: dict[str, float] = {}

    def send(address: str, unit: str) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            for row in rows_of(fleet[unit], fleet):
                try:
                    answer = client.post("/v1/rows", json=row)
                except httpx.TransportError:
                    return
                assert answer.json()["accepted"] == 1
                acknowledged[unit] = row["position"]

    with process(bundle, tmp_path / "state") as (address, child):
        threads = [threading.Thread(target=send, args=(address, unit)) for unit in fleet.ids]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 120
        while sum(acknowledged.values()) < 400 and time.monotonic() < until:
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(20)
        child.wait(20)
    assert len(acknowledged) == 4
    assert all(position < 2000 for position in acknowledged.values())
    predictor = Predictor.load(bundle)
    own = DurableStream(predictor, tmp_path / "state")
    offline = predictor.bundle.predict(fleet, last=False)
    for unit, position in acknowledged.items():
        kept, _ = own.history(unit)
        last = kept[-1].position
        assert position <= last <= position + 1  # the row in flight may have been stored, unacknowledged
        following = rows_of(fleet[unit], fleet)[int(last)]
        health = own.take([Row(**following)]).updates[0].health
        assert health is not None
        assert health.value == pytest.approx(offline[unit][int(last) + 1 - first], rel=1e-5)
    own.close()


@pytest.mark.long
def test_a_stop_is_graceful_and_ends_event_streams(tmp_path: Path) -> None:
    fleet = FLEETS["series"]
    bundle = small_bundle(fleet).save(tmp_path / "bundle")
    with process(bundle, tmp_path / "state") as (address, child), httpx.Client(base_url=address, timeout=20) as client:
        with client.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            assert "retry: 2000" in next(lines)
            rows = rows_of(fleet["engines-0"], fleet)
            assert httpx.post(f"{address}/v1/rows", json=rows).json()["accepted"] == len(rows)
            assert any(line == "event: update" for line in lines)
            assert '"engines-0"' in next(lines)
            child.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        assert child.wait(20) in {0, -signal.SIGTERM}
    assert list((tmp_path / "state").glob("stream-*.safetensors"))
