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
from federated_folders import says, text_of, write_federated_run
from run_folders import NOISE, coloured, write_run

from fedprognos.errors import DataError
from fedprognos.evaluation import Results
from fedprognos.report import read_run, write_report
from fedprognos.report.number_words import number
from refusals import refuses

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
    assert number(float(np.mean([r.scores["rmse_capped"] or 0 for r in central]))) in page
    assert "Mean of 2 seeds" in page


def test_local_is_pooled_over_points_so_that_it_compares_with_everybody(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))[0]
    found = {(e.method, e.data): e for e in run.entries["all"]}
    local = found[("local", "own data")]
    for pooled in local.rows:
        rows = [r for r in run.rows if r.method == "local" and r.seed == pooled.seed]
        squared = sum(r.n_test * r.rmse**2 for r in rows) / sum(r.n_test for r in rows)
        assert pooled.rmse == pytest.approx(np.sqrt(squared))
        assert pooled.n_test == 16
        assert pooled.scores["r2"] is not None
    low, high = local.intervals["rmse"]
    assert low < (local.mean("rmse") or 0) < high
    # The central model answered for everybody itself: the same formula over its client rows gives its own row.
    central = found[("central", "all data")].rows[0]
    parts = [r for r in run.rows if r.method == "central" and r.seed == 0 and r.test_client != "all"]
    assert central.rmse == pytest.approx(np.sqrt(np.mean([r.rmse**2 for r in parts])))


def test_from_a_clients_side_its_own_model_and_the_common_ones_are_seen(tmp_path: Path) -> None:
    seen = read_run(write_run(tmp_path))[0].entries["south"]
    assert [(e.method, e.data) for e in seen] == [
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
    folder = write_run(tmp_path, task=task, clients=(EVIL, "</script><b>x"), unit=EVIL + "{k}", scenarios=(EVIL, "b"))
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
    assert {name.split("0-")[0] for name in drawn} == {
        "fleet",
        "methods",
        "predictions",
        "errors_over_life",
        "training",
    }
    for choices in drawn.values():
        for panel in (p for panels in choices for p in panels):
            go.Figure(coloured({"data": panel["data"], "layout": panel["layout"]}))
            assert panel["data"]


def test_every_chip_switches_something_and_every_figure_has_a_place(
    tmp_path: Path, figures: Callable[[str], Any]
) -> None:
    page = write_report(write_federated_run(tmp_path)).read_text("utf-8")
    drawn = figures(page)
    assert set(re.findall(r'data-figure="([^"]+)"', page)) == set(drawn)
    for name, body in re.findall(r'data-figure="([^"]+)">(.*?)</figure>', page, re.DOTALL):
        keys = {t.get("meta", {}).get("key") for panels in drawn[name] for p in panels for t in p["data"]}
        for chip in re.findall(r'type="checkbox" value="([^"]*)"', body):
            assert chip in keys, (name, chip)


def test_life_lines_leave_out_what_is_scored_elsewhere(tmp_path: Path, figures: Callable[[str], Any]) -> None:
    page = write_report(write_run(tmp_path)).read_text("utf-8")
    panels = figures(page)["predictions0-units"][0]
    assert [p["title"] for p in panels[:2]] == ["north · engine-0", "north · engine-1"]
    truth = next(t for t in panels[0]["data"] if t["meta"]["key"] == "truth")
    assert truth["x"] == [20.0, 30.0, 40.0]


def test_several_scenarios_each_have_their_answer(tmp_path: Path, figures: Callable[[str], Any]) -> None:
    page = write_report(write_run(tmp_path, scenarios=("heterogeneous", "homogeneous"))).read_text("utf-8")
    switch = page[page.index('<fieldset class="switch"') :]
    switch = switch[: switch.index("</fieldset>")]
    assert switch.count('name="scenario"') == 2
    assert switch.count("alone") == 2
    assert {"methods0-rmse", "methods1-rmse"} <= set(figures(page))


def test_one_seed_and_one_client(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, clients=("only",), seeds=1)).read_text("utf-8")
    assert "A single seed" in page
    assert "own data" not in text_of(page)


@pytest.mark.long
def test_thirty_clients_stay_legible_and_what_is_not_drawn_is_said(
    tmp_path: Path, figures: Callable[[str], Any]
) -> None:
    folder = write_run(tmp_path, clients=[f"site-{k:02}" for k in range(30)], seeds=1)
    page = write_report(folder).read_text("utf-8")
    drawn = figures(page)
    assert len(drawn["methods0-clients"][0]) == 9
    assert says(text_of(page), "21 more clients") and says(text_of(page), "18 more clients")
    assert page.count(">site-29</th>") >= 2  # every client has its line in the tables
    assert len(json.dumps(drawn)) < 2_000_000


def test_unknown_methods_get_a_row_and_a_colour(tmp_path: Path) -> None:
    noise = {**NOISE, "fedma": 4.0, "fedma+personal": 3.0, "something-new": 6.0}
    page = write_report(write_run(tmp_path, noise=noise)).read_text("utf-8")
    assert "something-new" in page
    assert "FedMA, personal heads" in page


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
    assert says(text_of(page), "predictions/") and says(text_of(page), "fleets/", "all")
    assert 'id="methods"' in page


def test_damaged_parts_are_explained(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "fleets" / "all.json").write_text("{", "utf-8")
    (folder / "predictions" / "all.csv").write_text("a,b\n1,2\n", "utf-8")
    page = write_report(folder).read_text("utf-8")
    assert says(text_of(page), "fleets/all.json") and says(text_of(page), "predictions/", "column")


def test_without_results_there_is_no_report(tmp_path: Path) -> None:
    with refuses(DataError, "results.json"):
        write_report(tmp_path)
    (tmp_path / "results.json").write_text(
        json.dumps({"experiment": "x", "version": "1", "config": {}, "rows": [], "history": []}), "utf-8"
    )
    with refuses(DataError, "results.json"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.long
def test_the_page_draws_its_figures_in_a_browser(tmp_path: Path) -> None:
    path = write_report(write_federated_run(tmp_path / "run", clients=(EVIL, "south"), seeds=1))
    with Browser(tmp_path / "profile") as browser:
        browser.resize(1400, 1000)
        browser.open(path.as_uri())
        browser.wait("document.documentElement && document.documentElement.dataset.drawn")
        folded = "document.querySelectorAll('details:not([open]) [data-figure]')"
        assert browser.run(f"[...{folded}].every(f => !f.querySelector('.main-svg'))")  # drawn when they are opened
        browser.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        every = "document.querySelectorAll('[data-figure]').length"
        browser.wait(f"Number(document.documentElement.dataset.drawn) === {every}")
        assert browser.run(f"{every} >= 8 && document.querySelectorAll('.main-svg').length >= {every}")
        assert browser.run("document.querySelectorAll('.failed').length") == 0
        assert browser.complaints == []


@pytest.mark.long
def test_the_page_fits_a_phone(tmp_path: Path) -> None:
    path = write_report(write_run(tmp_path / "run", unit=EVIL + "{k}"))
    with Browser(tmp_path / "profile") as browser:
        browser.resize(390, 844, phone=True)
        browser.open(path.as_uri())
        browser.wait("document.documentElement && document.documentElement.dataset.drawn")
        browser.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        assert browser.run("document.querySelectorAll('td .hidden').length") > 0  # the best of each column, spoken
        assert browser.run("document.documentElement.scrollWidth") <= 390
