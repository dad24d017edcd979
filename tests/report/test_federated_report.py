"""A run with federated methods: heads told apart, rounds, traffic, matchings and ledgers, whole or damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federated_folders import says, text_of, write_federated_run
from run_folders import write_run

from fedprognos.evaluation.match_records import LayerMatch
from fedprognos.report import read_run, write_report
from fedprognos.report.method_entries import points_of
from fedprognos.report.sections.ledger import build as ledger
from fedprognos.report.sections.matching import build as matching
from fedprognos.report.sections.matching import sharing

Read = Callable[[str], dict[str, list[list[dict[str, Any]]]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its report, to be looked at only."""
    folder = write_federated_run(tmp_path_factory.mktemp("federated"))
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return (run / "report.html").read_text("utf-8")


def keyed(traces: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [t for t in traces if t.get("meta", {}).get("key") == key]


def test_every_head_is_an_entry_with_its_own_points(run: Path) -> None:
    data = read_run(run)[0]
    found = {(e.method, e.head): e for e in data.entries["all"]}
    assert data.heads == ("exact", "mean", "personal")
    assert data.head == "exact"
    assert {head for method, head in found if method == "fedma"} == {"exact", "mean"}
    for key in (("fedma", "exact"), ("fedma", "mean"), ("fedma+personal", "personal"), ("local", "mean")):
        points = points_of(data, found[key])
        error = (points["prediction"] - points["truth"])[points["seed"] == 0]
        assert found[key].rows[0].rmse == pytest.approx(np.sqrt((error**2).mean()))
    assert found[("fedma", "exact")].label == "FedMA, exact head"
    assert found[("fedma+personal", "personal")].label == "FedMA, personal heads"


def test_table_has_heads_and_what_they_cost(page: str) -> None:
    assert ">MB</button>" in page
    row = next(r for r in re.findall(r"<tr.*?</tr>", page, re.DOTALL) if "</i>Central, exact head" in r)
    assert "5.00" in row


def test_other_heads_and_methods_have_their_sentence(page: str) -> None:
    text = text_of(page)
    for which in ("2 federated methods", "personal heads", "mean head"):
        assert says(text, which, "FedMA")
    assert says(text, "published model", "no intervals")
    assert not says(text, "published model", "unknown way")
    for role in ("alone", "all data in one place", "mean of the clients’ own predictions", "best baseline"):
        assert role in text


def test_methods_figure_offers_a_choice_of_heads(page: str, figures: Read) -> None:
    assert "labels capped at 60, exact head" in page
    assert "raw labels, mean head" in page
    choices = figures(page)["methods0-rmse"]
    assert len(choices) == 4
    names = choices[0][0]["layout"]["yaxis"]["ticktext"]
    assert sorted(n for n in names if n.startswith("FedMA")) == ["FedMA", "FedMA, personal heads"]


def test_rounds_show_seeds_their_mean_and_the_chosen_round(run: Path, page: str, figures: Read) -> None:
    choices = figures(page)["rounds0-error"]
    assert len(choices) == 3  # everybody, north, south
    titles = [panel["title"] for panel in choices[0]]
    assert titles[:4] == [
        "test, labels capped at 60, exact head",
        "test, raw labels, exact head",
        "validation part, exact head",
        "test, by MB sent and received, exact head",
    ]
    thin, mean, chosen = keyed(choices[1][1]["data"], "fedma")
    history = json.loads((run / "results.json").read_text("utf-8"))["history"]
    mine = [r for r in history if (r["method"], r["client"], r["head"]) == ("fedma", "north", "exact")]
    assert thin["x"] == [1, 2, 3, None, 1, 2, 3, None]
    assert mean["x"] == [1, 2, 3]
    expected = [np.mean([r["rmse"] for r in mine if r["round"] == k]) for k in (1, 2, 3)]
    assert mean["y"] == pytest.approx(expected, rel=1e-3)
    assert chosen["x"] == [2, 2]
    assert keyed(choices[0][0]["data"], "central")[0]["line"]["dash"] == "dash"


def test_traffic_is_drawn_against_error_with_messages_in_the_hover(page: str, figures: Read) -> None:
    panel = figures(page)["rounds0-error"][0][3]
    assert panel["layout"]["xaxis"]["type"] == "log"
    way, end = keyed(panel["data"], "fedma")
    assert way["x"] == [1, 2, 3]
    assert way["text"][1] == "round 2, 12 messages"
    assert end["x"] == [2, 2]
    assert says(text_of(page), "raw data", "5.00 MB")


def test_heat_map_puts_shared_neurons_first(page: str, figures: Read) -> None:
    choices = figures(page)["matching0-map0"]
    assert len(choices) == 2  # rounds
    everyone, one = choices[0][0]["data"]
    assert [everyone["meta"]["key"], one["meta"]["key"]] == ["all", "one"]
    assert everyone["text"] == [[0, 1, 2], [1, 3, 0]]  # the clients' own neurons in the global neurons 0, 1, 2
    assert one["z"] == [[1, None], [None, 1]]
    assert (everyone["x0"], one["x0"]) == (1, 4)
    assert choices[0][0]["title"] == "8 neurons of 2 clients became 5"


def test_matching_in_numbers_and_words(run: Path) -> None:
    section = matching(read_run(run)[0])
    assert section.lead == "8 neurons of 2 clients became 5."
    row = section.tables[0].lines[0]
    assert [cell.text for cell in row.cells] == ["1", "8", "5", "60\u00a0%", "0\u00a0%", "40\u00a0%"]


def test_matching_that_merged_nothing_says_so(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path)
    path = folder / "details" / "all~fedma~seed0.json"
    kept = {"north": [0, 1, 2, 3], "south": [4, 5, 6, 7]}
    layer = {"layer": "recurrent.0", "width": 8, "absorbing": "all kept", "assignments": kept}
    path.write_text(json.dumps([{"round": 1, "layers": [layer]}]), "utf-8")
    layer_row = matching(read_run(folder)[0]).tables[0].lines[0]
    assert layer_row.cells[-1].text == "100\u00a0%"  # of its neurons belong to a single client


def test_a_client_alone_has_nothing_shared_by_all() -> None:
    layer = LayerMatch(layer="recurrent.0", width=2, assignments={"only": (0, 1)})
    assert sharing(layer) == ([0, 1], [0, 0, 0, 2])


def test_extractors_before_and_after(page: str, figures: Read) -> None:
    drawn = figures(page)
    before, after = drawn["matching0-extractors0-before"][0], drawn["matching0-extractors0-after"][0]
    assert [len(p["data"]) for p in before] == [2, 2, 2]
    assert [(p["title"], len(p["data"])) for p in after][-1] == ("federated 3 · 1 client", 1)
    colours = {t["meta"]["key"]: t["line"]["color"] for t in before[0]["data"]}
    assert colours == {"north": "k0", "south": "k1"}
    assert before[0]["layout"]["yaxis"]["range"] == after[0]["layout"]["yaxis"]["range"]


def test_ledgers_are_added_up_and_central_is_no_site(run: Path, page: str) -> None:
    found = ledger(read_run(run)[0])
    table = found.tables[0]
    assert [column.title for column in table.columns] == ["SurveyReply", "FitReply", "EvaluateReply", "All"]
    assert [line.name for line in table.lines] == ["north", "south"]
    fit = table.lines[0].cells[1]
    assert (fit.text, fit.note, fit.sort) == ("81.0\u00a0kB", "3×", 81_000)
    assert found.lead.startswith("10 messages, 207\u00a0kB")
    for exchange in ("SurveyReply", "FitReply", "EvaluateReply"):
        assert exchange in text_of(page)


def test_runs_without_federation_have_no_such_sections(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path)).read_text("utf-8")
    assert 'id="rounds"' not in page
    assert 'id="ledger"' not in page
    assert 'id="matching"' not in page
