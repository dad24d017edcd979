"""Backups: written while rows come in, complete or not there at all, and restored to the same numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from services import LIFE, process, rows_of, running, small_bundle

from fedprognos.errors import ConfigError, DataError, OutputError
from fedprognos.prognosis import Health, Predictor, Row
from fedprognos.service import DurableStream, ServiceOptions, restore_backup, row_store
from fedprognos.service.alerts import AlertRule
from fedprognos.service.backups import MARK, TRAILER_IN_BYTES, StoppedError, backups_in, write_backup
from fedprognos.service.maintenance import MaintenanceReport
from refusals import refuses
from small_fleets import cyclic_fleet, series_fleet

SERIES, CYCLIC = series_fleet([60, 40, 33]), cyclic_fleet(2, 8)
CASES = {"windows": (SERIES, {}), "lives": (SERIES, LIFE), "cycles": (CYCLIC, {})}
OPTIONS = ServiceOptions(threshold=0.0)
EXCHANGE = MaintenanceReport.model_validate(
    {"unit": "engines-0", "kind": "sensor-exchange", "at": "2026-11-18T07:00", "who": "Mia", "sensor": "s1"}
)


def predictor_of(case: str) -> Predictor:
    fleet, history = CASES[case]
    return Predictor.from_bundle(small_bundle(fleet, **history))


def rows_in_turn(case: str) -> list[Row]:
    """Rows of all units in turn; the sensors of the first unit stand still from its tenth row on."""
    fleet, _ = CASES[case]
    queues = [[Row(**row) for row in rows_of(unit, fleet)] for unit in fleet]
    stuck = queues[0][10].sensors
    queues[0][10:] = [dataclasses.replace(row, sensors=stuck) for row in queues[0][10:]]
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(queues)), [len(q) for q in queues]))
    places = [iter(queue) for queue in queues]
    return [next(places[k]) for k in order]


def opened(predictor: Predictor, folder: Path) -> DurableStream:
    rule = AlertRule(lambda health: "due" if (health.value or 0) < 19 else "ok", 1, 1)
    return DurableStream(predictor, folder, alert_rule=rule)


def never() -> bool:
    return False


def restored(predictor: Predictor, backup: Path, state: Path) -> DurableStream:
    restore_backup(predictor, dataclasses.replace(OPTIONS, state=state), backup)
    return opened(predictor, state)


def fed(stream: DurableStream, rows: list[Row]) -> list[tuple[object, ...]]:
    return [(u.verdict, u.reason, u.healths) for row in rows for u in stream.take([row]).updates]


def same(one: Health, other: Health, tolerance: float) -> bool:
    near = one.value == pytest.approx(other.value, abs=tolerance)
    return near and dataclasses.replace(one, value=0.0, low=None, high=None) == dataclasses.replace(
        other, value=0.0, low=None, high=None
    )


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tidied", ["never", "before", "during"])
def test_a_restored_stream_goes_on_as_if_nothing_had_happened(
    case: str, tidied: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_store, "PAGES_COPIED_AT_ONCE", 1)
    predictor, rows = predictor_of(case), rows_in_turn(case)
    stream = opened(predictor, tmp_path / "state")
    first, arriving = len(rows) // 2, iter(rows[len(rows) // 2 :])
    fed(stream, rows[:first])
    sensor = predictor.recipe.sensors[0]
    unit = rows[0].unit
    report = EXCHANGE.model_copy(update={"sensor": sensor, "unit": unit})
    assert stream.record(report)[0].event is not None
    if tidied == "before":
        stream.tidy()
        fed(stream, [next(arriving) for _ in range(5)])
    taken = stream.store.last_id()
    steps = 0

    with ThreadPoolExecutor(1) as stream_thread:

        def a_row_arrives() -> bool:
            nonlocal steps
            steps += 1
            if steps <= 10:
                stream_thread.submit(stream.take, [next(arriving)]).result()
            if steps == 7 and tidied == "during":
                stream_thread.submit(stream.tidy).result()
            return False

        backup = write_backup(stream, tmp_path / "backups", 7, a_row_arrives)
    assert steps > 10  # the copy took many steps, with rows between them
    copy = restored(predictor, backup, tmp_path / "restored")
    assert copy.store.last_id() == stream.store.last_id() == taken + 10
    assert copy.store.maintenance.latest(10) == stream.store.maintenance.latest(10) != []
    assert copy.store.alerts.latest(1000) == stream.store.alerts.latest(1000) != []
    assert copy.store.alerts.standings() == stream.store.alerts.standings()
    tolerance = 1e-5 * predictor.recipe.label_std if case == "lives" else 0.0
    flags = set()
    for name in stream.names().values():
        one, other = copy.stream.health(name), stream.stream.health(name)
        assert one is not None and other is not None and same(one, other, tolerance)
        flags.update(one.flags)
        assert copy.history(name) == stream.history(name)
    assert case != "windows" or "stuck" in flags
    later = list(arriving)
    for (verdict, reason, ones), (other_verdict, other_reason, others) in zip(
        fed(copy, later), fed(stream, later), strict=True
    ):
        assert (verdict, reason) == (other_verdict, other_reason)
        assert all(same(a, b, tolerance) for a, b in zip(ones, others, strict=True))  # type: ignore[call-overload]
    stream.store.close()
    copy.store.close()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup with a snapshot in it."""
    folder = tmp_path_factory.mktemp("backup")
    stream = opened(predictor_of("windows"), folder / "state")
    rows = rows_in_turn("windows")
    stream.take(rows[:40])
    stream.tidy()
    stream.take(rows[40:60])
    path = write_backup(stream, folder / "backups", 7, never)
    stream.store.close()
    return path


def test_a_backup_is_private_and_only_the_latest_stay(tmp_path: Path) -> None:
    stream = opened(predictor_of("windows"), tmp_path / "state")
    stream.take(rows_in_turn("windows")[:20])
    folder, series = tmp_path / "backups", stream.store.alerts.series
    folder.mkdir()
    old = [folder / f"fedprognos-{series}-2020010{day}T000000Z.backup" for day in range(1, 5)]
    other = folder / "fedprognos-00000000-20200101T000000Z.backup"
    for path in (*old, other):
        path.touch()
    killed = folder / f".fedprognos-{series}-20200105T000000Z.backup-x"
    killed.mkdir()
    new = write_backup(stream, folder, 3, never)
    assert backups_in(folder, series) == [*old[2:], new] and other.exists() and not killed.exists()
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    with pytest.raises(StoppedError):
        write_backup(stream, folder, 3, lambda: True)
    assert {path.name for path in folder.iterdir()} == {path.name for path in (*old[2:], new, other)}
    stream.store.close()


def test_old_snapshots_go_with_the_first_tidying_after_a_backup(tmp_path: Path) -> None:
    stream = opened(predictor_of("windows"), tmp_path / "state")
    rows = rows_in_turn("windows")
    with stream.keeping_snapshots():
        for k in range(3):
            stream.take(rows[10 * k : 10 * k + 10])
            stream.tidy()
        assert len(list((tmp_path / "state").glob("stream-*"))) == 3
    stream.take(rows[30:40])
    stream.tidy()
    assert len(list((tmp_path / "state").glob("stream-*"))) == 1
    stream.store.close()


def test_a_restored_service_uses_no_id_of_an_alert_again(tmp_path: Path) -> None:
    predictor, rows = predictor_of("windows"), rows_in_turn("windows")
    stream = opened(predictor, tmp_path / "state")
    stream.take(rows[:60])
    backup = write_backup(stream, tmp_path, 7, never)
    later = [alert.id for alert in stream.take(rows[60:]).alerts]
    copy = restored(predictor, backup, tmp_path / "restored")
    before = copy.store.alerts.latest(1000)
    again = [alert.id for alert in copy.take(rows[60:]).alerts]
    assert len(again) == len(later) > 0 and not set(again) & set(later)
    copy.tidy()
    assert copy.store.alerts.latest(1000)[len(again) :] == before != []  # the jump in numbers drops no alert
    stream.store.close()
    copy.store.close()


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_backup_is_refused(
    place: float, bit: int, cut: bool, backup: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray(backup.read_bytes())
    at = int(place * len(content))
    content[at] ^= 1 << bit
    bad = folder / "bad.backup"
    bad.write_bytes(content[:at] if cut else content)
    refused(bad, folder / "state")
    shutil.rmtree(folder)


def refused(file: Path, state: Path, case: str = "windows") -> None:
    """The file is refused as data, and leaves nothing in the state folder."""
    with refuses(DataError, file.name, code="data"):
        restore_backup(predictor_of(case), dataclasses.replace(OPTIONS, state=state), file)
    assert list(state.iterdir()) == []


def forged(backup: Path, file: Path, change: Callable[[sqlite3.Connection], object]) -> Path:
    """The backup with a change and the right digest."""
    file.write_bytes(backup.read_bytes()[:-TRAILER_IN_BYTES])
    db = sqlite3.connect(file, isolation_level=None)
    change(db)
    db.close()
    content = file.read_bytes()
    file.write_bytes(content + MARK + hashlib.sha256(content).hexdigest().encode() + b"\n")
    return file


FORGERIES = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END",
    "view": "CREATE VIEW v AS SELECT 1",
    "table of another version": "ALTER TABLE rows ADD COLUMN more TEXT",
    "index missing": "DROP INDEX rows_of_unit",
    "format": "UPDATE facts SET value = '2' WHERE name = 'format'",
    "columns": "UPDATE facts SET value = '[]' WHERE name = 'columns'",
    "model": "UPDATE facts SET value = 'another' WHERE name = 'model'",
    "snapshot's name": "UPDATE facts SET value = '../../x' WHERE name = 'snapshot'",
    "other snapshot's number": "UPDATE facts SET value = '-3' WHERE name = 'snapshot'",
    "no snapshot": "DELETE FROM snapshot_parts",
    "snapshot of text": "UPDATE snapshot_parts SET data = 'x'",
    "short rows": "UPDATE rows SET numbers = x'00'",
    "rows of no unit": "UPDATE rows SET unit = 99",
    "text in place of a number": "UPDATE rows SET position = 'x'",
    "alert without health": "UPDATE alerts SET health = '{}'",
    "event without a date": "INSERT INTO maintenance VALUES (99, 'a', '', 'repair', '', 'x', NULL, '', 'Mia', '', 0.0)",
    "path for a name of files": "UPDATE facts SET value = '../../x' WHERE name = 'alerts'",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_backup_is_refused(forgery: str, backup: Path, tmp_path: Path) -> None:
    refused(forged(backup, tmp_path / "bad.backup", lambda db: db.execute(FORGERIES[forgery])), tmp_path / "state")


def test_other_files_models_and_folders_in_use_are_refused(backup: Path, tmp_path: Path) -> None:
    text = b"not a database"
    whole = tmp_path / "text.backup"
    whole.write_bytes(text + MARK + hashlib.sha256(text).hexdigest().encode() + b"\n")
    refused(whole, tmp_path / "state")
    refused(tmp_path / "absent.backup", tmp_path / "state")
    refused(tmp_path, tmp_path / "state")
    refused(backup, tmp_path / "state", "lives")
    refused(backup, tmp_path / "state", "cycles")
    state = tmp_path / "state"
    stream = restored(predictor_of("windows"), backup, state)
    stream.store.close()
    assert {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    with refuses(OutputError, state):
        restore_backup(predictor_of("windows"), dataclasses.replace(OPTIONS, state=state), backup)
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before
    with refuses(ConfigError, "--backup-to"):
        ServiceOptions(backup_to=tmp_path).check()


def test_the_service_writes_backups_and_says_when(tmp_path: Path) -> None:
    fleet, _ = CASES["windows"]
    rows = rows_of(fleet["engines-0"], fleet)
    with running(
        small_bundle(fleet), state=tmp_path / "state", backup_to=tmp_path / "backups", backup_every_in_s=0.05
    ) as client:
        client.post("/v1/rows", json=rows[:30])
        stored = time.time()
        until = time.monotonic() + 20
        name = "fedprognos_last_backup_timestamp_seconds "
        while time.monotonic() < until:
            text = client.get("/metrics").text
            began = next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))
            if began > stored:
                break
            time.sleep(0.02)
        shown = client.get("/v1/units/engines-0").json()
    (backup, *_) = sorted((tmp_path / "backups").glob("*.backup"), reverse=True)
    restore_backup(predictor_of("windows"), dataclasses.replace(OPTIONS, state=tmp_path / "restored"), backup)
    with running(small_bundle(fleet), state=tmp_path / "restored") as client:
        again = client.get("/v1/units/engines-0").json()
        assert (again["health"], again["history"]) == (shown["health"], shown["history"])
        assert client.post("/v1/rows", json=rows[29]).json()["results"][0]["result"] == "duplicate"
        assert client.post("/v1/rows", json=rows[30]).json()["results"][0]["result"] == "accepted"


@pytest.mark.soak
def test_a_killed_service_leaves_whole_backups_only(tmp_path: Path) -> None:
    fleet, _ = CASES["windows"]
    bundle, backups = tmp_path / "bundle", tmp_path / "backups"
    small_bundle(fleet).save(bundle)
    rows = [{**row, "unit": f"pump {k}"} for k in range(200) for row in rows_of(fleet["engines-0"], fleet)]
    options = ("--backup-to", str(backups), "--backup-every", "0.001")
    with process(bundle, tmp_path / "state", *options) as (address, child):
        httpx.post(f"{address}/v1/rows", json=rows[:9000], timeout=60).raise_for_status()
        until = time.monotonic() + 60
        while time.monotonic() < until and not (list(backups.glob(".*")) and list(backups.glob("*.backup"))):
            time.sleep(0.0005)
        child.kill()
        child.wait()
    whole = sorted(backups.glob("*.backup"))
    assert whole and list(backups.glob(".*"))  # it was killed while it wrote one
    with process(bundle, tmp_path / "restored", "--restore", str(whole[-1])) as (address, _child):
        assert httpx.get(f"{address}/v1/fleet").status_code == 200
