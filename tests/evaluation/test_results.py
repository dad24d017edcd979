from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedprognos.errors import DataError
from fedprognos.evaluation import Prediction, Results, Row, read_predictions, score, write_predictions
from fedprognos.features import build_windows
from small_fleets import recipe_of, series_fleet


def row(seed: int, rmse: float, **more: object) -> Row:
    scores = score(np.array([0.0, 1.0]), np.array([0.5, 1.5]), np.arange(2), task="rul", cap=10.0).as_dict()
    facts = {
        "scenario": "all",
        "method": "local",
        "head": "mean",
        "train_clients": ("a",),
        "test_client": "a",
        "seed": seed,
        "round": None,
        "selected_on": "last",
        "measure": "cycles",
        "width": (8,),
        "parameters": 10,
        "local_epochs": 3,
        "bytes": 0,
    }
    return Row.model_validate({**scores, **facts, "rmse": rmse, **more})


def test_seeds_become_mean_and_spread() -> None:
    results = Results("x", "0", {}, (row(0, 1.0), row(1, 3.0), row(0, 9.0, method="central")), ())
    local, central = results.summary()
    assert (local.method, local.seeds, local.rmse, local.rmse_spread) == ("local", 2, 2.0, 1.0)
    assert central.rmse == 9.0


def test_results_come_back_from_disk_and_do_not_depend_on_the_order_of_jobs(tmp_path: Path) -> None:
    rows = (row(0, 1.0), row(1, 3.0), row(0, 9.0, method="ridge"))
    text = json.dumps(Results("x", "0", {}, rows, ()).as_dict())
    assert text == json.dumps(Results("x", "0", {}, rows[::-1], ()).as_dict())
    (tmp_path / "results.json").write_text(text)
    assert len(Results.load(tmp_path / "results.json").rows) == 3


@pytest.mark.parametrize(
    "text", [None, "{", '{"experiment": "x"}', '{"experiment":"x","version":"","config":{},"rows":[{}],"history":[]}']
)
def test_missing_or_broken_results_are_an_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    with pytest.raises(DataError, match=r"results\.json"):
        Results.load(tmp_path / "results.json")


def test_predictions_read_back_to_the_same_bits(tmp_path: Path) -> None:
    fleet = series_fleet([40, 30])
    windows = build_windows(recipe_of(fleet), fleet)
    values = np.random.default_rng(0).normal(size=len(windows)) / 3
    write_predictions(tmp_path / "p.csv", [Prediction("all", "local", "mean", ("NA", "b"), "NA", 0, windows, values)])
    frame = read_predictions([tmp_path / "p.csv"])
    np.testing.assert_array_equal(frame["prediction"].to_numpy(), values)
    assert frame["test_client"].unique().tolist() == ["NA"]
    assert frame["train_clients"].unique().tolist() == ["NA+b"]
