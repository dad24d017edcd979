"""One plain answer: together, alone, all data in one place and the best baseline, and how sure that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from federated_folders import publish, says, text_of, write_federated_run
from run_folders import write_run

from fedprognos.report import answer, read_run, write_report
from fedprognos.report.method_entries import points_of
from fedprognos.report.number_words import number
from fedprognos.report.verdict import compare

BETTER = {"constant": 60.0, "ridge": 30.0, "local": 20.0, "central": 3.0, "fedavg": 9.0, "fedma": 4.0}


def edit(folder: Path, **changes: Any) -> None:
    """Change every row with a method; a change is a function of the row."""
    path = folder / "results.json"
    raw = json.loads(path.read_text("utf-8"))
    for row in raw["rows"]:
        row |= {key: change(row) for key, change in changes.items()}
    path.write_text(json.dumps(raw), "utf-8")


def test_worth_it_with_all_four_numbers(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER)
    run = read_run(folder)[0]
    found = answer(run)
    values = {e.method: e.mean("rmse_capped") for e in run.entries["all"] if e.head in (None, "exact")}
    assert found.headline.startswith(
        f"Together {number(values['fedma'])} cycles off, alone {number(values['local'])}: worth it ("
    )
    assert says(found.headline, "less error", "1 %")
    assert says(found.beside, "one place", number(values["central"])) and says(found.beside, "baseline")
    assert found.warnings == ()
    assert found.headline in text_of(write_report(folder).read_text("utf-8")).replace(" %", "\u00a0%")


def test_too_few_failures_come_first_in_the_headline(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER)
    path = next((folder / "fleets").glob("*.json"))
    fleet = json.loads(path.read_text("utf-8"))
    for client in fleet["clients"].values():
        client["failed"] = 2
    path.write_text(json.dumps(fleet), "utf-8")
    failures = 2 * len(fleet["clients"])
    headline = answer(read_run(folder)[0]).headline
    assert headline.index(f"seen {failures} failures") < headline.index("Together")


def test_not_worth_it_when_federating_makes_it_worse(tmp_path: Path) -> None:
    noise = {"constant": 60.0, "ridge": 50.0, "local": 2.0, "central": 1.0, "fedma": 20.0}
    found = answer(read_run(write_federated_run(tmp_path, noise=noise))[0])
    assert ": not worth it (" in found.headline
    assert "more error" in found.headline


def test_never_worth_it_when_a_baseline_does_better(tmp_path: Path) -> None:
    noise = {**BETTER, "ridge": 0.5}
    found = answer(read_run(write_federated_run(tmp_path, noise=noise))[0])
    assert "worth it" not in found.headline
    assert [w[:-10] for w in found.warnings] == ["A simple baseline does better than the network: Ridge,"]


def test_no_clear_difference_when_it_may_be_chance(tmp_path: Path) -> None:
    noise = {"constant": 30.0, "local": 10.0, "central": 9.9, "fedma": 10.0}
    assert "no clear difference (" in answer(read_run(write_federated_run(tmp_path, noise=noise))[0]).headline


def test_nothing_is_claimed_from_three_units(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER, clients=("only", "other"), units=1)
    found = answer(read_run(folder)[0]).headline
    assert says(found, "2 test units")
    assert "worth it" not in found


def test_nothing_is_claimed_without_points(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER)
    (folder / "predictions" / "all.csv").unlink()
    found = answer(read_run(folder)[0]).headline
    assert "worth it" not in found


def test_seeds_that_disagree_are_no_clear_difference(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER)
    edit(folder, rmse_capped=lambda row: 99.0 if (row["method"], row["seed"]) == ("fedma", 1) else row["rmse_capped"])
    run = read_run(folder)[0]
    assert run.roles.together is not None
    assert run.roles.alone is not None
    found = compare(run, run.roles.together, run.roles.alone)
    assert (found.agreeing, found.seeds) == (1, 2)
    assert not found.clear
    assert (found.agreeing, found.seeds) == (1, 2)


@pytest.mark.parametrize(("coverage", "narrow"), [(0.7, True), (0.88, False), (None, False)])
def test_intervals_that_are_too_narrow_are_a_warning(tmp_path: Path, coverage: float | None, narrow: bool) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER)
    edit(folder, coverage=lambda row: coverage if row["method"] == "fedma" else None)
    found = answer(read_run(folder)[0]).warnings
    assert any("too narrow: they hold 70\u00a0% of the true values, not 90\u00a0%" in text for text in found) == narrow


def test_alone_is_never_dropped(tmp_path: Path) -> None:
    """Clients without a validation part choose the last round; rows of both kinds are one entry."""
    folder = write_federated_run(tmp_path, noise=BETTER)
    edit(folder, selected_on=lambda row: "last" if row["train_clients"] == ["north"] else "validation")
    run = read_run(folder)[0]
    assert run.roles.alone is not None
    assert run.roles.alone.n_test == 16
    assert "alone" in answer(run).headline


def test_alone_for_a_part_of_the_test_is_compared_on_that_part(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER)
    path = folder / "results.json"
    raw = json.loads(path.read_text("utf-8"))
    raw["rows"] = [r for r in raw["rows"] if not (r["method"] == "local" and r["test_client"] == "south")]
    path.write_text(json.dumps(raw), "utf-8")
    lines = pd.read_csv(folder / "predictions" / "all.csv", keep_default_na=False)
    gone = (lines["method"] == "local") & (lines["test_client"] == "south")
    lines[~gone].to_csv(folder / "predictions" / "all.csv", index=False)
    run = read_run(folder)[0]
    assert run.roles.together is not None
    assert run.roles.alone is not None
    found = compare(run, run.roles.together, run.roles.alone)
    points = points_of(run, run.roles.together)
    north = points[points["test_client"] == "north"]
    error = np.sqrt(np.mean((north["prediction"] - north["truth"].clip(upper=60.0)) ** 2))
    alone = points_of(run, run.roles.alone)
    other = np.sqrt(np.mean((alone["prediction"] - alone["truth"].clip(upper=60.0)) ** 2))
    assert found.units == 8
    assert found.change == pytest.approx(error / other - 1)
    assert any(says(text, "8 of 16") for text in answer(run).warnings)


def test_alone_with_another_head_still_counts(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path, noise=BETTER)
    path = folder / "results.json"
    raw = json.loads(path.read_text("utf-8"))
    raw["rows"] = [row for row in raw["rows"] if (row["method"], row["head"]) != ("local", "exact")]
    path.write_text(json.dumps(raw), "utf-8")
    run = read_run(folder)[0]
    assert run.roles.alone is not None
    assert run.roles.alone.head == "mean"


def test_the_answer_is_about_the_model_in_the_bundle(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path)
    for method, head, label in (("fedma", "exact", "FedMA"), ("fedavg", "mean", "FedAvg")):
        publish(folder, method, head)
        run = read_run(folder)[0]
        assert run.roles.together is not None
        assert (run.roles.together.method, run.roles.together.head, run.head) == (method, head, head)
        assert f"{label}, {head} head" in text_of(write_report(folder).read_text("utf-8"))


def test_what_was_chosen_on_the_test_plays_no_part(tmp_path: Path) -> None:
    folder = write_federated_run(tmp_path)
    path = folder / "results.json"
    raw = json.loads(path.read_text("utf-8"))
    raw["rows"] += [
        {**row, "selected_on": "test", "rmse": 0.001, "rmse_capped": 0.001}
        for row in raw["rows"]
        if row["method"] in ("fedma", "local")
    ]
    path.write_text(json.dumps(raw), "utf-8")
    run = read_run(folder)[0]
    assert all(e is None or e.honest for e in vars(run.roles).values())
    assert any(not e.honest and e.label in text_of(write_report(folder).read_text("utf-8")) for e in run.entries["all"])


def test_without_federation_or_networks_the_answer_says_so(tmp_path: Path) -> None:
    found = answer(read_run(write_run(tmp_path / "a"))[0]).headline
    assert found.startswith("All data in one place")
    found = answer(read_run(write_run(tmp_path / "b", noise={"constant": 30.0, "ridge": 14.0}))[0])
    assert not any(character.isdigit() for character in found.headline)
    assert "best baseline" in found.beside.lower()
    found = answer(read_run(write_run(tmp_path / "c", noise={"constant": 30.0, "local": 14.0}))[0])
    assert found.headline.startswith("Alone ")


def test_the_measure_is_that_of_the_labels(tmp_path: Path) -> None:
    assert " Ah off, alone " in answer(read_run(write_federated_run(tmp_path, task="soh"))[0]).headline


def test_what_owners_end_with_leads_where_no_network_was_trained_alone(tmp_path: Path) -> None:
    """With few cycles floors refuse networks: owners keep linear models, which are the ridge baseline."""
    folder = write_federated_run(tmp_path, noise={"constant": 60.0, "ridge": 0.5, "fedma": 4.0})
    path = folder / "results.json"
    raw = json.loads(path.read_text("utf-8"))
    baseline = read_run(folder)[0].roles.own_baseline
    scores = dict.fromkeys(("rmse", "rmse_capped"), 0.0 if baseline is None else 1.001 * baseline.mean("rmse_capped"))
    model = [r for r in raw["rows"] if r["method"] == "fedma" and r["test_client"] == "all" and r["head"] == "exact"]
    raw["rows"] += [{**r, "method": "fedma+choice", "head": "choice", **scores} for r in model]
    path.write_text(json.dumps(raw), "utf-8")
    found = answer(read_run(folder)[0])
    assert found.headline.startswith(f"Owners end with {number(scores['rmse_capped'])} cycles off")
    assert found.beside.startswith("One model for all ")
    assert not any("baseline does better" in warning for warning in found.warnings)
