"""Federated runs that are damaged, hostile or large: what is missing is explained, and the page stays small."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go
import pytest
from federated_folders import FEDERATED, says, text_of, write_federated_run, write_match_records
from run_folders import coloured

from fedprognos.federation.exchanges import reply_order
from fedprognos.report import read_run, write_report
from fedprognos.report.sections import ledger

EVIL = "<script>alert(1)</script>"
Read = Callable[[str], dict[str, list[list[dict[str, Any]]]]]


def test_missing_details_and_ledgers_are_explained(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path)
    shutil.rmtree(folder / "details")
    shutil.rmtree(folder / "sites")
    text = text_of(write_report(folder).read_text("utf-8"))
    assert says(text, "details/")
    assert says(text, "ledgers", "all")


def test_without_history_and_traffic_these_sections_are_left_out(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, seeds=1, heads=("exact",))
    raw = json.loads((folder / "results.json").read_text("utf-8"))
    raw["history"] = []
    raw["rows"] = [{**row, "bytes": None, "round": None} for row in raw["rows"]]
    (folder / "results.json").write_text(json.dumps(raw), "utf-8")
    (folder / "details" / "all~fedma~seed0.json").write_text("[]", "utf-8")
    page = write_report(folder).read_text("utf-8")
    assert not any(f'id="{name}"' in page for name in ("rounds", "training", "matching"))
    assert says(text_of(page), "details/")


@pytest.mark.parametrize(
    "content",
    ["{", "[1]", '[{"round": 1}]', '[{"round":1,"layers":[{"layer":"x","width":1,"assignments":{"north":[7]}}]}]'],
)
def test_damaged_details_are_explained(tmp_path: Path, content: str) -> None:
    folder = write_federated_run(tmp_path, seeds=1, heads=("exact",), noise={"local": 9.0, "fedma": 6.0})
    (folder / "details" / "all~fedma~seed0.json").write_text(content, "utf-8")
    assert says(text_of(write_report(folder).read_text("utf-8")), "details/all~fedma~seed0.json")


def test_damaged_ledgers_are_explained(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path)
    good = (folder / "sites/all/north/ledger.jsonl").read_text("utf-8")
    (folder / "sites/all/north/ledger.jsonl").write_text(good + '{"kind": "Fit\n[]\n', "utf-8")
    (folder / "sites/all/south/ledger.jsonl").write_bytes(b"\xff\xfe\x00")
    shutil.copytree(folder / "sites/all/north", folder / "sites/all/new")
    (folder / "sites/all/new/ledger.jsonl").write_text('{"kind": "Rumour", "bytes": 5}\n', "utf-8")
    text = text_of(write_report(folder).read_text("utf-8"))
    assert says(text, "2 lines", "north")
    assert says(text, "1 line ", "south")
    assert "Rumour" in text


def test_every_kind_of_message_is_worded_also_masked_ones(tmp_path: Path) -> None:
    kinds = reply_order()
    assert {"MaskedReply", "Failure", "KeysReply", "OutlineReply", "HelloReply", "StepsMissing"} <= set(kinds)
    place = tmp_path / "sites" / "all" / "a"
    place.mkdir(parents=True)
    lines = [json.dumps({"kind": kind, "bytes": 9, "tensors": {}}) for kind in kinds]
    (place / "ledger.jsonl").write_text("\n".join(lines), "utf-8")
    run: Any = SimpleNamespace(folder=tmp_path, scenario="all", clients=("a",))
    terms = dict(ledger.build(run).terms)
    assert list(terms) == kinds
    assert ledger.UNKNOWN not in terms.values()


def test_points_that_do_not_say_their_head_are_not_mixed_up(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path)
    path = folder / "predictions" / "all.csv"
    lines = [line.split(",") for line in path.read_text("utf-8").splitlines()]
    path.write_text("\n".join(",".join([*line[:2], *line[3:]]) for line in lines) + "\n", "utf-8")
    assert read_run(folder)[0].scored == {}
    assert says(text_of(write_report(folder).read_text("utf-8")), "predictions/", "column head")


@pytest.mark.long
@pytest.mark.parametrize("task", ["rul", "soh"])
def test_names_are_harmless_in_every_section(tmp_path: Path, task: str, figures: Read) -> None:
    folder = write_federated_run(
        tmp_path, task=task, clients=(EVIL, "a/b %{x} " + "long" * 20), scenarios=(EVIL, "b~c"), seeds=1
    )
    page = write_report(folder).read_text("utf-8")
    assert page.count(EVIL) == 0
    drawn = figures(page)
    assert {"matching0-map0", "matching1-map0", "rounds1-error"} <= set(drawn)
    for choices in drawn.values():
        for panel in (p for panels in choices for p in panels):
            go.Figure(coloured({"data": panel["data"], "layout": panel["layout"]}))
            said = [{k: v for k, v in t.items() if k not in ("meta", "offsetgroup")} for t in panel["data"]]
            assert "<script" not in json.dumps([said, panel["layout"]])
            assert not any("%{x} long" in t.get("hovertemplate", "") for t in panel["data"])


@pytest.mark.long
def test_thirty_clients_and_many_rounds_stay_small(tmp_path: Path, figures: Read) -> None:
    clients = [f"site-{k:02}" for k in range(30)]
    noise = {name: FEDERATED[name] for name in ("constant", "local", "fedavg", "fedma", "central")}
    folder = write_federated_run(tmp_path, clients=clients, heads=("exact",), seeds=1, noise=noise)
    write_match_records(folder, "all", clients, rounds=400)
    page = write_report(folder).read_text("utf-8")
    drawn = figures(page)
    assert len(json.dumps(drawn)) < 3_000_000
    assert "of 400 matchings" in page
    assert says(text_of(page), "22 more clients")
    assert len(drawn["rounds0-error"]) == 13


def test_common_test_and_same_bytes(tmp_path: Path, figures: Read) -> None:
    folder = write_federated_run(tmp_path, shared_test=True, seeds=1)
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    assert len(figures(first.decode())["rounds0-error"]) == 1


@pytest.mark.parametrize(
    "choices",
    [7, "north", [], {"north": 3}, {"north": None}, {"north": {"share": 0.5}}, {"north": {"kind": [], "share": 0.5}}]
    + [{"north": {"kind": "together", "share": share}} for share in ("half", None, [], {})],
    ids=str,
)
def test_choices_that_are_none_are_left_out(tmp_path: Path, choices: object) -> None:
    folder = write_federated_run(tmp_path, seeds=1)
    path = folder / "bundle" / "bundle.json"
    document = json.loads(path.read_text("utf-8"))
    document["provenance"]["choices"] = choices
    path.write_text(json.dumps(document), "utf-8")
    assert all(run_data.choices == {} for run_data in read_run(folder))
    assert write_report(folder).is_file()
