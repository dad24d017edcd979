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


def test_masked_and_checked_runs_have_the_same_errors(tmp_path: Path) -> None:
    found = {}
    for mode in ("masked", "checked"):
        changes = (*CHANGES, f"federation.mode='{mode}'")
        results = run("demo", out=tmp_path / mode, overrides=changes, seeds=1, workers=1).results
        found[mode] = {(row.method, row.test_client): row.rmse for row in results.rows}
    assert found["masked"].keys() == found["checked"].keys()
    for key, rmse in found["masked"].items():
        assert rmse == pytest.approx(found["checked"][key], rel=1e-4)
