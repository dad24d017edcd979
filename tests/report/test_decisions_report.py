"""Decisions and intervals in the report, from folders written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_folders import write_run
from safetensors.numpy import save

from fedprognos.report import write_report
from fedprognos.report.entries import entries
from fedprognos.report.judging import followed, judged
from fedprognos.report.material import read_material


def with_lives(folder: Path, spoilt: bool = False) -> None:
    """Twelve units followed to failure from 60 cycles on; `central` is right, `constant` always says 30."""
    truth = np.tile(np.arange(60.0, -1, -1), 12)
    unit = np.repeat(np.arange(12), 61)
    rows = json.loads((folder / "results.json").read_text())["rows"]
    models, tensors = [], {"test0/unit": unit.astype(np.int32), "test0/truth": truth.astype(np.float32)}
    said = {"central": truth, "constant": np.full(len(truth), 30.0)}
    for row in rows:
        if row["method"] in said and row["test_client"] == "all":
            tensors[f"model{len(models)}"] = said[row["method"]].astype(np.float32)
            names = {k: row[k] for k in ("scenario", "method", "seed")}
            more = {"head": row["head"] or "", "train_clients": "+".join(row["train_clients"]), "test_client": "all"}
            models.append({**names, **more})
    document = {"version": 1, "tests": [{"test_client": "all", "unit_ids": [f"u{k}" for k in range(12)]}]}
    data = save(tensors, metadata={"fedprognos": json.dumps({**document, "models": models})})
    (folder / "lives").mkdir()
    (folder / "lives" / "all~x~seed0.safetensors").write_bytes(data[:50] if spoilt else data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", shared_test=True)


def test_decisions_follow_from_the_lives(folder: Path) -> None:
    with_lives(folder)
    material = read_material(folder)
    setting = material.settings[0]
    made = {j.entry.method: j for j in judged(material, setting, entries(material, setting, "all"))}
    assert followed(setting) is not None
    assert set(made) == {"central", "constant"}
    right, always = made["central"], made["constant"]
    assert right.unused == pytest.approx(right.thresholds)  # maintained just when the threshold says
    assert right.breaks.tolist() == [1.0, *[0.0] * (len(right.breaks) - 1)]
    assert (always.breaks == (always.thresholds < 30)).all()
    assert right.accuracy == {0.5: 1.0, 0.75: 1.0}
    assert always.accuracy == {0.5: 1.0, 0.75: 0.0}  # right in the middle of life only
    assert (right.horizon, always.horizon) == (60.0, 0.0)
    page = write_report(folder).read_text("utf-8")
    for text in ('id="decisions"', "decisions0-costs", "decisions0-cones", "Alpha-lambda accuracy"):
        assert text in page


def test_without_lives_the_page_says_so(folder: Path) -> None:
    assert "no predictions along whole lives" in write_report(folder).read_text("utf-8")


def test_spoilt_lives_spoil_no_report(folder: Path) -> None:
    with_lives(folder, spoilt=True)
    assert "Decisions cannot be judged" in write_report(folder).read_text("utf-8")


def test_intervals_are_drawn_and_their_coverage_told(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    for row in results["rows"]:
        if row["method"] == "central":
            row["coverage"], row["interval_width"] = 0.925, 40.0
    (folder / "results.json").write_text(json.dumps(results))
    for path in (folder / "predictions").glob("*.csv"):
        lines = pd.read_csv(path)
        mine = lines["method"] == "central"
        lines["low"] = np.where(mine, lines["prediction"] - 20, np.nan)
        lines["high"] = np.where(mine, lines["prediction"] + np.where(lines.index % 2, 20, np.inf), np.nan)
        lines.to_csv(path, index=False)
    page = write_report(folder).read_text("utf-8")
    assert "intervals0" in page
    assert "Interval width" in page
    assert "92\u00a0%" in page
