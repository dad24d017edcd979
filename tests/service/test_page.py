"""The page in a real browser: clicks, keys, a phone, live updates, hostile names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browser import Browser
from services import rows_of, served, small_bundle

from fedprognos.prognosis import Predictor
from fedprognos.service import DurableStream
from small_fleets import series_fleet

FLEET = series_fleet([30, 22, 26])
ROWS = [row for unit in FLEET for row in rows_of(unit, FLEET)]
EVIL = "<img src=x onerror=document.title='hacked'>"
TOKEN = "correct-horse-battery"  # noqa: S105
READY = "document.querySelectorAll('#rows tr').length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    with served(small_bundle(FLEET), folder, threshold=30.0) as address:
        rows = [*ROWS, {**ROWS[0], "unit": EVIL}]
        assert httpx.post(f"{address}/v1/rows", json=rows).json()["accepted"] == len(rows)
        yield address


@pytest.mark.long
def test_the_fleet_is_shown_and_a_unit_opens_by_mouse_and_by_keyboard(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    browser.resize(1280, 900)
    browser.open(address)
    browser.wait(f"{READY} === 4")
    expected = [unit["unit"] for unit in httpx.get(f"{address}/v1/units").json()["units"]]
    assert browser.run("[...document.querySelectorAll('#rows th')].map(n => n.textContent)") == expected
    assert browser.run("document.querySelectorAll('#rows img').length") == 0
    assert len(browser.picture(tmp_path / "fleet.png").read_bytes()) > 10_000
    browser.click("#rows tr td:nth-child(3)")
    browser.wait("document.querySelector('#trend polyline.line')")
    assert browser.run("document.querySelector('#unit-name').textContent") == expected[0]
    assert browser.run("document.activeElement.id") == "unit-name"
    assert browser.run("document.querySelectorAll('#sensors li').length") == 4
    browser.click("#back")
    browser.wait("!document.querySelector('#fleet').hidden")
    browser.wait("document.activeElement.textContent === document.querySelector('#rows a').textContent")
    browser.press("Tab")
    browser.press("Enter")
    browser.wait(f"document.querySelector('#unit-name').textContent === {expected[1]!r}")
    browser.wait("document.querySelector('#trend polyline.line')")
    assert browser.complaints == []


@pytest.mark.long
def test_a_part_of_the_fleet_is_chosen_by_mouse_and_keyboard_and_a_health_explained(
    browser: Browser, address: str
) -> None:
    browser.resize(1280, 900)
    browser.open(address)
    browser.wait(f"{READY} === 4")
    counts = httpx.get(f"{address}/v1/fleet").json()["counts"]
    browser.click(".cards .warming-up")
    browser.wait(f"{READY} === {counts['warming-up']}")
    assert browser.run("document.querySelector('.cards .warming-up').getAttribute('aria-pressed')") == "true"
    browser.run("document.querySelector('.cards .warming-up').focus()")
    browser.press("Enter")
    browser.wait(f"{READY} === 4")
    names = "[...document.querySelectorAll('#rows th')].map(n => n.textContent)"
    for order in ("unit", "-unit"):
        browser.click("[data-sort=unit]")
        expected = [unit["unit"] for unit in httpx.get(f"{address}/v1/units?sort={order}").json()["units"]]
        browser.wait(f"JSON.stringify({names}) === JSON.stringify({expected})")
    browser.run(f"location.hash = '#unit={FLEET.units[0].id}'")
    browser.wait("document.querySelectorAll('#causes li').length")
    explained = httpx.get(f"{address}/v1/why/{FLEET.units[0].id}").json()
    shown = browser.run("document.querySelector('#causes .cause').title")
    assert shown == explained["causes"][0]["sensor"]
    assert browser.complaints == []


@pytest.mark.soak
def test_the_page_says_that_the_service_hangs(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    plain = DurableStream.take
    with served(small_bundle(FLEET), tmp_path) as address:
        browser.open(address)
        browser.wait("document.querySelector('.pill.live')")
        monkeypatch.setattr(DurableStream, "take", lambda stream, rows: release.wait(60) and plain(stream, rows))
        sender = threading.Thread(target=httpx.post, args=(f"{address}/v1/rows",), kwargs={"json": ROWS, "timeout": 90})
        sender.start()
        browser.wait("document.querySelector('.pill.lost')", seconds=40)
        release.set()
        sender.join()
        browser.wait("document.querySelector('.pill.live')", seconds=20)


@pytest.mark.long
def test_updates_arrive_by_themselves(browser: Browser, address: str) -> None:
    browser.resize(1280, 900)
    browser.open(f"{address}/#")
    browser.wait("document.querySelector('.pill.live')")
    news = [{**row, "unit": "newcomer"} for row in rows_of(FLEET["engines-1"], FLEET)]
    httpx.post(f"{address}/v1/rows", json=news[:-1])
    browser.wait("[...document.querySelectorAll('#rows a')].some(n => n.textContent === 'newcomer')")
    browser.run("location.hash = '#unit=newcomer'")
    browser.wait("document.querySelector('#verdict').textContent.includes('At cycle 21.')")
    httpx.post(f"{address}/v1/rows", json=news[-1])
    browser.wait("document.querySelector('#verdict').textContent.includes('At cycle 22.')")


@pytest.mark.long
@pytest.mark.long
def test_pages_that_were_left_hold_no_connection(browser: Browser, address: str) -> None:
    """A browser allows six connections to a service, and keeps pages for "back"."""
    for _ in range(8):
        browser.open("about:blank")
        browser.open(f"{address}/#unit=engines-0")
        browser.wait("document.querySelector('#verdict .big')")
    assert not browser.complaints


def test_it_fits_a_phone_and_finds_units(browser: Browser, address: str, tmp_path: Path) -> None:
    browser.resize(390, 844, phone=True, dark=True)
    browser.open(f"{address}/#")
    browser.wait(f"{READY} > 3")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.run("document.querySelectorAll('#rows .range').forEach((n) => { n.textContent = '102 or more'; })")
    assert browser.run("(t => t.scrollWidth - t.clientWidth)(document.querySelector('.card-table'))") <= 0
    assert len(browser.picture(tmp_path / "phone.png").read_bytes()) > 10_000
    browser.click("#search")
    browser.type("INES-2")
    browser.wait(f"{READY} === 1")
    browser.click("#rows td")
    browser.wait("document.querySelector('#trend svg')")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.run("location.hash = ''")
    browser.click("#search")
    browser.type("nothing like it")
    browser.wait("document.querySelector('#empty').textContent.startsWith('No unit')")


@pytest.mark.long
def test_hostile_names_stay_text(browser: Browser, address: str) -> None:
    browser.resize(1280, 900)
    browser.open(f"{address}/#unit=" + EVIL.replace(" ", "%20"))
    browser.wait("document.querySelector('#trend-text').textContent.startsWith('No value yet')")
    assert browser.run("document.querySelector('#unit-name').textContent") == EVIL
    assert browser.run("document.title") != "hacked"


@pytest.mark.long
def test_a_token_is_asked_for_and_the_page_reconnects(browser: Browser, tmp_path: Path) -> None:
    bundle = small_bundle(FLEET)
    with served(bundle, tmp_path, token=TOKEN) as address:
        header = {"Authorization": f"Bearer {TOKEN}"}
        httpx.post(f"{address}/v1/rows", json=ROWS, headers=header)
        browser.open(address)
        browser.wait("document.querySelector('#login').open")
        browser.click("#token")
        browser.type(TOKEN)
        browser.press("Enter")
        browser.wait(f"{READY} === 3")
        browser.wait("document.querySelector('.pill.live')")
    browser.wait("document.querySelector('.pill.lost')")
    with served(bundle, tmp_path, port=int(address.rpartition(":")[2]), token=TOKEN):
        browser.wait("document.querySelector('.pill.live')", 20)
    browser.complaints.clear()  # that the token was missing at first


@pytest.mark.long
def test_alerts_are_listed_acknowledged_and_muted(browser: Browser, address: str, tmp_path: Path) -> None:
    browser.resize(1280, 900)
    browser.open(f"{address}/#")
    browser.wait("document.querySelectorAll('#alerts-list li').length >= 3")
    name = browser.run("document.querySelector('#alerts-list li a').textContent")
    alerts = httpx.get(f"{address}/v1/alerts").json()["alerts"]
    urgent = {a["machine"]: a["status"] not in ("ok", "ended") for a in reversed(alerts)}  # by its latest alert
    assert browser.run("document.querySelectorAll('#alerts-list li button').length") == sum(urgent.values())
    browser.click("#alerts-list li button")
    browser.wait("document.querySelector('#sign-dialog').open")
    browser.click("#sign-who")
    browser.type("Mia")
    assert len(browser.picture(tmp_path / "sign.png").read_bytes()) > 10_000
    browser.click("#sign-form button[value=sign]")
    browser.wait("document.querySelector('#alerts-list li').textContent.includes('Mia')")
    browser.run(f"location.hash = '#unit={name}'")
    browser.wait("!document.querySelector('#mute').hidden && document.querySelectorAll('#alerts-list li').length >= 1")
    browser.wait("document.querySelectorAll('#causes li').length")  # it stands above the button
    browser.click("#mute")
    browser.wait("document.querySelector('#sign-who').value === 'Mia'")
    browser.click("#sign-form button[value=sign]")
    browser.wait("document.querySelector('#mute').textContent === 'Unmute'")
    assert [mute["machine"] for mute in httpx.get(f"{address}/v1/alerts").json()["mutes"]] == [name]
    assert len(browser.picture(tmp_path / "unit.png").read_bytes()) > 10_000
    browser.click("#mute")
    browser.wait("document.querySelector('#mute').textContent !== 'Unmute'")
    assert httpx.get(f"{address}/v1/alerts").json()["mutes"] == []
    assert browser.complaints == []


@pytest.mark.long
def test_a_refused_event_says_why(browser: Browser, address: str) -> None:
    browser.open(f"{address}/#")
    browser.wait("document.querySelector('.pill.live')")
    event = {"unit": "nobody", "kind": "inspection", "at": "2024-05-01T12:00:00Z", "who": "Mia"}
    (result,) = httpx.post(f"{address}/v1/maintenance", json=event).json()["results"]
    browser.run("Maintenance.open('nobody', 'inspection')")
    browser.run("document.querySelector('#done-who').value = 'Mia'")
    browser.click("#done-form button[value=record]")
    browser.wait(f"document.querySelector('#done-problem').textContent === {result['reason']!r}")
    browser.run("document.querySelector('#done-dialog').close()")
    browser.complaints.clear()  # the console notes every refusal


@pytest.mark.long
def test_a_second_model_is_compared_promoted_and_rolled_back(browser: Browser, tmp_path: Path) -> None:
    second = Predictor.from_bundle(small_bundle(FLEET, seed=4))
    with served(small_bundle(FLEET), tmp_path / "state", threshold=30.0, shadow=second) as address:
        assert httpx.post(f"{address}/v1/rows", json=ROWS).json()["accepted"] == len(ROWS)
        browser.resize(390, 844, phone=True)
        browser.open(address)
        browser.wait("!document.querySelector('#promote').hidden")
        assert str(len(ROWS)) in browser.run("document.querySelector('#models-text').textContent")
        assert browser.run("document.documentElement.scrollWidth") <= 390
        for button, other in (("promote", "roll-back"), ("roll-back", "promote")):
            serving = httpx.get(f"{address}/v1/models").json()["serving"]["digest"]
            browser.click(f"#{button}")
            browser.wait("document.querySelector('#sign-dialog').open")
            browser.run("document.querySelector('#sign-who').value = 'Mia'")
            browser.press("Enter")
            browser.wait(f"document.querySelector('#{button}').hidden && !document.querySelector('#{other}').hidden")
            models = httpx.get(f"{address}/v1/models").json()
            assert (models["shadow"]["digest"], models["changes"][0]["who"]) == (serving, "Mia")
    assert browser.complaints == []
