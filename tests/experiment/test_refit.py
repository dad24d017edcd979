"""The model that people get has learnt from all their units, and carries the error of units kept out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedprognos import Bundle
from fedprognos.errors import ConfigError
from fedprognos.experiment import config
from fedprognos.experiment.experiment_run import Run, run
from fedprognos.report import answer, read_run
from fedprognos.report.number_words import number
from fedprognos.report.verdict import owner_gains


def table(path: Path, units: int = 12) -> Path:
    """Machines of two plants that get hotter until they fail."""
    rng = np.random.default_rng(0)
    lives = []
    for k in range(units):
        rows = int(rng.integers(30, 50))
        heat = 20 + 30 * (np.arange(rows) / rows) ** 2 + rng.normal(size=rows)
        life = {"machine": f"m{k:02d}", "hour": np.arange(1, rows + 1), "heat": heat, "plant": f"plant-{k % 2}"}
        lives.append(pd.DataFrame(life))
    pd.concat(lives).to_csv(path, index=False)
    return path


def experiment(folder: Path, **evaluation: object) -> dict[str, object]:
    return {
        "data": {"kind": "table", "path": str(table(folder / "fleet.csv")), "unit": "machine", "time": "hour",
                 "sensors": ["heat"], "site": "plant"},
        "partition": {"by": "column", "column": "site"},
        "recipe": {"history": "life", "cap": 25.0},
        "model": {"widths": [4]},
        "train": {"steps": 6},
        "federation": {"methods": ["local", "concat"], "heads": ["exact", "choice"]},
        "evaluation": {"seeds": 1, "bootstrap": 0, "intervals": "none", **evaluation},
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refit")


@pytest.fixture(scope="module")
def finished(folder: Path) -> Run:
    return run(experiment(folder, refit=True), out=folder / "run", workers=1)


def test_the_published_model_is_trained_on_all_units(finished: Run, folder: Path) -> None:
    evaluated = Bundle.load(finished.folder / "bundles" / "all" / "concat" / "seed0")
    published = Bundle.load(finished.folder / "bundle")
    assert published.provenance["units"] == 12
    assert "all units" in finished.results.reason
    assert published.recipe == evaluated.recipe
    assert published.metrics == evaluated.metrics
    assert not np.array_equal(published.network.head, evaluated.network.head)
    again = run(experiment(folder, refit=True), out=folder / "again", workers=1)
    weights = [(f / "bundle" / "weights.safetensors").read_bytes() for f in (finished.folder, again.folder)]
    assert weights[0] == weights[1]


def test_every_owner_ends_with_the_model_that_it_chose(finished: Run) -> None:
    published = Bundle.load(finished.folder / "bundle")
    choices = published.provenance["choices"]
    assert set(choices) == {"plant-0", "plant-1"}
    for owner, choice in choices.items():
        own = Bundle.load(finished.folder / "owners" / owner)
        assert own.provenance["choice"] == choice["kind"]
        same = np.array_equal(own.network.head, published.network.head)
        assert same == ((choice["kind"], choice["share"]) == ("together", 0.0))
    rows = [row for row in finished.results.rows if row.method == "concat+choice"]
    assert {row.test_client for row in rows} == {"plant-0", "plant-1", "all"}
    assert {row.head for row in rows} == {"choice"}


def test_the_answer_is_what_owners_end_with(finished: Run) -> None:
    (run_data,) = read_run(finished.folder)
    (ends,) = [row for row in finished.results.rows if row.method == "concat+choice" and row.test_client == "all"]
    assert f"{number(ends.scores['rmse_capped'])} hours" in answer(run_data).headline
    gains = {gain.owner: gain for gain in owner_gains(run_data)}
    assert set(gains) == {"plant-0", "plant-1"}
    for gain in gains.values():
        assert gain.end is not None and gain.together is not None and gain.alone is not None
        if (gain.kind, gain.share) == ("together", 0.0):
            assert gain.end == gain.together


def test_without_refit_the_evaluated_model_is_published(folder: Path) -> None:
    plain = run(experiment(folder), out=folder / "plain", workers=1)
    evaluated = Bundle.load(plain.folder / "bundles" / "all" / "concat" / "seed0")
    assert np.array_equal(Bundle.load(plain.folder / "bundle").network.head, evaluated.network.head)


def test_privacy_does_not_cover_a_second_training(folder: Path) -> None:
    document = experiment(folder, refit=True)
    document["train"] = {"validation_fraction": 0.0}
    document["federation"] = {"methods": ["reservoir"], "heads": ["exact"], "privacy": {"epsilon": 8.0, "per": "unit"}}
    with pytest.raises(ConfigError):
        config.load(document)
