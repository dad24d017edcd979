"""Decisions and intervals in the report, from folders written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from federated_folders import says, text_of, write_federated_run
from run_folders import write_run
from safetensors.numpy import save

from fedprognos.report import read_run, write_report
from fedprognos.report.sections.decisions import maintenance


def with_trajectories(folder: Path, spoilt: bool = False) -> None:
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
    (folder / "trajectories").mkdir()
    (folder / "trajectories" / "all~x~seed0.safetensors").write_bytes(data[:50] if spoilt else data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", shared_test=True)


def test_decisions_follow_from_the_trajectories(folder: Path) -> None:
    with_trajectories(folder)
    made = {j.entry.method: j for j in maintenance(read_run(folder)[0])}
    assert set(made) == {"central", "constant"}
    right, always = made["central"], made["constant"]
    assert right.unused == pytest.approx(right.thresholds)  # maintained just when the threshold says
    assert right.breaks.tolist() == [1.0, *[0.0] * (len(right.breaks) - 1)]
    assert (always.breaks == (always.thresholds < 30)).all()
    assert right.accuracy == {0.5: 1.0, 0.75: 1.0}
    assert always.accuracy == {0.5: 1.0, 0.75: 0.0}  # right in the middle of life only
    assert (right.horizon, always.horizon) == (60.0, 0.0)


def test_when_to_maintain_is_said_before_research_detail(folder: Path) -> None:
    with_trajectories(folder)
    page = write_report(folder).read_text("utf-8")
    assert says(text_of(page), "Central", "2 cycles", "none of", "test units")  # they cannot show one break in twenty
    places = [
        page.index(f'<section id="{name}"') for name in ("answer", "methods", "decisions", "predictions", "fleet")
    ]
    assert places == sorted(places)
    assert "decisions0-costs" in page


def test_without_trajectories_the_page_says_so(folder: Path) -> None:
    page = write_report(folder).read_text("utf-8")
    assert all(text in text_of(page) for text in read_run(folder)[0].missing)
    assert 'id="not_shown"' in page
    assert 'id="decisions"' not in page


def test_spoilt_trajectories_spoil_no_report(folder: Path) -> None:
    with_trajectories(folder, spoilt=True)
    page = write_report(folder).read_text("utf-8")
    assert says(text_of(page), "trajectories/")
    assert 'id="decisions"' not in page


def bands(page: str, figures: Callable[[str], Any]) -> list[dict[str, Any]]:
    panels = figures(page)["predictions0-units"][0]
    return [t for panel in panels for t in panel["data"] if t.get("meta", {}).get("key") == "interval"]


def test_intervals_are_drawn_and_their_coverage_said(tmp_path: Path, figures: Callable[[str], Any]) -> None:
    folder = write_federated_run(tmp_path, shared_test=True, heads=("exact",))
    results = json.loads((folder / "results.json").read_text())
    for row in results["rows"]:
        if row["method"] == "fedma":
            row["coverage"], row["interval_width"] = 0.925, 40.0
    (folder / "results.json").write_text(json.dumps(results))
    for path in (folder / "predictions").glob("*.csv"):
        lines = pd.read_csv(path)
        mine = lines["method"] == "fedma"
        lines["low"] = np.where(mine, lines["prediction"] - 20, np.nan)
        lines["high"] = np.where(mine, lines["prediction"] + np.where(lines.index % 2, 20, np.inf), np.nan)
        lines.to_csv(path, index=False)
    page = write_report(folder).read_text("utf-8")
    assert bands(page, figures)
    text = text_of(page)
    for value in ("90 %", "92 %", "40.0 cycles wide"):
        assert value in text
    assert "No intervals" not in text


def test_without_calibration_there_are_no_intervals_and_no_band(tmp_path: Path, figures: Callable[[str], Any]) -> None:
    page = write_report(write_federated_run(tmp_path)).read_text("utf-8")
    assert bands(page, figures) == []
    assert 'value="interval"' not in page
