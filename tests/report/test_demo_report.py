"""The report of a real run, small enough for a test: short, readable at any width, about the model in bundle/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser
from federated_folders import text_of
from typer.testing import CliRunner

from fedprognos.cli import app
from fedprognos.experiment.experiment_run import run
from fedprognos.networks import Bundle
from fedprognos.report import answer, read_run, write_report

SMALL = (
    *("data.sites=3", "data.units_per_site=4", "data.test_units_per_site=3", "train.steps=2", "model.widths=[6]"),
    *("federation.fedavg={rounds=2, epochs=1}", "federation.methods=['local', 'central', 'fedavg']"),
)
WORDS = 2175
"""Half of what the demo's page had before, folds and tables included; the experiment itself is not counted."""
SEEN = 800
"""Words before any click."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = run("demo", out=tmp_path_factory.mktemp("demo") / "run", overrides=SMALL, seeds=1, workers=1).folder
    write_report(found)
    return found


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


def words(page: str) -> int:
    return len(text_of(re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL)).split())


def without_folds(page: str) -> str:
    """What is seen before any click; the innermost folds go first."""
    summary = r"(<summary(?:(?!</summary>).)*</summary>)"
    fold, found = re.compile(rf"<details[^>]*>\s*{summary}(?:(?!<details).)*?</details>", re.DOTALL), 1
    while found:
        page, found = fold.subn(r"\1", page)
    return page


def test_the_page_is_short(page: str) -> None:
    assert words(page) <= 0.85 * WORDS  # not all of the methods
    assert words(without_folds(page)) <= SEEN


@pytest.mark.long
def test_the_page_of_the_whole_demo_is_half_as_long_as_it_was(tmp_path: Path) -> None:
    page = write_report(run("demo", out=tmp_path / "run").folder).read_text("utf-8")
    assert words(page) <= WORDS
    assert words(without_folds(page)) <= SEEN


def test_report_terminal_and_bundle_name_the_same_model(folder: Path, page: str) -> None:
    origin = Bundle.load(folder / "bundle").provenance
    data = read_run(folder)[0]
    together = data.roles.together
    assert together is not None
    assert (together.method, together.head) == (origin["method"], origin["head"])
    headline = answer(data).headline
    assert re.match(r"Together [\d.]+ cycles off, alone [\d.]+: ", headline)
    assert together.label in text_of(page)
    said = CliRunner().invoke(app, ["report", str(folder)])
    printed = re.sub(r"\s+", " ", said.stdout)
    assert re.sub(r"\s+", " ", headline) in printed
    assert data.results.published == together.method
    assert f"Together is {together.label}: {data.results.reason}." in printed
    assert data.results.reason in text_of(page)
    for part in ("All data in one place", "best baseline"):
        assert part in printed
        assert part.lower() in text_of(page).lower()


def test_the_reason_is_shown(page: str) -> None:
    """Every owner has seen one fault and one kind of routes; of its three test engines one has the same."""
    text = text_of(page)
    assert re.search(r"had not seen in training, alone is [\d.]+ cycles off and together [\d.]+", text)
    for kind in ("fault", "routes"):
        rows = re.findall(rf">{kind} (seen before|new to its owner)</th>\s*<td[^>]*>(\d+)</td>", page)
        assert rows == [("seen before", "3"), ("new to its owner", "6")]


@pytest.mark.long
@pytest.mark.parametrize("preset", ["demo", "demo-battery"])
def test_the_demo_shows_why(preset: str, tmp_path: Path) -> None:
    found = run(preset, out=tmp_path / "run").folder
    data = read_run(found)[0]
    r = data.roles
    alone, together, central, baseline = (e.mean(data.error) for e in (r.alone, r.together, r.central, r.baseline))  # type: ignore[union-attr]
    assert together < 0.6 * alone  # type: ignore[operator]
    assert together < 1.1 * central  # type: ignore[operator]
    assert together < baseline  # type: ignore[operator] # boosting with all data in one place comes near
    assert "worth it" in answer(data).headline


def test_sentences_are_short(page: str) -> None:
    kinds = r'<p class="(?:lead|prose|note|alert)[^>]*>(.*?)</p>|<figcaption>.*?<p>(.*?)</p>'
    prose = re.findall(kinds, page, re.DOTALL)
    sentences = [s for pair in prose for s in re.split(r"(?<=[.:;]) ", "".join(pair))]
    assert [s for s in sentences if len(s.split()) > 30] == []


@pytest.mark.long
def test_tables_fit_at_1400_and_say_that_they_scroll_on_a_phone(folder: Path, tmp_path: Path) -> None:
    wide = "[...document.querySelectorAll('.scroll')].filter(x => x.scrollWidth > x.clientWidth + 1).length"
    said = "document.querySelectorAll('.scroll.more').length"
    with Browser(tmp_path / "profile") as browser:
        for width, phone in ((1400, False), (390, True)):
            browser.resize(width, 1000, phone=phone)
            browser.open((folder / "report.html").as_uri())
            browser.wait("document.documentElement && document.documentElement.dataset.drawn")
            browser.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
            browser.wait(f"{wide} === {said}")
            assert (browser.run(wide) > 0) == phone
            assert browser.run("document.documentElement.scrollWidth") <= width
        hint = "getComputedStyle(document.querySelector('.card-table:has(.more) .caption'), '::after').content"
        assert "Scroll sideways" in browser.run(hint)


@pytest.mark.long
def test_the_first_screen_is_the_answer_and_the_keyboard_reaches_the_folds(folder: Path, tmp_path: Path) -> None:
    with Browser(tmp_path / "profile") as browser:
        browser.resize(1400, 900)
        browser.open((folder / "report.html").as_uri())
        browser.wait("document.documentElement && document.documentElement.dataset.drawn")
        bottom = "document.querySelector('#answer .cards').getBoundingClientRect().bottom"
        assert browser.run(f"{bottom} < 450")
        assert browser.run("document.querySelectorAll('#answer .card').length") == 4
        size = "parseFloat(getComputedStyle(document.querySelector('#answer .lead')).fontSize)"
        assert browser.run(f"{size} > parseFloat(getComputedStyle(document.querySelector('h1')).fontSize)")
        browser.run("document.querySelector('#fleet summary').focus()")
        browser.press("Enter")
        browser.wait("document.querySelector('#fleet details').open")
        browser.wait("document.querySelector('#fleet .main-svg')")
        assert browser.complaints == []
