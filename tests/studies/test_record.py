"""The committed JSON: small, readable line by line, the same bytes for the same run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_records import battery_record, turbofan_record

from fedprognos.errors import DataError
from fedprognos.evaluation import HistoryRow
from fedprognos.experiment import config
from refusals import refuses
from studies.record import Record, changed_options, read_record, write_record


@pytest.mark.parametrize("made", [battery_record(), turbofan_record()], ids=["battery", "turbofan"])
def test_what_is_read_is_what_was_written(made: Record, tmp_path: Path) -> None:
    write_record(tmp_path / "a.json", made)
    back = read_record(tmp_path / "a.json")
    assert back.results.rows == made.results.rows
    key = lambda h: (h.method, h.client, h.seed, h.round)  # noqa: E731
    assert sorted(back.results.history, key=key) == sorted(made.results.history, key=key)
    write_record(tmp_path / "b.json", back)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    made = battery_record()
    turned = replace(made.results, rows=made.results.rows[::-1], history=made.results.history[::-1])
    write_record(tmp_path / "a.json", made)
    write_record(tmp_path / "b.json", replace(made, results=turned))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_changed_number_changes_one_line(tmp_path: Path) -> None:
    made = battery_record()
    first, *rest = made.results.rows
    changed = (first.model_copy(update={"rmse": 0.5}), *rest)
    write_record(tmp_path / "a.json", made)
    write_record(tmp_path / "b.json", replace(made, results=replace(made.results, rows=changed)))
    lines = [(tmp_path / f"{name}.json").read_text("utf-8").splitlines() for name in "ab"]
    assert sum(a != b for a, b in zip(*lines, strict=True)) == 1


def test_epochs_are_left_out(tmp_path: Path) -> None:
    made = battery_record()
    epoch = HistoryRow(scenario="all", method="fedma", seed=0, client="B0006", round=1, epoch=3, train_rmse=0.1)
    write_record(tmp_path / "a.json", replace(made, results=replace(made.results, history=(epoch,))))
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["history"] == []


def test_a_record_knows_when_its_preset_has_changed() -> None:
    made = battery_record()
    same = replace(made.results, config=config.load("battery-paper")[1].dump())
    assert changed_options(replace(made, results=same)) == []
    other = {**same.config, "title": "x", "train": {**same.config["train"], "epochs": 7}, "gone": 1}
    assert changed_options(replace(made, results=replace(same, config=other))) == ["train.epochs"]
    federation = {**same.config["federation"], "absorb": {"alpha": 77.0}}
    unused = {**federation, "methods": [m for m in federation["methods"] if m != "absorb"]}
    assert "federation.absorb.alpha" not in changed_options(
        replace(made, results=replace(same, config={**same.config, "federation": unused}))
    )
    used = {**federation, "methods": [*unused["methods"], "absorb"]}
    assert "federation.absorb.alpha" in changed_options(
        replace(made, results=replace(same, config={**same.config, "federation": used}))
    )
    assert changed_options(replace(made, results=replace(same, experiment="nowhere"))) == ["the preset itself"]


def test_a_missing_record_names_the_command(tmp_path: Path) -> None:
    with refuses(DataError, "python -m studies run battery-paper"):
        read_record(tmp_path / "battery-paper.json")


def test_a_broken_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"preset": "x"}', "utf-8")
    with refuses(DataError, "x.json"):
        read_record(tmp_path / "x.json")
