"""From a run to its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedprognos.experiment import config
from studies.page import write_page
from studies.places import Places
from studies.record import read_record
from studies.recording import run_preset

PRESETS = ("battery-paper", "battery-tuned", "turbofan-paper", "turbofan-tuned", "turbofan-life")


@pytest.mark.long
@pytest.mark.needs_data
@pytest.mark.parametrize("preset", [f"{preset}-quick" for preset in PRESETS])
def test_a_quick_preset_ends_as_a_page(preset: str, tmp_path: Path) -> None:
    where = Places(tmp_path, tmp_path / "runs", (preset,))
    run_preset(preset, where, workers=1)
    first = where.json(preset).read_bytes()
    assert len(first) < 1_000_000
    found = read_record(where.json(preset))
    methods = set(config.load(preset)[1].federation.methods)
    assert {"local", "fedavg", "central"} <= methods <= {row.method for row in found.results.rows}
    assert json.loads(where.times(preset).read_text("utf-8"))["seconds"] > 0
    run_preset(preset, where, workers=1)  # nothing is left to do
    assert where.json(preset).read_bytes() == first
    for file in list(where.folder.iterdir()):  # the page knows presets by their names
        file.rename(file.with_name(file.name.replace("-quick", "")))
    write_page(where)
    text = where.tables.read_text("utf-8")
    drawn = preset.removesuffix("-quick").endswith(("-paper", "-tuned"))  # the others have tables only
    assert (f"{preset}-rounds.svg" in text) == drawn
    assert (f"{preset}-extractors-before.svg" in text) == drawn
