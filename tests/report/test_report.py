"""The report is one file that loads nothing, says what the run found, and survives odd names and missing files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from browser import Browser
from run_folders import NOISE, coloured, write_run

from fedprognos.errors import DataError
from fedprognos.evaluation import Results
from fedprognos.report import write_report
from fedprognos.report.choosing import best
from fedprognos.report.entries import entries
from fedprognos.report.material import read_material
from fedprognos.report.words import number

EVIL = "<script>alert(1)</script>"


def without_plotly(page: str) -> str:
    """The page less the library, whose own text mentions addresses it never loads here."""
    start = page.index("<script>", page.index('id="figures"'))
    return page[:start] + page[page.index("</script>", start) :]


def test_one_file_that_loads_nothing_from_anywhere(tmp_path: Path) -> None:
    path = write_report(write_run(tmp_path))
    page = path.read_text("utf-8")
    assert path == tmp_path / "report.html"
    assert page.count("<script>") == 2  # plotly once, our own once
    own = without_plotly(page)
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", own)
    assert not re.search(r"<(link|img|iframe|object|embed)\b|@import|url\(", own)
    assert "default-src 'none'" in own.replace("&#39;", "'")


def test_same_folder_same_bytes(tmp_path: Path) -> None:
    first = write_report(write_run(tmp_path / "a")).read_bytes()
    assert write_report(tmp_path / "a").read_bytes() == first
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert write_report(tmp_path / "b").read_bytes() == first


def test_table_shows_the_values_of_the_rows(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path)).read_text("utf-8")
    rows = Results.load(tmp_path / "results.json").rows
    central = [r for r in rows if r.method == "central" and r.test_client == "all"]
    assert len(central) == 2
    assert number(float(np.mean([r.rmse for r in central]))) in page
    assert number(float(np.mean([r.rmse_capped or 0 for r in central]))) in page
    assert "mean of 2 seeds" in page


def test_local_is_pooled_over_points_so_that_it_compares_with_everybody(tmp_path: Path) -> None:
    material = read_material(write_run(tmp_path))
    found = {(e.method, e.scope): e for e in entries(material, material.settings[0], "all")}
    local = found[("local", "own data")]
    for pooled in local.rows:
        rows = [r for r in material.results.rows if r.method == "local" and r.seed == pooled.seed]
        squared = sum(r.n_test * r.rmse**2 for r in rows) / sum(r.n_test for r in rows)
        assert pooled.rmse == pytest.approx(np.sqrt(squared))
        assert pooled.n_test == 16
        assert pooled.rmse_low is not None
        assert pooled.rmse_low < pooled.rmse
        assert pooled.r2 is not None
    # The central model answered for everybody itself: the same formula over its client rows gives its own row.
    central = found[("central", "all data")].rows[0]
    parts = [r for r in material.results.rows if r.method == "central" and r.seed == 0 and r.test_client != "all"]
    assert central.rmse == pytest.approx(np.sqrt(np.mean([r.rmse**2 for r in parts])))


def test_from_a_clients_side_its_own_model_and_the_common_ones_are_seen(tmp_path: Path) -> None:
    material = read_material(write_run(tmp_path))
    seen = entries(material, material.settings[0], "south")
    assert [(e.method, e.scope) for e in seen] == [
        ("constant", "own data"),
        ("constant", "all data"),
        ("ridge", "own data"),
        ("ridge", "all data"),
        ("local", "own data"),
        ("central", "all data"),
    ]
    assert all(r.test_client == "south" for e in seen for r in e.rows)


@pytest.mark.parametrize("task", ["rul", "soh"])
def test_names_are_shown_and_never_run(tmp_path: Path, task: str, figures: Callable[[str], Any]) -> None:
    folder = write_run(tmp_path, task=task, clients=(EVIL, "</script><b>x"), unit=EVIL + "{k}", settings=(EVIL, "b"))
    page = write_report(folder).read_text("utf-8")
    own = without_plotly(page)
    assert EVIL not in own
    assert "<b>x" not in own
    assert own.count("</script>") == 3
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in own
    drawn = figures(page)
    texts = [t for panels in drawn.values() for p in panels[0] for trace in p["data"] for t in _strings(trace)]
    assert not any("<script" in text for text in texts)  # plotly would take it for markup
    assert any("&lt;script" in text for text in texts)


def _strings(trace: dict[str, Any]) -> list[str]:
    text = trace.get("text", [])
    return [trace.get("hovertemplate", ""), *(text if isinstance(text, list) else [text])]


@pytest.mark.parametrize("task", ["rul", "soh"])
@pytest.mark.parametrize("shared_test", [False, True])
def test_every_figure_is_one_plotly_accepts(
    tmp_path: Path, task: str, shared_test: bool, figures: Callable[[str], Any]
) -> None:
    page = write_report(write_run(tmp_path, task=task, shared_test=shared_test)).read_text("utf-8")
    drawn = figures(page)
    kinds = {name.rstrip("0") for name in (key.split("-")[0] for key in drawn)}
    assert kinds == {"fleet", "methods", "predictions", "errors", "history"}
    for choices in drawn.values():
        for panel in (p for panels in choices for p in panels):
            go.Figure(coloured({"data": panel["data"], "layout": panel["layout"]}))
            assert panel["data"]


def test_life_lines_leave_out_what_is_scored_elsewhere(tmp_path: Path, figures: Callable[[str], Any]) -> None:
    page = write_report(write_run(tmp_path)).read_text("utf-8")
    panels = figures(page)["predictions0-lives"][0]
    assert [p["title"] for p in panels[:2]] == ["north · engine-0", "north · engine-1"]
    truth = next(t for t in panels[0]["data"] if t["meta"]["key"] == "truth")
    assert truth["x"] == [20.0, 30.0, 40.0]


def test_several_settings_are_told_apart(tmp_path: Path, figures: Callable[[str], Any]) -> None:
    page = write_report(write_run(tmp_path, settings=("heterogeneous", "homogeneous"))).read_text("utf-8")
    assert page.count('name="setting"') == 2
    assert {"methods0-rmse", "methods1-rmse"} <= set(figures(page))


def test_one_seed_and_one_client(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, clients=("only",), seeds=1)).read_text("utf-8")
    assert "a single seed" in page
    assert "Trained on" not in page


def test_thirty_clients_stay_legible_and_what_is_not_drawn_is_said(
    tmp_path: Path, figures: Callable[[str], Any]
) -> None:
    folder = write_run(tmp_path, clients=[f"site-{k:02}" for k in range(30)], seeds=1)
    page = write_report(folder).read_text("utf-8")
    drawn = figures(page)
    assert len(drawn["methods0-rmse"][0]) == 10
    assert "21 more clients are not drawn" in page
    assert "18 more clients are not drawn" in page
    assert "Seen from each client (30)" in page
    assert len(json.dumps(drawn)) < 2_000_000


def test_unknown_methods_get_a_row_and_a_colour(tmp_path: Path) -> None:
    noise = {**NOISE, "fedma": 4.0, "fedma+personal": 3.0, "something-new": 6.0}
    page = write_report(write_run(tmp_path, noise=noise)).read_text("utf-8")
    assert "something-new" in page
    assert "The best federated method is fedma:" in page
    assert "With personal heads, fedma+personal is best" in page


def test_verdict_admits_when_a_yardstick_wins(tmp_path: Path) -> None:
    noise = {"constant": 30.0, "ridge": 1.0, "local": 20.0, "central": 15.0}
    page = write_report(write_run(tmp_path, noise=noise)).read_text("utf-8")
    assert "A yardstick does better than every network: ridge" in page
    assert "hardly chance" in page


def test_verdict_admits_when_it_may_be_chance(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, noise={"constant": 30.0, "local": 10.0, "central": 9.9})).read_text("utf-8")
    assert "may be chance" in page


def test_verdict_claims_nothing_from_three_units(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, clients=("only",), units=3)).read_text("utf-8")
    assert "too few to say" in page


def test_what_was_chosen_on_the_test_is_never_the_best(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    raw = json.loads((folder / "results.json").read_text("utf-8"))
    cheats = [{**r, "selected_on": "test", "rmse": 0.001} for r in raw["rows"] if r["method"] == "central"]
    raw["rows"] += cheats
    (folder / "results.json").write_text(json.dumps(raw), "utf-8")
    page = write_report(folder).read_text("utf-8")
    assert "round chosen on the test" in page
    assert "The best network is central on all data:" in page


def test_collapsed_networks_are_marked(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    raw = json.loads((folder / "results.json").read_text("utf-8"))
    for row in raw["rows"]:
        row["collapsed"] = row["method"] == "local"
    (folder / "results.json").write_text(json.dumps(raw), "utf-8")
    assert "⚠ collapsed" in write_report(folder).read_text("utf-8")


def test_missing_parts_are_explained(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    shutil.rmtree(folder / "predictions")
    shutil.rmtree(folder / "fleets")
    (folder / "provenance.json").unlink()
    page = write_report(folder).read_text("utf-8")
    assert "no predictions/" in page
    assert "no portrait of the fleet" in page
    assert "The best network is central" in page


def test_damaged_parts_are_explained(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "fleets" / "all.json").write_text("{", "utf-8")
    (folder / "predictions" / "all.csv").write_text("a,b\n1,2\n", "utf-8")
    page = write_report(folder).read_text("utf-8")
    assert "fleets/all.json cannot be read" in page
    assert "lacks the column" in page


def test_without_results_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no results here"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_best_is_the_smallest_mean(tmp_path: Path) -> None:
    material = read_material(write_run(tmp_path))
    winner = best(entries(material, material.settings[0], "all"))
    assert winner is not None
    assert winner.method == "central"


def test_the_page_draws_its_figures_in_a_browser(tmp_path: Path, browse: Callable[[Path], tuple[str, str]]) -> None:
    path = write_report(write_run(tmp_path / "run", task="soh", unit=EVIL + "{k}"))
    document, complaints = browse(path)
    figures = len(re.findall(r"<figure ", document))
    assert f'data-drawn="{figures}"' in document
    assert document.count('class="main-svg"') >= figures
    assert "could not be drawn" not in document.split('id="figures"')[0]
    assert complaints == ""


def test_the_page_fits_a_phone(tmp_path: Path) -> None:
    path = write_report(write_run(tmp_path / "run", unit=EVIL + "{k}"))
    with Browser(tmp_path / "profile") as browser:
        browser.resize(390, 844, phone=True)
        browser.open(path.as_uri())
        browser.wait("document.documentElement && document.documentElement.dataset.drawn")
        assert browser.run("document.querySelectorAll('td .hidden').length") > 0  # the best of each column, spoken
        assert browser.run("document.documentElement.scrollWidth") <= 390
