"""A second model runs along, is compared, serves when somebody says so, and gives way again."""

from __future__ import annotations

import dataclasses
import errno
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from services import LIFE, process, rows_of, running, small_bundle
from typer.testing import CliRunner

from fedprognos.arrays import Rows
from fedprognos.cli import app
from fedprognos.errors import BundleError, OutputError
from fedprognos.fleet import Fleet
from fedprognos.networks import Bundle
from fedprognos.networks.trust import SignatureError
from fedprognos.prognosis import Health, HealthModel, Predictor, Row
from fedprognos.service import DurableStream, ServiceOptions, restore_backup
from fedprognos.service.backups import write_backup
from fedprognos.service.durable_stream import snapshot_name
from fedprognos.service.http_app import create_app
from refusals import refuses
from small_fleets import cyclic_fleet, series_fleet

FLEET = series_fleet([40, 25, 33])
FLEETS = {"series": FLEET, "life": FLEET, "cyclic": cyclic_fleet(2, 8)}
FIRST, SECOND = (
    dataclasses.replace(small_bundle(FLEET, seed=seed), provenance={"experiment": f"pumps {seed}"}) for seed in (3, 4)
)


def pair(kind: str) -> tuple[Predictor, Predictor]:
    options = LIFE if kind == "life" else {}
    first, second = (small_bundle(FLEETS[kind], seed=seed, **options) for seed in (3, 4))
    return Predictor.from_bundle(first), Predictor.from_bundle(second)


def in_turn(fleet: Fleet) -> list[Row]:
    """Rows of all units, each unit's in its order."""
    queues = [[Row(**row) for row in rows_of(unit, fleet)] for unit in fleet]
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(queues)), [len(queue) for queue in queues]))
    places = [iter(queue) for queue in queues]
    return [next(places[k]) for k in order]


def feed(stream: DurableStream, rows: list[Row]) -> list[Health]:
    """Healths of rows that come three at a time; the second model reads them when they were answered."""
    healths = []
    for k in range(0, len(rows), 3):
        healths += [health for update in stream.take(rows[k : k + 3]).updates for health in update.healths]
        stream.follow()
    return healths


def assert_same(healths: list[Health], expected: list[Health], kind: str) -> None:
    """The same bits; a network that carries states rounds by how many rows it reads at a time."""
    if kind != "life":
        assert healths == expected
        return
    for health, other in zip(healths, expected, strict=True):
        assert dataclasses.replace(health, value=other.value) == other
        assert health.value == (None if other.value is None else pytest.approx(other.value, rel=1e-5))


def leave(stream: DurableStream, how: str) -> None:
    stream.close() if how == "stopped" else stream.store.close()


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("kind", FLEETS)
def test_promoted_and_rolled_back_models_say_what_they_would_have_said_alone(
    kind: str, how: str, tmp_path: Path
) -> None:
    first, second = pair(kind)
    rows = in_turn(FLEETS[kind])
    a, b, c, d = (len(rows) * k // 5 for k in (1, 2, 3, 4))
    alone = {model: DurableStream(model) for model in (first, second)}
    expected = {
        model: [feed(stream, rows[x:y]) for x, y in ((0, b), (b, d), (d, None))] for model, stream in alone.items()
    }
    assert expected[first][2] != expected[second][2]

    own = DurableStream(first, tmp_path, shadow=second)
    feed(own, rows[:a])
    leave(own, how)
    own = DurableStream(first, tmp_path, shadow=second)
    feed(own, rows[a:b])
    own.swap_models("promote", "Mia")
    leave(own, how)
    own = DurableStream(first, tmp_path, shadow=second)  # the same command as before
    assert (own.model, own.shadow_model) == (second, first)
    healths = feed(own, rows[b:c])
    leave(own, how)
    own = DurableStream(first, tmp_path, shadow=second)
    assert_same(healths + feed(own, rows[c:d]), expected[second][1], kind)
    own.swap_models("rollback", "Mia")
    leave(own, how)
    own = DurableStream(first, tmp_path, shadow=second)
    assert (own.model, own.shadow_model) == (first, second)
    assert_same(feed(own, rows[d:]), expected[first][2], kind)
    assert own.shadow is not None
    names = FLEETS[kind].ids
    shadows = [health for health in own.shadow.healths(names) if health is not None]
    assert_same(shadows, [health for health in alone[second].stream.healths(names) if health is not None], kind)
    changes = own.store.models.latest(10)
    assert [(change.kind, change.serving, change.who) for change in changes] == [
        ("rollback", first.fingerprint, "Mia"),
        ("promote", second.fingerprint, "Mia"),
        ("start", first.fingerprint, ""),
    ]
    own.close()


def test_a_model_that_is_given_first_serves_unless_these_two_were_swapped(tmp_path: Path) -> None:
    first, second = pair("series")
    third = Predictor.from_bundle(small_bundle(FLEET, seed=5))
    own = DurableStream(first, tmp_path, shadow=second)
    own.swap_models("promote", "Mia")
    own.close()
    for given, serving in (((first, third), first), ((first, second), first), ((second, None), second)):
        own = DurableStream(given[0], tmp_path, shadow=given[1])
        assert own.model is serving
        own.close()


@pytest.mark.parametrize("moment", ["begin", "rows"])
def test_a_second_model_that_fails_fails_no_row(moment: str, tmp_path: Path) -> None:
    rows = [Row(**row) for row in rows_of(FLEET.units[0], FLEET)]
    first = Predictor.from_bundle(FIRST)
    fails = moment == "begin"

    def network(windows: Rows) -> Any:
        if fails:
            raise RuntimeError("out of order")
        return windows[:, -1, 0]

    shadow = HealthModel(FIRST.recipe, network)
    if moment == "begin":
        own = DurableStream(first, tmp_path)
        feed(own, rows[:20])
        own.close()
    own = DurableStream(first, tmp_path, shadow=shadow)
    expected = feed(DurableStream(first), rows)[20:]
    if moment != "begin":
        feed(own, rows[:20])
        fails = True
    healths = feed(own, rows[20:])
    assert healths == expected
    if moment == "begin":
        assert own.behind == 0
    assert own.shadow is None
    assert "out of order" in own.shadow_problem
    own.tidy()
    own.close()


def test_a_full_disk_is_not_the_fault_of_the_second_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = DurableStream(Predictor.from_bundle(FIRST), tmp_path, shadow=Predictor.from_bundle(SECOND))
    feed(own, in_turn(FLEET)[:30])

    def no_room(number: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as full:
        full.setattr("fedprognos.prognosis.stream_snapshot.os.fsync", no_room)
        with pytest.raises((OSError, OutputError)):
            own.tidy()
    assert own.shadow is not None
    own.tidy()
    assert (tmp_path / snapshot_name(30, "shadow")).is_file()
    own.close()


def test_bundles_are_named_by_all_that_decides_a_prediction() -> None:
    names = {
        FIRST.fingerprint,
        SECOND.fingerprint,
        dataclasses.replace(FIRST, network=FIRST.network.with_head(FIRST.network.head * 2)).fingerprint,
        dataclasses.replace(FIRST, recipe=FIRST.recipe.model_copy(update={"label_mean": 7.0})).fingerprint,
    }
    assert len(names) == 4
    assert dataclasses.replace(FIRST, provenance={"experiment": "other"}).fingerprint == FIRST.fingerprint


# --- over HTTP -------------------------------------------------------------------------------


def both(first: Bundle = FIRST, second: Bundle = SECOND, **options: Any) -> Any:
    return running(first, shadow=Predictor.from_bundle(second), threshold=25.0, **options)


def fleet_now(client: TestClient) -> list[dict[str, Any]]:
    units = client.get("/v1/units", params={"sort": "unit"}).json()["units"]
    return [{key: unit[key] for key in ("unit", "health", "status", "position")} for unit in units]


def send(client: TestClient, first: int, last: int) -> None:
    for unit in FLEET:
        assert client.post("/v1/rows", json=rows_of(unit, FLEET)[first:last]).status_code == 200


def test_promote_and_roll_back_over_http(tmp_path: Path) -> None:
    with running(SECOND, threshold=25.0) as alone:
        send(alone, 0, 20)
        expected = fleet_now(alone)
        send(alone, 20, 22)
        later = fleet_now(alone)
    signed = {"who": "Mia", "note": "better on failures"}
    with both(state=tmp_path) as client:
        send(client, 0, 20)
        before, models = fleet_now(client), client.get("/v1/models").json()
        assert (models["serving"]["digest"], models["shadow"]["digest"]) == (FIRST.fingerprint, SECOND.fingerprint)
        assert models["shadow"]["origin"]["experiment"] == "pumps 4"
        assert models["serving"]["rows"] == models["shadow"]["rows"] == 60
        assert not models["can_roll_back"]
        differences = {
            a["unit"]: abs(a["health"]["value"] - b["health"]["value"]) for a, b in zip(before, expected, strict=True)
        }
        comparison = models["comparison"]
        assert comparison["units"] == 3
        assert comparison["median_difference"] == pytest.approx(float(np.median(list(differences.values()))))
        assert comparison["largest_difference"] == pytest.approx(max(differences.values()))
        assert differences[comparison["largest_unit"]] == max(differences.values())
        changed = {
            a["unit"]: (a["status"], b["status"])
            for a, b in zip(before, expected, strict=True)
            if a["status"] != b["status"]
        }
        assert comparison["changed"] == len(changed)
        assert changed == {
            each["unit"]: (each["serving_status"], each["shadow_status"]) for each in comparison["changed_units"]
        }
        promotion = {"digest": SECOND.fingerprint, **signed}
        assert client.post("/v1/models/rollback", json=signed).status_code == 409
        assert client.post("/v1/models/promote", json={**promotion, "digest": "0" * 64}).status_code == 409
        assert client.post("/v1/models/promote", json={"digest": SECOND.fingerprint}).status_code == 422
        assert client.post("/v1/models/promote", json=promotion).json()["serving"] == SECOND.fingerprint
        assert client.post("/v1/models/promote", json=promotion).status_code == 409  # sent twice
        assert fleet_now(client) == expected
        assert client.get("/v1/fleet").json()["origin"]["experiment"] == "pumps 4"
    with both(state=tmp_path) as client:  # started again
        assert fleet_now(client) == expected
        send(client, 20, 22)
        assert fleet_now(client) == later
        models = client.get("/v1/models").json()
        assert (models["serving"]["digest"], models["can_roll_back"]) == (SECOND.fingerprint, True)
        assert [(change["kind"], change["who"], change["note"]) for change in models["changes"]] == [
            ("promote", "Mia", "better on failures"),
            ("start", "", ""),
        ]
        assert models["serving"]["since"] == models["changes"][0]["at"]
        assert client.post("/v1/models/rollback", json=signed).json()["serving"] == FIRST.fingerprint
        assert client.post("/v1/models/rollback", json=signed).status_code == 409
        with running(FIRST, threshold=25.0) as first_alone:
            send(first_alone, 0, 20)
            assert fleet_now(first_alone) == before
            send(first_alone, 20, 22)
            assert fleet_now(client) == fleet_now(first_alone)


def test_a_forecast_rests_on_values_of_one_model() -> None:
    from fedprognos.service.forecasts import forecast

    old = [Health("cell", position, 0.9 - 0.01 * position) for position in range(1, 9)]
    new = [Health("cell", position, 0.7 - 0.02 * (position - 8)) for position in range(8, 15)]
    line = forecast("soh", old + new, 0.5)
    assert line is not None
    assert line.slope == pytest.approx(-0.02)
    assert forecast("soh", old + new[:3], 0.5) is None


def test_errors_on_machines_that_failed() -> None:
    failed = FLEET.units[0]
    with both() as client:
        assert client.post("/v1/rows", json=rows_of(failed, FLEET)).status_code == 200
        assert client.get("/v1/models").json()["outcomes"]["failures"] == 0
        event = {"unit": failed.id, "kind": "failure", "at": "2026-11-18T07:00", "who": "Mia"}
        assert client.post("/v1/maintenance", json=event).json()["recorded"] == 1
        errors = client.get("/v1/models").json()["outcomes"]
    truth = failed.time[-1] - failed.time[9:]
    assert (errors["failures"], errors["values"]) == (1, len(truth))
    for bundle, name in ((FIRST, "serving_error"), (SECOND, "shadow_error")):
        values = bundle.predict(FLEET, last=False)[failed.id]
        assert errors[name] == pytest.approx(float(np.abs(values - truth).mean()), rel=1e-5)


def other_target(bundle: Bundle) -> Bundle:
    return dataclasses.replace(bundle, recipe=bundle.recipe.model_copy(update={"target": "wear"}))


def other_columns(bundle: Bundle) -> Bundle:
    return dataclasses.replace(bundle, recipe=bundle.recipe.model_copy(update={"sensors": bundle.recipe.sensors[::-1]}))


@pytest.mark.parametrize(
    ("change", "value"), [(other_columns, "sensors"), (other_target, "wear"), (lambda bundle: bundle, "same")]
)
def test_a_second_model_that_does_not_fit_is_refused(
    change: Callable[[Bundle], Bundle], value: str, tmp_path: Path
) -> None:
    options = ServiceOptions(state=tmp_path / "state", shadow=Predictor.from_bundle(change(FIRST)))
    with refuses(BundleError, value, "--shadow"):
        create_app(Predictor.from_bundle(FIRST), options)
    assert not (tmp_path / "state").exists()


def test_a_second_model_that_nobody_trusted_signed_is_refused(tmp_path: Path) -> None:
    first, second = FIRST.save(tmp_path / "first"), SECOND.save(tmp_path / "second")
    runner, trust = CliRunner(), tmp_path / "trust.toml"
    trust.write_text(runner.invoke(app, ["sign", str(first), "--key", str(tmp_path / "owner.key")]).stdout)
    given = ["serve", str(first), "--shadow", str(second), "--trust", str(trust), "--state", str(tmp_path / "state")]
    refused = runner.invoke(app, given)
    assert isinstance(refused.exception, SignatureError)
    assert "second" in str(refused.exception)
    assert not (tmp_path / "state").exists()


def test_a_backup_of_a_promoted_model_is_restored(tmp_path: Path) -> None:
    first, second = pair("life")
    rows = in_turn(FLEET)
    own = DurableStream(first, tmp_path / "state", shadow=second)
    feed(own, rows[:60])
    own.swap_models("promote", "Mia")
    backup = write_backup(own, tmp_path, 7, lambda: False)
    expected = feed(own, rows[60:])
    own.close()
    options = ServiceOptions(state=tmp_path / "again", shadow=second)
    restore_backup(first, options, backup)
    again = DurableStream(first, tmp_path / "again", shadow=second)
    assert again.model is second
    assert_same(feed(again, rows[60:]), expected, "life")
    again.close()


@pytest.mark.soak
@pytest.mark.parametrize("history", [{}, LIFE])
def test_promote_under_load_then_kill_9(history: dict[str, Any], tmp_path: Path) -> None:
    fleet = series_fleet([2000] * 4)
    bundle, second = (small_bundle(fleet, seed=seed, **history).save(tmp_path / f"bundle-{seed}") for seed in (3, 4))
    acknowledged: dict[str, float] = {}

    def send_all(address: str, unit: str) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            for row in rows_of(fleet[unit], fleet):
                try:
                    answer = client.post("/v1/rows", json=row)
                except httpx.TransportError:
                    return
                assert answer.json()["accepted"] == 1
                acknowledged[unit] = row["position"]

    def wait_for(rows: float) -> None:
        until = time.monotonic() + 120
        while sum(acknowledged.values()) < rows and time.monotonic() < until:
            time.sleep(0.01)
        assert sum(acknowledged.values()) >= rows

    state = tmp_path / "state"
    with process(bundle, state, "--shadow", str(second)) as (address, child):
        threads = [threading.Thread(target=send_all, args=(address, unit)) for unit in fleet.ids]
        for thread in threads:
            thread.start()
        wait_for(300)
        digest = httpx.get(f"{address}/v1/models").json()["shadow"]["digest"]
        promotion = {"digest": digest, "who": "Mia"}
        assert httpx.post(f"{address}/v1/models/promote", json=promotion, timeout=60).status_code == 200
        wait_for(600)
        child.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(20)
        child.wait(20)
    first_model, second_model = Predictor.load(bundle), Predictor.load(second)
    for kind, model in (("promote", second_model), ("rollback", first_model)):
        own = DurableStream(first_model, state, shadow=second_model)
        if kind == "rollback":
            own.swap_models("rollback", "Mia")
        assert own.model.fingerprint == model.fingerprint
        offline = model.bundle.predict(fleet, last=False)
        begin = 1 if history else 10
        for unit, position in acknowledged.items():
            kept, _ = own.history(unit)
            last = kept[-1].position
            assert position <= last <= position + 2
            following = rows_of(fleet[unit], fleet)[int(last)]
            health = own.take([Row(**following)]).updates[0].health
            assert health is not None
            assert health.value == pytest.approx(offline[unit][int(last) + 1 - begin], rel=1e-4)
        own.store.close()  # as a kill leaves it
