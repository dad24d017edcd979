from __future__ import annotations

from pathlib import Path

import pooch
import pytest
from engines import cmapss_lines, write_cmapss
from test_nasa_battery import write_csv_layout, write_mat

from fedprognos.errors import ConfigError, DataNotFoundError
from fedprognos.fleet.catalog import CATALOG, ENVIRONMENT, download_place, find, places
from fedprognos.fleet.catalog_check import Check, check
from refusals import refuses


@pytest.fixture(autouse=True)
def nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment, a cache of its own, and a working folder beside which nothing is shared."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    work = tmp_path / "project" / "main"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)


def statuses(done: Check) -> dict[str, str]:
    return {part.name: part.status for part in done.parts}


def test_places_are_looked_at_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache" / "fedprognos"
    assert places() == [cache]
    write_cmapss(cache / "cmapss")
    assert find("cmapss") == cache / "cmapss"
    shared = tmp_path / "project" / "shared" / "data"
    write_cmapss(shared / "cmapss")
    assert find("cmapss").resolve() == shared / "cmapss"
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "mine"))
    assert find("cmapss").resolve() == shared / "cmapss"
    write_cmapss(tmp_path / "mine" / "cmapss")
    assert find("cmapss") == tmp_path / "mine" / "cmapss"
    assert download_place() == tmp_path / "mine"
    assert download_place(tmp_path) == tmp_path


def test_an_explicit_folder_is_the_only_place(tmp_path: Path) -> None:
    write_cmapss(tmp_path / "cache" / "fedprognos" / "cmapss")
    with refuses(DataNotFoundError, tmp_path / "empty", "fedprognos data get cmapss") as caught:
        find("cmapss", tmp_path / "empty")
    assert "cache" not in caught.value.what
    with refuses(ConfigError, "'cmapss'"):
        find("cmaps")


@pytest.mark.parametrize("folder", ["cmapss", ".", "CMAPSSData", "cmapss/CMAPSSData"])
def test_files_are_found_where_people_unpack_them(tmp_path: Path, folder: str) -> None:
    write_cmapss(tmp_path / "data" / folder)
    assert find("cmapss", tmp_path / "data") == tmp_path / "data" / folder


def test_batteries_are_found_in_either_layout(tmp_path: Path) -> None:
    write_csv_layout(tmp_path / "one" / "nasa_battery" / "cleaned_dataset", {"B0006": [1.9, 1.8]})
    assert find("nasa-battery", tmp_path / "one") == tmp_path / "one" / "nasa_battery" / "cleaned_dataset"
    for part, battery in (("1. FY08Q4", "B0006"), ("2. P1", "B0025")):
        write_mat(tmp_path / "two" / "nasa_battery" / part / f"{battery}.mat", [1.9, 1.8])
    assert find("nasa-battery", tmp_path / "two") == tmp_path / "two" / "nasa_battery"


def test_check_tells_missing_from_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "cmapss"
    write_cmapss(folder, "FD003", train=[2] * 100, test=[2] * 100)
    done = check("cmapss", tmp_path)
    found = statuses(done)
    assert found["train_FD003.txt"] == found["test_FD003.txt"] == found["RUL_FD003.txt"] == "ok"
    assert found["train_FD004.txt"] == "missing"
    assert (done.complete, done.sound) == (False, True)
    (folder / "train_FD003.txt").write_text(cmapss_lines([2] * 99))
    (folder / "test_FD003.txt").write_text("1 2 3\n")
    done = check("cmapss", tmp_path)
    parts = {part.name: part for part in done.parts}
    assert (parts["train_FD003.txt"].status, parts["train_FD003.txt"].units) == ("wrong", 99)
    assert parts["test_FD003.txt"].detail == "line 1 has 3 columns, expected 26"
    assert not done.sound


def test_right_counts_with_other_bytes_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "cmapss"
    write_cmapss(folder, "FD001", test=[2] * 100)
    parts = {part.name: part for part in check("cmapss", tmp_path).parts}
    assert (parts["RUL_FD001.txt"].status, parts["RUL_FD001.txt"].checksum) == ("altered", "differs")


def test_check_counts_discharge_cycles(tmp_path: Path) -> None:
    folder = tmp_path / "nasa_battery"
    write_csv_layout(folder, {"B0006": [1.9, 1.8], "B0033": [1.9, "[]"], "B0034": [1.9]}, leave_out=("00010.csv",))
    done = check("nasa-battery", tmp_path)
    assert statuses(done) == {
        "B0005": "missing",
        "B0006": "partial",
        "B0007": "missing",
        "B0018": "missing",
        "B0033": "ok",
        "B0034": "missing",
    }
    parts = {part.name: part for part in done.parts}
    assert (parts["B0006"].units, parts["B0006"].expected_units) == (2, 168)
    assert parts["B0033"].detail == "1 without capacity"
    (folder / "metadata.csv").write_text("type\n")
    assert not check("nasa-battery", tmp_path).sound


def test_addresses_are_official_and_encrypted() -> None:
    for data in CATALOG.values():
        assert data.address.startswith("https://")


@pytest.mark.needs_data
def test_the_real_data_is_as_published(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cmapss = check("cmapss")
    assert cmapss.sound
    known = [part for part in cmapss.parts if part.status != "missing" and part.checksum != "not known"]
    assert known
    assert all(part.checksum == "matches" for part in known)
    assert check("nasa-battery").sound
