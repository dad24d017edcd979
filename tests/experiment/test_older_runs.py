"""Bundles written by an older version predict what they predicted; results of such a run are refused in words.

`run-0.1.zip` holds a small run (`run/`), a bundle with intervals and the predictions noted at the time (`calibrated/`),
and the rows that these were made from (`engines.csv`).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient

from fedprognos import Predictor, Results
from fedprognos.errors import DataError, FedprognosError
from fedprognos.experiment.experiment_run import run
from fedprognos.networks import Bundle
from fedprognos.prognosis.table_prediction import predict_files
from fedprognos.service import ServiceOptions
from fedprognos.service.http_app import create_app
from refusals import refuses

RECORDED = Path(__file__).with_name("run-0.1.zip")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    with zipfile.ZipFile(RECORDED) as archive:
        archive.extractall(folder)
    return folder


def _noted(folder: Path) -> pd.DataFrame:
    """What the federated model said of each unit at its last row, when the folder was written."""
    table = pd.read_csv(folder / "predictions" / "all~fedma~seed0.csv")
    return table[table["scored"] & (table["head"] == "exact")].drop_duplicates("unit").set_index("unit")


@pytest.mark.parametrize("folder", ["run", "calibrated"])
def test_a_bundle_predicts_what_it_predicted(older: Path, tmp_path: Path, folder: str) -> None:
    out, noted = tmp_path / "healths.csv", _noted(older / folder)
    predict_files(Predictor.load(older / folder / "bundle"), str(older / "engines.csv"), out)
    said = pd.read_csv(out).set_index("unit").loc[noted.index]
    assert len(said) == 4
    np.testing.assert_allclose(said["value"], noted["prediction"], rtol=1e-5)
    if folder == "calibrated":
        np.testing.assert_allclose(said[["low", "high"]], noted[["low", "high"]], rtol=1e-5)


def test_a_bundle_is_served(older: Path) -> None:
    noted = _noted(older / "calibrated")
    frame = pd.read_csv(older / "engines.csv").query("unit == 's1-t01'")
    predictor = Predictor.load(older / "calibrated" / "bundle")
    sensors, settings = list(predictor.recipe.sensors), list(predictor.recipe.settings)
    rows = [
        {
            "unit": "s1-t01",
            "position": row["cycle"],
            "sensors": row[sensors].to_dict(),
            "settings": row[settings].to_dict(),
        }
        for _, row in frame.iterrows()
    ]
    app = create_app(predictor, ServiceOptions(rate_per_s=0.0))
    with TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 40000)) as client:
        assert client.post("/v1/rows", json=rows).status_code == 200
        health = client.get("/v1/units/s1-t01").json()["health"]
    assert health["value"] == pytest.approx(noted.loc["s1-t01", "prediction"], rel=1e-5)


def test_results_of_another_version_are_refused(older: Path) -> None:
    with refuses(DataError, "results.json"):
        Results.load(older / "run" / "results.json")


def test_an_older_run_is_not_continued_by_another_experiment(older: Path) -> None:
    with refuses(FedprognosError, str(older / "run"), "--out"):
        run("demo", out=older / "run")


def test_a_bundle_of_a_later_format_is_refused_in_words(older: Path, tmp_path: Path) -> None:
    text = (older / "run" / "bundle" / "bundle.json").read_text("utf-8")
    (tmp_path / "bundle.json").write_text(text.replace('"format": 1', '"format": 99'), "utf-8")
    (tmp_path / "weights.safetensors").write_bytes((older / "run" / "bundle" / "weights.safetensors").read_bytes())
    with refuses(FedprognosError, "99"):
        Bundle.load(tmp_path)
