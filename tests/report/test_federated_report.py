"""A run with federated methods: heads told apart, rounds, traffic, matchings and ledgers, whole or damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federated_folders import text_of, write_federated_run
from run_folders import write_run

from fedprognos.report import write_report
from fedprognos.report.entries import entries, scored
from fedprognos.report.figures_matching import sharing
from fedprognos.report.material import read_material
from fedprognos.report.records import LayerMatch
from fedprognos.report.tables_federated import ledger, match_rows

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
    material = read_material(run)
    setting = material.settings[0]
    found = {(e.method, e.head): e for e in entries(material, setting, "all")}
    assert material.heads == ("exact", "mean", "personal")
    assert material.head == "exact"
    assert {head for method, head in found if method == "fedma"} == {"exact", "mean"}
    for key in (("fedma", "exact"), ("fedma", "mean"), ("fedma+personal", "personal"), ("local", "mean")):
        points = scored(setting, found[key])
        error = (points["prediction"] - points["truth"])[points["seed"] == 0]
        assert found[key].rows[0].rmse == pytest.approx(np.sqrt((error**2).mean()))
    assert found[("fedma", "exact")].label == "fedma · all data · exact head"
    assert found[("fedma+personal", "personal")].label == "fedma+personal · all data"


def test_table_has_heads_and_what_they_cost(page: str) -> None:
    assert ">Head</button>" in page
    assert ">Traffic in MB</button>" in page
    row = next(r for r in re.findall(r"<tr.*?</tr>", page, re.DOTALL) if ">central" in r and "<td>exact</td>" in r)
    assert "raw data" in row
    assert "5.00" in row


def test_verdict_compares_the_best_federated_method_at_equal_head(page: str) -> None:
    text = text_of(page)
    assert "The best federated method is fedma (exact head):" in text
    assert "best of 2 federated methods by test error" in text
    for lead in ("Clients that train alone reach", "own predictions", "in one place (central) reaches"):
        assert lead in text
    assert "With personal heads, fedma+personal is best" in text
    assert "With the mean head," in text


def test_verdict_says_so_when_federating_makes_it_worse(tmp_path: Path) -> None:
    noise = {"constant": 30.0, "ridge": 14.0, "local": 2.0, "central": 1.0, "fedavg": 20.0}
    text = text_of(write_report(write_federated_run(tmp_path, noise=noise)).read_text("utf-8"))
    assert re.search(r"federating makes the error \d+ % higher raw", text)
    assert "A yardstick does better than every federated method: ridge" in text


def test_methods_figure_offers_a_choice_of_heads(page: str, figures: Read) -> None:
    assert "against raw labels, exact head" in page
    assert "against labels capped at 60, mean head" in page
    choices = figures(page)["methods0-rmse"]
    assert len(choices) == 4
    names = choices[0][0]["layout"]["yaxis"]["ticktext"]
    assert sorted(n for n in names if n.startswith("fedma")) == ["fedma · all data", "fedma+personal · all data"]


def test_rounds_show_seeds_their_mean_and_the_chosen_round(run: Path, page: str, figures: Read) -> None:
    choices = figures(page)["rounds0"]
    assert len(choices) == 3  # everybody, north, south
    titles = [panel["title"] for panel in choices[0]]
    assert titles[:3] == ["test, raw labels, exact head", "test, capped, exact head", "validation part, exact head"]
    thin, mean, chosen = keyed(choices[1][0]["data"], "fedma")
    history = json.loads((run / "results.json").read_text("utf-8"))["history"]
    mine = [r for r in history if (r["method"], r["client"], r["head"]) == ("fedma", "north", "exact")]
    assert thin["x"] == [1, 2, 3, None, 1, 2, 3, None]
    assert mean["x"] == [1, 2, 3]
    expected = [np.mean([r["rmse"] for r in mine if r["round"] == k]) for k in (1, 2, 3)]
    assert mean["y"] == pytest.approx(expected, rel=1e-3)
    assert chosen["x"] == [2, 2]
    assert keyed(choices[0][0]["data"], "central")[0]["line"]["dash"] == "dash"


def test_traffic_is_drawn_against_error_with_messages_in_the_hover(page: str, figures: Read) -> None:
    choices = figures(page)["traffic0"]
    assert len(choices) == 6  # three heads, raw and capped
    panel = choices[0][0]
    assert panel["layout"]["xaxis"]["type"] == "log"
    way, end = keyed(panel["data"], "fedavg")
    assert way["x"] == [1, 2, 3]
    assert way["text"][1] == "2, 12 messages"
    assert end["x"] == [2]
    assert "12 messages" in end["hovertemplate"]
    central = keyed(panel["data"], "central")[0]
    assert central["x"] == [5]
    assert central["text"] == ["raw data"]
    assert keyed(panel["data"], "local")[0]["xaxis"] == "x2"  # nothing sent has no place on a logarithmic axis


def test_heat_map_puts_shared_neurons_first(page: str, figures: Read) -> None:
    choices = figures(page)["matching0-map0"]
    assert len(choices) == 2  # rounds
    everyone, one = choices[0][0]["data"]
    assert [everyone["meta"]["key"], one["meta"]["key"]] == ["all", "one"]
    assert everyone["text"] == [[0, 1, 2], [1, 3, 0]]  # the clients' own neurons in the global neurons 0, 1, 2
    assert one["z"] == [[1, None], [None, 1]]
    assert (everyone["x0"], one["x0"]) == (1, 4)
    assert choices[0][0]["title"] == "8 neurons of 2 clients became 5"


def test_matching_in_numbers_and_words(run: Path, page: str) -> None:
    row = match_rows(read_material(run).settings[0])[0]
    assert [cell.text for cell in row.cells] == ["8", "5", "60\u00a0%", "0\u00a0%", "40\u00a0%", "1"]
    assert "some merged, some kept" in text_of(page)


def test_matching_that_merged_nothing_says_so(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path)
    path = folder / "details" / "all~fedma~seed0.json"
    kept = {"north": [0, 1, 2, 3], "south": [4, 5, 6, 7]}
    layer = {"layer": "recurrent.0", "width": 8, "absorbing": "all kept", "assignments": kept}
    path.write_text(json.dumps([{"round": 1, "layers": [layer]}]), "utf-8")
    text = text_of(write_report(folder).read_text("utf-8"))
    assert "nothing was merged, the layer is the concatenation" in text
    assert "Matching merged nothing here" in text


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
    found = ledger(read_material(run).settings[0])
    assert found is not None
    assert found.kinds == ("SurveyReply", "FitReply", "ExamineReply")
    assert [row.client for row in found.rows] == ["north", "south"]
    fit = found.rows[0].cells[1]
    assert (fit.text, fit.spread, fit.sort) == ("81.0\u00a0kB", "3 messages", 81_000)
    assert found.total == "10 messages, 207\u00a0kB"
    text = text_of(page)
    assert "No rows of data, no names of units and no times are among them" in text
    assert "(H′H, H′y)" in text


def test_runs_without_federation_have_no_such_sections(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path)).read_text("utf-8")
    assert 'id="rounds"' not in page
    assert 'href="#ledger"' not in page
    assert ">Head</button>" not in page
