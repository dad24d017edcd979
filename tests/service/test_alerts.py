"""Alerts: when they are raised, what real sinks get, and that no restart loses or doubles one."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pytest
from brokers import broker, publisher
from hypothesis import given, settings
from hypothesis import strategies as st
from services import free_port, rows_of, running, served, small_bundle
from sinks import mail_server, webhook

from fedprognos.errors import ConfigError
from fedprognos.features import Recipe
from fedprognos.prognosis import Health, HealthModel, Row
from fedprognos.service import DurableStream, alert_sinks, read_plant
from fedprognos.service.alerts import URGENCY, Alert, AlertRule
from fedprognos.service.service_options import PlantOptions
from refusals import refuses
from small_fleets import series_fleet

FLEET = series_fleet([40, 36, 38])
BUNDLE = small_bundle(FLEET)
ROWS = [row for unit in FLEET for row in rows_of(unit, FLEET)]
THRESHOLD = 15.8  # healths of the untrained network are around it
RECIPE = Recipe(task="rul", sensors=("heat",), window=1, mean=((0.0,),), std=((1.0,),), label_mean=50.0)
MODEL = HealthModel(RECIPE, lambda windows: windows.mean(axis=(1, 2)))


def below(threshold: float) -> Callable[[Health], str]:
    return lambda health: "due" if (health.value or 0.0) < threshold else "ok"


def plant(*sinks: dict[str, Any], **options: Any) -> PlantOptions:
    return PlantOptions.model_validate({"alerts": {**options, "sinks": sinks}})


def changes(alerts: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(alert["unit"], alert["before"], alert["status"]) for alert in alerts]


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)


# --- when an alert is raised -------------------------------------------------------------------


@settings(deadline=None)
@given(
    statuses=st.lists(st.sampled_from([*URGENCY, "warming-up"]), max_size=60),
    raise_after=st.integers(1, 4),
    clear_after=st.integers(1, 6),
)
def test_a_status_is_announced_when_it_lasts_and_never_twice(
    statuses: list[str], raise_after: int, clear_after: int
) -> None:
    rule = AlertRule(lambda health: health.reason, raise_after, clear_after)
    announced, alerts = "ok", []
    for k, status in enumerate(statuses):
        alert = rule.note_health(Health("pump", k, None, reason=status), float(k))
        if alert is None:
            continue
        telling = [URGENCY[s] for s in statuses[: k + 1] if s in URGENCY]
        before = URGENCY[announced]
        if URGENCY[alert.status] > before:
            assert all(level > before for level in telling[-raise_after:])
        else:
            assert all(level < before for level in telling[-clear_after:])
        assert (alert.before, alert.status) == (announced, status) and alert.status != announced
        announced = alert.status
        alerts.append(alert)
    assert len({alert.id for alert in alerts}) == len(alerts)


def test_a_later_life_of_a_machine_ends_the_alert_of_the_earlier_one() -> None:
    stream = DurableStream(MODEL, alert_rule=AlertRule(below(50.0), 2, 3))
    values = [("pump", -1.0)] * 3 + [("pump#2", 9.0)] * 4 + [("pump", -1.0)] * 4
    rows = [Row(unit, float(k + 1), {"heat": heat}) for k, (unit, heat) in enumerate(values)]
    alerts = stream.take(rows).alerts
    assert [(alert.unit, alert.machine, alert.status) for alert in alerts] == [
        ("pump", "pump", "due"),
        ("pump#2", "pump", "ok"),
    ]


def test_a_name_that_only_looks_like_a_later_life_is_a_machine() -> None:
    stream = DurableStream(MODEL, alert_rule=AlertRule(below(50.0), 1, 1))
    (alert,) = stream.take([Row("line#3", 1.0, {"heat": -1.0})]).alerts
    assert alert.machine == "line#3"


def test_forgetting_a_unit_ends_its_alert(tmp_path: Path) -> None:
    stream = DurableStream(MODEL, tmp_path, alert_rule=AlertRule(below(50.0), 1, 1))
    stream.take([Row("pump", 1.0, {"heat": -1.0}), Row("fine", 1.0, {"heat": 9.0})])
    assert stream.forget("pump") and stream.forget("fine")
    assert [alert.status for alert in stream.store.alerts.latest(9)] == ["ended", "due"]
    (again,) = stream.take([Row("pump", 1.0, {"heat": -1.0})]).alerts
    assert again.before == "ok"
    stream.close()


@pytest.mark.parametrize("tidied", [False, True])
def test_restarts_change_no_alert(tidied: bool, tmp_path: Path) -> None:
    heats = [9, 9, -1, 9, -1, -1, -1, 9, 9, -1, 9, 9, 9, 9, -1, -1, -1, -1]
    rows = [Row(unit, float(k), {"heat": float(heat)}) for k, heat in enumerate(heats) for unit in ("a", "b")]

    def alerts_of(stream: DurableStream, rows: list[Row]) -> list[Alert]:
        return [alert for row in rows for alert in stream.take([row]).alerts]

    def facts(alerts: list[Alert]) -> list[tuple[str, str, float | None, str]]:
        return [(a.unit, a.status, a.health and a.health.position, a.id.rpartition("-")[2]) for a in alerts]

    expected = alerts_of(DurableStream(MODEL, alert_rule=AlertRule(below(50.0), 3, 4)), rows)
    assert [alert.status for alert in expected] == ["due", "due", "ok", "ok", "due", "due"]
    noted: list[Alert] = []
    for a, b in itertools.pairwise(range(0, len(rows) + 1, 3)):
        stream = DurableStream(MODEL, tmp_path, alert_rule=AlertRule(below(50.0), 3, 4))
        noted += alerts_of(stream, rows[a:b])
        stream.close() if tidied else stream.store.close()
    assert facts(noted) == facts(expected)
    assert len({alert.id for alert in noted}) == len(noted)


# --- who is told -------------------------------------------------------------------------------


def test_a_webhook_gets_every_alert_in_its_order_with_its_id(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-of-the-sink\n")
    with webhook() as receiver:
        sink = {"kind": "webhook", "url": receiver.url, "token_file": str(tmp_path / "token")}
        with running(BUNDLE, threshold=THRESHOLD, plant=plant(sink, raise_after=1, clear_after=2)) as client:
            client.post("/v1/rows", json=ROWS)
            answer = client.get("/v1/alerts?limit=1000").json()
            wait_for(lambda: len(receiver.posts) == len(answer["alerts"]) > 3)
            wait_for(lambda: client.get("/v1/alerts").json()["sinks"][0]["waiting"] == 0)
    assert [post["id"] for post in receiver.posts] == [alert["id"] for alert in answer["alerts"]][::-1]
    assert [head["idempotency-key"] for head in receiver.headers] == [post["id"] for post in receiver.posts]
    assert {head["authorization"] for head in receiver.headers} == {"Bearer secret-of-the-sink"}
    assert {post["health"]["unit"] for post in receiver.posts} == {post["unit"] for post in receiver.posts}


def test_a_sink_that_is_away_gets_its_alerts_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_sinks, "FIRST_PAUSE_IN_S", 0.05)
    with webhook() as receiver:
        receiver.status = 503
        sinks = plant({"kind": "webhook", "url": receiver.url}, raise_after=1)
        with running(BUNDLE, state=tmp_path, threshold=THRESHOLD, plant=sinks) as client:
            client.post("/v1/rows", json=ROWS)
            wait_for(lambda: "503" in client.get("/v1/alerts").json()["problems"].get("webhook", ""))
            alerts = client.get("/v1/alerts").json()["alerts"]
        assert alerts and not receiver.posts
        receiver.status = 200
        with running(BUNDLE, state=tmp_path, threshold=THRESHOLD, plant=sinks) as client:
            wait_for(lambda: len(receiver.posts) == len(alerts))
            wait_for(lambda: client.get("/v1/alerts").json()["sinks"][0]["waiting"] == 0)
    assert changes(receiver.posts) == changes(alerts)[::-1]


def test_an_alert_that_a_sink_refuses_holds_up_no_other() -> None:
    with webhook() as receiver:
        receiver.status = 422
        sinks = plant({"kind": "webhook", "url": receiver.url}, raise_after=1)
        with running(BUNDLE, threshold=THRESHOLD, plant=sinks) as client:
            client.post("/v1/rows", json=ROWS)
            count = len(client.get("/v1/alerts").json()["alerts"])
            wait_for(lambda: client.get("/v1/alerts").json()["sinks"][0]["refused"] == count)


def test_a_sink_hears_of_its_statuses_only_and_of_their_end() -> None:
    with webhook() as receiver:
        sinks = plant({"kind": "webhook", "url": receiver.url, "statuses": ["due"]}, raise_after=1, clear_after=1)
        with running(BUNDLE, threshold=THRESHOLD, plant=sinks) as client:
            client.post("/v1/rows", json=ROWS)
            alerts = client.get("/v1/alerts?limit=1000").json()["alerts"][::-1]
            expected = [alert["id"] for alert in alerts if "due" in (alert["status"], alert["before"])]
            wait_for(lambda: [post["id"] for post in receiver.posts] == expected)
    assert 0 < len(expected) < len(alerts)


def test_mails_name_every_alert() -> None:
    with mail_server() as (port, mails):
        sink = {"kind": "mail", "host": "127.0.0.1", "port": port, "security": "none", "sender": "a@b.c"}
        sinks = plant({**sink, "to": ["shift@plant.org", "boss@plant.org"]}, raise_after=1)
        with running(BUNDLE, threshold=THRESHOLD, plant=sinks) as client:
            client.post("/v1/rows", json=[{**row, "unit": row["unit"] + " Süd"} for row in ROWS])
            alerts = client.get("/v1/alerts").json()["alerts"]
            wait_for(lambda: client.get("/v1/alerts").json()["sinks"][0]["waiting"] == 0)
    named = [number for mail in mails for number in mail.get_all("X-Fedprognos-Alert")]
    assert named == [alert["id"] for alert in alerts][::-1]
    text = "".join(mail.get_payload(decode=True).decode("utf-8") for mail in mails)
    assert all(alert["id"] in text and alert["unit"] in text for alert in alerts)
    assert {mail["To"] for mail in mails} == {"shift@plant.org, boss@plant.org"}


def test_a_mail_that_the_server_rejects_is_not_sent_for_ever() -> None:
    with mail_server("554 no") as (port, _):
        sink = {"kind": "mail", "host": "127.0.0.1", "port": port, "security": "none", "sender": "a@b.c"}
        with running(BUNDLE, threshold=THRESHOLD, plant=plant({**sink, "to": ["d@e.f"]}, raise_after=1)) as client:
            client.post("/v1/rows", json=ROWS)
            wait_for(lambda: client.get("/v1/alerts").json()["sinks"][0]["refused"] > 0)


@pytest.mark.long
def test_alerts_are_published_under_the_topic_of_the_machine(tmp_path: Path) -> None:
    port = free_port()
    messages: list[tuple[str, dict[str, Any]]] = []

    async def story() -> None:
        client = await publisher(port)
        await client.subscribe("fleet/+/alert", qos=1)
        sink = {"kind": "mqtt", "host": "127.0.0.1", "port": port}
        with served(BUNDLE, tmp_path / "state", threshold=THRESHOLD, plant=plant(sink, raise_after=1)) as address:
            await asyncio.to_thread(httpx.post, f"{address}/v1/rows", json=ROWS)
            alerts = (await asyncio.to_thread(httpx.get, f"{address}/v1/alerts")).json()["alerts"][::-1]
            async with asyncio.timeout(15):
                async for message in client.messages:
                    messages.append((str(message.topic), json.loads(bytes(message.payload))))  # type: ignore[arg-type]
                    if len(messages) == len(alerts):
                        break
        assert [message["id"] for _, message in messages] == [alert["id"] for alert in alerts]
        assert [topic for topic, _ in messages] == [f"fleet/{alert['machine']}/alert" for alert in alerts]
        with suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)

    with broker(port, tmp_path):
        asyncio.run(story())


# --- who took care -----------------------------------------------------------------------------


def test_an_acknowledgement_says_who_and_when_and_survives(tmp_path: Path) -> None:
    with running(BUNDLE, state=tmp_path, threshold=THRESHOLD) as client:
        client.post("/v1/rows", json=ROWS)
        alert = client.get("/v1/alerts").json()["alerts"][0]
        assert alert["acknowledged"] is None
        path = f"/v1/alerts/{alert['id']}/acknowledged"
        assert client.post(path, json={"who": "Mia", "note": "on my way"}).status_code == 200
        assert client.post(path, json={"who": "Ben"}).json()["acknowledged_by"] == "Mia"
        assert client.post(path, json={}).status_code == 422
        assert client.post("/v1/alerts/00000000-1/acknowledged", json={"who": "Mia"}).status_code == 404
    with running(BUNDLE, state=tmp_path, threshold=THRESHOLD) as client:
        alert = client.get("/v1/alerts").json()["alerts"][0]
    assert (alert["acknowledged_by"], alert["note"]) == ("Mia", "on my way")
    assert time.time() - 60 < alert["acknowledged"] <= time.time()


def test_a_muted_machine_is_in_the_log_but_no_sink_is_told() -> None:
    quiet, loud = FLEET.ids[:2]
    with webhook() as receiver:
        sinks = plant({"kind": "webhook", "url": receiver.url}, raise_after=1, clear_after=1)
        with running(BUNDLE, threshold=THRESHOLD, plant=sinks) as client:
            assert client.put(f"/v1/mutes/{quiet}", json={"who": "Mia", "for_in_s": 60}).status_code == 404
            client.post("/v1/rows", json=[row for row in ROWS if row["position"] == 1])
            before = len(client.get(f"/v1/alerts?unit={quiet}").json()["alerts"])
            mute = client.put(f"/v1/mutes/{quiet}", json={"who": "Mia", "for_in_s": 60, "note": "repair"}).json()
            assert (mute["machine"], mute["who"], round(mute["until"] - mute["since"])) == (quiet, "Mia", 60)
            client.post("/v1/rows", json=[row for row in ROWS if row["position"] > 1])
            muted = client.get(f"/v1/alerts?unit={quiet}").json()["alerts"]
            muted = muted[: len(muted) - before]
            assert muted and {alert["muted_by"] for alert in muted} == {"Mia"}
            expected = [alert["id"] for alert in client.get(f"/v1/alerts?unit={loud}").json()["alerts"]][::-1]
            wait_for(lambda: [post["id"] for post in receiver.posts if post["unit"] == loud] == expected)
            assert client.delete(f"/v1/mutes/{quiet}").status_code == 204
            assert client.delete(f"/v1/mutes/{quiet}").status_code == 404
    assert not {alert["id"] for alert in muted} & {post["id"] for post in receiver.posts}


def test_silence_raises_an_alert_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedprognos.service import fleet_service

    monkeypatch.setattr(fleet_service, "SILENCE_CHECKED_IN_S", 0.05)
    options: dict[str, Any] = {"state": tmp_path, "threshold": -1e9, "silent_after_in_s": 0.3}
    for _ in range(2):
        with running(BUNDLE, **options) as client:
            client.post("/v1/rows", json=ROWS)
            wait_for(lambda: client.get("/v1/fleet").json()["counts"]["unknown"] == 3)
            wait_for(lambda: len(client.get("/v1/alerts").json()["alerts"]) == 3)
            time.sleep(0.3)
            alerts = client.get("/v1/alerts").json()["alerts"]
    assert changes(alerts) == [(unit, "ok", "unknown") for unit in reversed(FLEET.ids)]


def test_the_log_is_read_in_parts() -> None:
    with running(BUNDLE, threshold=THRESHOLD, plant=plant(raise_after=1, clear_after=1)) as client:
        client.post("/v1/rows", json=ROWS)
        everything = client.get("/v1/alerts?limit=1000").json()["alerts"]
        first = client.get("/v1/alerts?limit=2").json()["alerts"]
        rest = client.get(f"/v1/alerts?limit=1000&before={first[-1]['id']}").json()["alerts"]
        assert first + rest == everything
        assert client.get("/v1/alerts?before=nonsense").status_code == 422


# --- the plant file ----------------------------------------------------------------------------


def test_a_plant_file_names_sinks_and_finds_secrets_beside_itself(tmp_path: Path) -> None:
    file = tmp_path / "plant.toml"
    file.write_text(
        '[alerts]\nraise_after = 2\n[[alerts.sinks]]\nkind = "webhook"\nurl = "https://x.org"\ntoken_file = "t"\n'
        '[[alerts.sinks]]\nkind = "mail"\nname = "night"\nhost = "h"\nsender = "a@b"\nto = ["c@d"]\n'
        'statuses = ["due"]\n'
    )
    options = read_plant(file).alerts
    assert [sink.name for sink in options.sinks] == ["webhook", "night"]
    assert options.sinks[0].token_file == tmp_path / "t"  # type: ignore[attr-defined]
    assert (options.raise_after, options.sinks[1].statuses) == (2, ("due",))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[alerts.sinks]]\nkind = "pigeon"', "pigeon"),
        ('[[alerts.sinks]]\nkind = "webhook"\nurl = "ftp://x"', "url"),
        ('[[alerts.sinks]]\nkind = "webhook"', "url"),
        ("[alerts]\nraise_afer = 2", "raise_afer"),
        ('[[alerts.sinks]]\nkind = "mqtt"\nhost = "a"\n[[alerts.sinks]]\nkind = "mqtt"\nhost = "b"', "mqtt"),
        ('[[alerts.sinks]]\nkind = "mail"\nhost = "h"\nsender = "a@b"\nto = ["x\\n@y"]', "to"),
    ],
)
def test_a_plant_file_that_cannot_work_is_refused(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "plant.toml").write_text(text)
    with refuses(ConfigError, named, "plant.toml"):
        read_plant(tmp_path / "plant.toml")
