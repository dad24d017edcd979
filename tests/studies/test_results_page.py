"""The page says what the JSON files hold, and the committed page is up to date."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from small_records import battery_record, turbofan_record

from fedprognos.errors import DataError
from fedprognos.files import write_json
from refusals import refuses
from studies.markdown import BLANK
from studies.page import page_files, read_all, study_files, write_page
from studies.places import COMMITTED, Places
from studies.record import write_record

ROOT = Path(__file__).parents[2]
PRESETS = ("battery-paper", "turbofan-tuned")


@pytest.fixture
def where(tmp_path: Path) -> Places:
    results = Places(tmp_path / "out", tmp_path / "runs", PRESETS)
    for preset, record in zip(PRESETS, (battery_record(), turbofan_record()), strict=True):
        write_record(results.json(preset), record)
        write_json(results.times(preset), {})
    write_json(results.folder / "privacy.json", {"epsilon": 10})  # the numbers of a study, no preset's record
    return results


def test_the_pages_hold_every_part(where: Places) -> None:
    text = write_page(where).read_text("utf-8")
    assert [line for line in text.splitlines() if line.startswith("#")][:2] == ["# Results", "## Targets"]
    assert "(results/tables.md)" in text
    assert "\n| FedMA | " in text
    tables = where.tables.read_text("utf-8")
    for title in ("# Tables", "## Batteries", "## Turbofan", "## The presets"):
        assert f"\n{title}" in f"\n{tables}"
    plain = tables.replace(BLANK, " ")
    assert "| B0006 | B0006, B0018 | FedMA | 0.03871<br>round 4, IMP 22.3 % |" in plain
    assert "torch 2.13.0" in tables


def test_every_link_leads_somewhere_and_every_picture_is_shown(where: Places) -> None:
    write_page(where)
    linked = {
        (page.parent / link).resolve()
        for page in (where.page, where.tables)
        for link in re.findall(r"\]\((?!https:)([^)#]+)", page.read_text("utf-8"))
    }
    assert where.folder.resolve() / "battery-paper-rounds.svg" in linked
    assert all(path.is_file() for path in linked)
    pictures = set(where.folder.resolve().glob("*.svg"))
    assert pictures <= linked
    for path in pictures:
        assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - our own file


def test_pictures_say_neither_when_nor_by_which_version_they_were_made(where: Places) -> None:
    drawn = [text for path, text in page_files(where).items() if path.suffix == ".svg"]
    assert drawn
    assert not any(word in text for text in drawn for word in ("dc:date", "Matplotlib"))


def test_the_same_files_give_the_same_bytes(where: Places) -> None:
    assert page_files(where) == page_files(where)


def test_pictures_of_another_time_are_removed(where: Places) -> None:
    old = where.folder / "old.svg"
    old.write_text("<svg/>", "utf-8")
    write_page(where)
    assert not old.exists()


def test_remarks_stand_in_their_part(where: Places) -> None:
    (where.folder / "remarks.md").write_text("# Remarks\n\n## turbofan\n\nMind the cap.\n\n## summary\n\nIn short.\n")
    text = write_page(where).read_text("utf-8")
    assert text.index("In short.") < text.index("## Targets")
    assert text.index("## Turbofan") < text.index("Mind the cap.")


def test_without_results_the_command_is_named(tmp_path: Path) -> None:
    with refuses(DataError, "python -m studies results"):
        page_files(Places(tmp_path, tmp_path, PRESETS))


@pytest.mark.long
def test_the_committed_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if not read_all(COMMITTED):
        pytest.skip("docs/results holds no JSON yet: make results")
    for path, text in {**page_files(COMMITTED), **study_files()}.items():
        assert path.read_text("utf-8") == text, f"{path} is out of date: python -m studies page"
