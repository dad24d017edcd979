"""From a run to its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedprognos.experiment import config
from studies.page import write_page
from studies.places import places
from studies.record import read_record
from studies.recording import run_preset


@pytest.mark.long
@pytest.mark.needs_data
@pytest.mark.parametrize("preset", places(quick=True).presets)
def test_a_quick_preset_ends_as_a_page(preset: str, tmp_path: Path) -> None:
    where = replace(places(quick=True), out=tmp_path, runs=tmp_path / "runs", presets=(preset,))
    run_preset(preset, where, workers=1)
    first = where.json(preset).read_bytes()
    assert len(first) < 1_000_000
    found = read_record(where.json(preset))
    methods = set(config.load(preset)[1].federation.methods)
    assert {"local", "fedavg", "central"} <= methods <= {row.method for row in found.results.rows}
    assert json.loads(where.times(preset).read_text("utf-8"))["seconds"] > 0
    run_preset(preset, where, workers=1)  # nothing is left to do
    assert where.json(preset).read_bytes() == first
    write_page(where)
    text = where.tables.read_text("utf-8")
    drawn = preset.removesuffix("-quick").endswith(("-paper", "-tuned"))  # the others have tables only
    assert (f"{preset}-rounds.svg" in text) == drawn
    assert (f"{preset}-extractors-before.svg" in text) == drawn
