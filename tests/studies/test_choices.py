"""What the tuned experiment was chosen from: measured on training engines, told as tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedprognos.experiment import config
from studies import choices
from studies.choices import AS_IT_IS, CHANGES, METHODS, PRESET, write_choices
from studies.markdown import BLANK
from studies.places import places
from studies.tables_choices import choices_part

FOUND = {
    "preset": "turbofan-tuned",
    "scenario": "heterogeneous",
    "kept_out": 0.2,
    "strengths": ["1.00e-03", "1.00e-02"],
    "config": {"federation": {"ridge": 0.01}},
    "errors": {
        AS_IT_IS: {
            "concat": [{"rmse": [15.5, 15.0], "width": 192}, {"rmse": [16.5, 16.0], "width": 192}],
            "central": [{"rmse": [15.0, 15.0], "width": 64}, {"rmse": [15.0, 15.0], "width": 64}],
        },
        "LSTM": {"concat": [{"rmse": [17.0, 16.0], "width": 192}, {"rmse": [17.0, 18.0], "width": 192}]},
    },
}


def test_changes_are_told_by_their_difference_at_the_presets_ridge() -> None:
    _, said, table, _, curve = (part.replace(BLANK, " ") for part in choices_part(FOUND))
    assert "20% of each client's" in said
    assert "Seeds: 2." in said
    assert table.splitlines()[2:] == [
        "| as it is | 64–192 | 15.50 | 15.00 |",
        "| LSTM | 192 | 17.00 (+1.50 ± 0.71) | – |",
    ]
    assert curve.splitlines()[2:] == ["| 1.0e-03 | 16.00 | 15.00 |", "| 1.0e-02 | 15.50 | 15.00 |"]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_one_that_the_preset_takes(change: str) -> None:
    methods, overrides = CHANGES[change]
    assert set(methods) <= set(METHODS)
    changed = config.load(PRESET, overrides)[1]
    assert (changed.dump() == config.load(PRESET)[1].dump()) == (change == AS_IT_IS)


@pytest.mark.long
@pytest.mark.needs_data
def test_a_measurement_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = replace(places(quick=True), out=tmp_path, runs=tmp_path / "runs")
    monkeypatch.setattr(choices, "METHODS", ("concat",))
    monkeypatch.setattr(
        choices, "CHANGES", {AS_IT_IS: (("concat",), ()), "small": (("concat",), ("model.widths=[2]",))}
    )
    monkeypatch.setattr(choices, "SEEDS", 1)
    told: list[str] = []
    path = write_choices(where, workers=1, tell=told.append)
    found = json.loads(path.read_text("utf-8"))
    assert [len(found["errors"][change]["concat"]) for change in (AS_IT_IS, "small")] == [1, 1]
    best, small = (min(found["errors"][change]["concat"][0]["rmse"]) for change in (AS_IT_IS, "small"))
    assert 10 < best < small < 60
    assert len(choices_part(found)[2].splitlines()) == 4
    write_choices(where, workers=1, tell=told.append)
    assert len(told) == 2
    path.write_text(json.dumps({**found, "data": "others"}))  # what was measured on other data does not count
    write_choices(where, workers=1, tell=told.append)
    assert len(told) == 4
