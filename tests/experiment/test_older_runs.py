"""A run folder and bundles written by an older version are refused, and the refusal names the file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from fedprognos import Results
from fedprognos.errors import DataError, FedprognosError
from fedprognos.experiment.experiment_run import run
from fedprognos.networks import Bundle
from refusals import refuses

RECORDED = Path(__file__).with_name("run-0.1.zip")
"""A small run (`run/`) and a bundle with intervals (`calibrated/`)."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    with zipfile.ZipFile(RECORDED) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("folder", ["run", "calibrated"])
def test_a_bundle_of_another_version_is_refused(older: Path, folder: str) -> None:
    with refuses(FedprognosError, "version"):
        Bundle.load(older / folder / "bundle")


def test_results_of_another_version_are_refused(older: Path) -> None:
    with refuses(DataError, "results.json"):
        Results.load(older / "run" / "results.json")


def test_an_older_run_is_not_continued_by_another_experiment(older: Path) -> None:
    with refuses(FedprognosError, older / "run", "--out"):
        run("demo", out=older / "run")


def test_a_bundle_of_a_later_format_is_refused(older: Path, tmp_path: Path) -> None:
    text = (older / "run" / "bundle" / "bundle.json").read_text("utf-8")
    (tmp_path / "bundle.json").write_text(text.replace('"format": 1', '"format": 99'), "utf-8")
    (tmp_path / "weights.safetensors").write_bytes((older / "run" / "bundle" / "weights.safetensors").read_bytes())
    with refuses(FedprognosError, "99"):
        Bundle.load(tmp_path)
