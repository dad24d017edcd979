from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from fedprognos.errors import DataError
from fedprognos.evaluation import (
    ClientPredictions,
    read_predictions,
    read_trajectories,
    write_predictions,
    write_trajectories,
)
from fedprognos.features import build_windows
from refusals import refuses
from small_fleets import recipe_of, series_fleet


def predictions() -> list[ClientPredictions]:
    fleet = series_fleet([30, 25], seed=1)
    windows = build_windows(recipe_of(fleet, window=8, cap=20), fleet)
    values = np.linspace(0, 20, len(windows))
    life = ClientPredictions(
        "all", "fedma", "exact", ("a", "b"), "all", 2, windows, values, scored=False, trajectory=True
    )
    other = ClientPredictions(
        "all", "ridge", None, ("a",), "all", 2, windows, values[::-1].copy(), scored=False, trajectory=True
    )
    return [life, other, ClientPredictions("all", "fedma", "exact", ("a", "b"), "all", 2, windows, values)]


def test_trajectories_come_back_as_they_were_and_apart_from_what_is_scored(tmp_path: Path) -> None:
    made = predictions()
    write_trajectories(tmp_path / "x.safetensors", made)
    found = read_trajectories(tmp_path / "x.safetensors")
    assert [(f.method, f.head, f.train_clients, f.seed) for f in found] == [
        ("fedma", "exact", "a+b", 2),
        ("ridge", "", "a", 2),
    ]
    for one, life in zip(made, found, strict=False):
        assert life.unit_ids == one.windows.unit_ids
        assert (life.unit == one.windows.unit).all()
        assert (life.truth == one.windows.labels).all()
        assert np.allclose(life.prediction, one.values, atol=1e-5)
    write_predictions(tmp_path / "x.csv", made)
    table = read_predictions([tmp_path / "x.csv"])
    assert len(table) == len(made[2].values)
    assert table["scored"].all()
    assert table["low"].isna().all()


def test_without_trajectories_nothing_is_written(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "x.safetensors", predictions()[2:])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["cut", "text", "version", "unit", "shape", "nan", "missing", "order"])
def test_a_file_that_is_not_one_of_trajectories_is_refused(change: str, tmp_path: Path) -> None:
    tensors = {
        "test0/unit": np.array([0, 0, 1], np.int32),
        "test0/truth": np.array([2, 1, 5], np.float32),
        "model0": np.ones(3, np.float32),
    }
    model = {"scenario": "all", "method": "m", "head": "", "train_clients": "a", "test_client": "all", "seed": 0}
    document = {"version": 1, "tests": [{"test_client": "all", "unit_ids": ["u", "v"]}], "models": [model]}
    path = tmp_path / "x.safetensors"

    def put() -> None:
        path.write_bytes(save(tensors, metadata={"fedprognos": json.dumps(document)}))

    put()
    assert len(read_trajectories(path)) == 1
    match change:
        case "version":
            document["version"] = 2
        case "unit":
            tensors["test0/unit"] = np.array([0, 0, 9], np.int32)
        case "order":
            tensors["test0/unit"] = np.array([1, 0, 1], np.int32)
        case "shape":
            tensors["model0"] = np.ones(4, np.float32)
        case "nan":
            tensors["model0"] = np.array([1, np.nan, 1], np.float32)
        case "missing":
            del model["seed"]
    put()
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-4])
    if change == "text":
        path.write_text("lives")
    with refuses(DataError, "x.safetensors"):
        read_trajectories(path)
