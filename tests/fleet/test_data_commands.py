from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from engines import write_cmapss
from typer.testing import CliRunner

from fedprognos.cli.data import data_app
from fedprognos.errors import DataError, DataNotFoundError
from refusals import refuses

app = typer.Typer()
app.add_typer(data_app, name="data")


def run(*arguments: object) -> object:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_cmapss(tmp_path / "cmapss", "FD003", train=[2] * 100, test=[2] * 100)
    return tmp_path


def test_list_says_what_is_found_and_what_is_not(place: Path) -> None:
    result = run("data", "list", "--data-dir", place)
    assert str(place / "cmapss") in result.stdout
    assert "fedprognos data get nasa-battery" in result.stdout
    listed = json.loads(run("data", "list", "--data-dir", place, "--json").stdout)
    assert [d["folder"] for d in listed["data_sets"]] == [str(place / "cmapss"), None]


def test_check_reports_and_its_exit_code_tells_damage(place: Path) -> None:
    result = run("data", "check", "cmapss", "--data-dir", place)
    assert result.exit_code == 0
    assert "train_FD003.txt" in result.stdout
    (place / "cmapss" / "train_FD003.txt").write_text("1 2\n")
    result = run("data", "check", "cmapss", "--data-dir", place, "--json")
    assert result.exit_code == DataError.exit_code
    assert json.loads(result.stdout)["sound"] is False
    with pytest.raises(DataNotFoundError):
        run("data", "check", "nasa-battery", "--data-dir", place)


def test_get_leaves_what_is_there(place: Path) -> None:
    result = run("data", "get", "cmapss", "--data-dir", place, "--address", "http://127.0.0.1:9/a.zip", "--json")
    assert json.loads(result.stdout)["folder"] == str(place / "cmapss")


def test_get_without_connection_fails_clearly(tmp_path: Path) -> None:
    with refuses(DataError, "127.0.0.1"):
        run("data", "get", "cmapss", "--data-dir", tmp_path, "--address", "http://127.0.0.1:9/a.zip")
