"""A run on one machine that adds what masked sites would add."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedprognos.experiment.experiment_run import run

CHANGES = (
    "federation.methods=['fedavg', 'concat']",
    "federation.heads=['exact']",
    "federation.fedavg={rounds=1, epochs=1}",
    "data.sites=3",
    "data.units_per_site=4",
    "train.steps=4",
    "model.widths=[4]",
    "train.epochs=1",
    "recipe.stride=20",
    "evaluation.baselines=[]",
    "evaluation.bootstrap=0",
)


def test_masked_and_open_runs_have_the_same_errors(tmp_path: Path) -> None:
    errors = {}
    for name, mode in (("masked", ("federation.mode='masked'",)), ("open", ())):
        results = run("demo", out=tmp_path / name, overrides=(*CHANGES, *mode), seeds=1, workers=1).results
        errors[name] = {(row.method, row.test_client): row.rmse for row in results.rows}
    assert errors["masked"].keys() == errors["open"].keys()
    for key, rmse in errors["masked"].items():
        assert rmse == pytest.approx(errors["open"][key], rel=1e-4)
