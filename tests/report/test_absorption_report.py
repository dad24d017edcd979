"""What the report says of absorption: contributions, repeated features, widths, and neurons that extract the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from federated_folders import FEDERATED, says, text_of, write_federated_run

from fedprognos.report import read_run, write_report

Read = Callable[[str], dict[str, list[list[dict[str, Any]]]]]
WAVE, OTHER = [0.1, 0.2, -0.3], [0.1, 0.1, -0.2]
ABSORPTION: dict[str, Any] = {
    "neurons": {"north": 4, "south": 4},
    "kept": {"north": 1, "south": 4},
    "whole": 10.0,
    "without": {"north": 10.5, "south": 12.0},
    "repeats": [[1.0, 0.4], [0.9, 1.0]],
    "predicted": {"1": 30.0, "4": 14.0, "5": 12.0, "8": 10.0},
    "measured": {"5": 13.0, "8": 12.5},
    "pairs": [
        {
            "absorbed": ["north", 2],
            "kept": ["south", 0],
            "correlation": -0.97,
            "before": [WAVE, OTHER],
            "after": [OTHER, WAVE],
        }
    ],
}


def write(folder: Path, *rounds: dict[str, Any]) -> Path:
    write_federated_run(folder, noise={**FEDERATED, "absorb": 5.0})
    told = [{"round": k, "layers": [], "absorption": one} for k, one in enumerate(rounds, start=1)]
    (folder / "details" / "all~absorb~seed0.json").write_text(json.dumps(told), "utf-8")
    return folder


@pytest.fixture
def page(tmp_path: Path) -> str:
    return write_report(write(tmp_path, ABSORPTION)).read_text("utf-8")


def test_what_each_client_contributes_is_the_rise_of_the_error_without_it(page: str, figures: Read) -> None:
    assert says(text_of(page), "south", "20 %")
    (bars,) = figures(page)["absorbed_neurons0-contributions"][0][0]["data"]
    assert (bars["y"], bars["x"]) == (["south", "north"], [20, 5])


def test_repeated_features_are_a_matrix_from_row_to_column(page: str, figures: Read) -> None:
    (matrix,) = figures(page)["absorbed_neurons0-repeats"][0][0]["data"]
    assert matrix["z"] == [[100, 40], [90, 100]]
    assert says(text_of(page), "south", "north", "90 %")


def test_the_chosen_width_is_marked_on_the_curve(page: str, figures: Read) -> None:
    panel = figures(page)["absorbed_neurons0-width"][0][0]
    predicted, measured = panel["data"]
    assert (predicted["x"], predicted["y"]) == ([1, 4, 5, 8], [30, 14, 12, 10])
    assert (measured["x"], measured["y"]) == ([5, 8], [13, 12.5])
    assert panel["layout"]["shapes"][0]["x0"] == 5
    assert "8 neurons of 2 clients became 5." in text_of(page)


def test_pairs_are_drawn_before_and_after(page: str, figures: Read) -> None:
    drawn = figures(page)
    (before,), (after,) = drawn["absorbed_neurons0-pairs-before"][0], drawn["absorbed_neurons0-pairs-after"][0]
    assert [trace["y"] for trace in before["data"]] == [WAVE, OTHER]
    assert [trace["y"] for trace in after["data"]] == [OTHER, WAVE]
    assert before["title"] == "2 and 0 · r = −0.97"
    assert says(text_of(page), "2 of north", "0 of south", "−0.97")


def test_pairs_without_outputs_are_told_in_numbers(tmp_path: Path) -> None:
    pairs = [{k: v for k, v in pair.items() if k not in ("before", "after")} for pair in ABSORPTION["pairs"]]
    page = write_report(write(tmp_path, {**ABSORPTION, "pairs": pairs})).read_text("utf-8")
    assert "north, neuron 2 south, neuron 0 −0.97" in text_of(page)


def test_of_several_rounds_the_chosen_one_is_shown(tmp_path: Path) -> None:
    rounds = [{**ABSORPTION, "whole": float(10 + k)} for k in range(3)]
    assert [one.whole for one in read_run(write(tmp_path, *rounds))[0].absorbed] == [11.0]  # rows say round 2


def test_records_that_contradict_themselves_are_named_and_left_out(tmp_path: Path) -> None:
    (run,) = read_run(write(tmp_path, {**ABSORPTION, "without": {"north": 10.5}}))
    assert run.absorbed == ()
    assert any("all~absorb~seed0.json cannot be read" in text for text in run.missing)
