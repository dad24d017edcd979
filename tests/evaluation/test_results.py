from __future__ import annotations

import csv
import json
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedprognos.cli.terminal import results_table
from fedprognos.errors import DataError
from fedprognos.evaluation import (
    EVERYONE,
    OWN,
    SHARED,
    ClientPredictions,
    Method,
    Metric,
    Points,
    ResultRow,
    Results,
    Sum,
    metrics,
    pooled,
    read_predictions,
    score,
    score_sums,
    write_predictions,
    written_clients,
)
from fedprognos.features import build_windows
from refusals import refuses
from small_fleets import recipe_of, series_fleet

METHODS = {
    "ridge": Method(label="Ridge", order=4, kind="baseline"),
    "local": Method(label="Local", order=10, kind="local"),
    "central": Method(label="Central", order=90, kind="central"),
}


def row(seed: int, rmse: float, **more: object) -> ResultRow:
    scores = score(Points(np.array([0.0, 1.0]), np.array([0.5, 1.5]), np.arange(2), task="rul", cap=10.0))
    facts = {
        "scenario": "all",
        "method": "local",
        "head": "mean",
        "train_clients": ("a",),
        "test_client": "a",
        "seed": seed,
        "selected_on": "last",
        "measure": "cycles",
        "width": (8,),
        "parameters": 10,
    }
    return ResultRow.model_validate({**scores, **facts, "rmse": rmse, **more})


def test_seeds_become_mean_and_spread() -> None:
    results = Results("x", "0", {}, (row(0, 9.0, method="central"), row(0, 1.0), row(1, 3.0)), (), METHODS)
    local, central = results.summary()
    assert (local.method, local.seeds, local.mean("rmse"), local.spread("rmse")) == ("local", 2, 2.0, 1.0)
    assert (central.mean("rmse"), central.spread("rmse")) == (9.0, None)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1000)), min_size=2, max_size=5))
def test_pooled_own_models_score_as_one_model_over_all_points(parts: list[tuple[int, int]]) -> None:
    rows, points = [], []
    for k, (n, seed) in enumerate(parts):
        rng = np.random.default_rng(seed)
        truth, said = rng.uniform(0, 60, n), rng.uniform(0, 60, n)
        scores = score(Points(truth, said, np.arange(n), task="rul", cap=40.0, bounds=(said - 9, said + 9)))
        name = f"client-{k}"
        rows.append(row(0, **{**scores, "train_clients": (name,), "test_client": name}))  # type: ignore[arg-type]
        points.append((truth, said))
    truth, said = (np.concatenate(side) for side in zip(*points, strict=True))
    whole = score(Points(truth, said, np.arange(len(truth)), task="rul", cap=40.0, bounds=(said - 9, said + 9)))
    found = pooled(rows)
    by_points = {name for name, metric in metrics.items() if metric.pool is None}
    assert found.scores == {name: None if name in by_points else pytest.approx(whole[name]) for name in found.scores}
    assert (found.n_test, found.n_units, found.test_client) == (len(truth), len(truth), EVERYONE)


def test_a_summary_pools_own_models_and_keeps_shared_ones() -> None:
    def tested(method: str, train: tuple[str, ...], test: str, rmse: float, n: int) -> ResultRow:
        return row(0, rmse, method=method, train_clients=train, test_client=test, n_test=n)

    own = (tested("local", ("a",), "a", 3.0, 10), tested("local", ("b",), "b", 6.0, 30))
    shared = tuple(tested("central", ("a", "b"), test, r, n) for test, r, n in (("a", 1.0, 10), ("b", 2.0, 30)))
    results = Results("x", "0", {}, (*own, *shared, tested("central", ("a", "b"), EVERYONE, 1.8, 40)), (), METHODS)
    local, central = results.summary("all")
    assert (local.data, local.n_test, local.mean("rmse")) == (OWN, 40, pytest.approx(np.sqrt((90 + 1080) / 40)))
    assert (central.data, central.n_test, central.mean("rmse")) == (SHARED, 40, 1.8)
    assert [s.mean("rmse") for s in results.summary("all", "b")] == [6.0, 2.0]
    assert results.summary("nowhere") == []


def test_clients_that_had_nothing_to_validate_on_are_not_dropped() -> None:
    chosen = {"a": "validation", "b": "last", "c": "test"}
    rows = tuple(row(0, 3.0, train_clients=(c,), test_client=c, selected_on=s) for c, s in chosen.items())
    honest, other = Results("x", "0", {}, rows, (), METHODS).summary()
    assert (honest.selected_on != "test", honest.n_test, other.selected_on, other.n_test) == (True, 4, "test", 2)


def test_own_models_on_a_common_test_are_kept_apart_where_that_is_asked_for() -> None:
    rows = tuple(row(0, e, train_clients=(c,), test_client=EVERYONE) for c, e in (("a", 3.0), ("b", 4.0)))
    results = Results("x", "0", {}, rows, (), METHODS)
    (together,) = results.summary()
    assert (together.data, together.n_test, together.mean("rmse")) == (OWN, 2, pytest.approx(np.sqrt(12.5)))
    assert [(s.data, s.mean("rmse")) for s in results.summary(each_client=True)] == [("a", 3.0), ("b", 4.0)]


def test_results_come_back_from_disk_and_do_not_depend_on_the_order_of_jobs(tmp_path: Path) -> None:
    rows = (row(0, 1.0), row(1, 3.0), row(0, 9.0, method="ridge"))
    text = json.dumps(Results("x", "0", {}, rows, (), METHODS).as_dict())
    assert text == json.dumps(Results("x", "0", {}, rows[::-1], (), METHODS).as_dict())
    (tmp_path / "results.json").write_text(text)
    back = Results.load(tmp_path / "results.json")
    assert [r.method for r in back.rows] == ["ridge", "local", "local"]
    assert back.method("local+personal").label == "Local"
    assert back.as_dict() == json.loads(text)


def test_a_frame_has_a_line_a_row_and_a_column_a_metric() -> None:
    frame = Results("x", "0", {}, (row(0, 1.0, train_clients=("a", "b")), row(1, 3.0)), ()).frame()
    assert frame["rmse"].tolist() == [3.0, 1.0]
    assert frame["train_clients"].tolist() == ["a", "a+b"]
    assert set(metrics) <= set(frame.columns)


def test_a_metric_of_somebody_else_is_in_rows_sums_frame_and_terminal() -> None:
    worst = Sum("far", lambda p: np.abs(p.error) > 20, "zero or one")
    mine = Metric("far_off", "Far off", 15, "share of errors above 20", (worst,), percent=True)
    truth, said, unit = np.array([10.0, 20, 30, 40]), np.array([10.0, 50, 30, 80]), np.array([0, 0, 1, 1])
    with metrics.including([mine]):
        facts = {"scenario": "all", "method": "local", "train_clients": ("a",), "test_client": "a", "seed": 0}
        scores = score(Points(truth, said, unit, task="rul"))
        found = ResultRow.model_validate({**facts, **scores, "selected_on": "last", "measure": "cycles"})
        results = Results("x", "0", {}, (found,), (), METHODS)
        assert results.as_dict()["rows"][0]["far_off"] == 0.5
        assert results.frame()["far_off"].tolist() == [0.5]
        assert (
            score_sums(Points(truth, said, unit, task="rul")) + score_sums(Points(truth, truth, unit, task="rul"))
        ).scores()["far_off"] == 0.25
        console = Console(width=120, record=True, file=StringIO())
        for table in results_table(results):
            console.print(table)
        text = console.export_text()
        assert "Far off" in text
        assert "50.0%" in text


@pytest.mark.parametrize(
    "text", [None, "{", '{"experiment": "x"}', '{"experiment":"x","version":"","config":{},"rows":[{}],"history":[]}']
)
def test_missing_or_broken_results_are_an_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    with refuses(DataError, "results.json"):
        Results.load(tmp_path / "results.json")


def test_predictions_read_back_to_the_same_bits(tmp_path: Path) -> None:
    fleet = series_fleet([40, 30])
    windows = build_windows(recipe_of(fleet), fleet)
    values = np.random.default_rng(0).normal(size=len(windows)) / 3
    write_predictions(
        tmp_path / "p.csv", [ClientPredictions("all", "local", "mean", ("NA", "b"), "NA", 0, windows, values)]
    )
    frame = read_predictions([tmp_path / "p.csv"])
    np.testing.assert_array_equal(frame["prediction"].to_numpy(), values)
    assert frame["test_client"].unique().tolist() == ["NA"]
    assert frame["train_clients"].unique().tolist() == ["NA+b"]


def test_prediction_files_are_what_pandas_would_write(tmp_path: Path) -> None:
    names, fleet = ['quo"ted', "a,b", "two\nlines", ""], series_fleet([40, 30, 35, 30])
    units = tuple(replace(unit, id=name) for unit, name in zip(fleet, names, strict=True))
    windows = build_windows(recipe_of(fleet), replace(fleet, units=units))
    random = np.random.default_rng(0)
    values = random.normal(size=len(windows)) * 10.0 ** random.integers(-20, 20, len(windows))
    values[:3] = np.nan, np.inf, -0.0
    part = ClientPredictions("all", "local", None, ("a", 'b"'), "a,", 0, windows, values, bounds=(values - 1, values))
    write_predictions(tmp_path / "p.csv", [part])
    frame = pd.DataFrame({**part.model, "unit": np.array(windows.unit_ids)[windows.unit], "position": windows.position})
    frame = frame.assign(truth=windows.labels, prediction=values, low=values - 1, high=values, scored=True)
    assert (tmp_path / "p.csv").read_bytes() == frame.to_csv(index=False, lineterminator="\n").encode()


def test_many_owners_do_not_fill_prediction_files(tmp_path: Path) -> None:
    windows = build_windows(recipe_of(fleet := series_fleet([40, 30])), fleet)
    owners = tuple(f"plant-{k}" for k in range(1000))
    write_predictions(
        tmp_path / "p.csv", [ClientPredictions("all", "x", None, owners, "a", 0, windows, windows.labels)]
    )
    assert (tmp_path / "p.csv").stat().st_size < 100 * len(windows)
    assert read_predictions([tmp_path / "p.csv"])["train_clients"].unique().tolist() == [written_clients(owners)]
    assert written_clients(owners) != written_clients(owners[::-1])


def test_of_large_predictions_every_kth_unit_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = series_fleet([40, 30, 35, 30, 32])
    windows = build_windows(recipe_of(fleet), fleet)
    paths = [tmp_path / f"{name}.csv" for name in "ab"]
    for path in paths:
        write_predictions(path, [ClientPredictions("all", path.stem, None, ("a",), "a", 0, windows, windows.labels)])
    whole = read_predictions(paths)
    module = import_module("fedprognos.evaluation.prediction_files")
    monkeypatch.setattr(module, "READ_IN_BYTES", sum(path.stat().st_size for path in paths) // 2 + 1)
    monkeypatch.setattr(module, "LINES", 7)
    some = read_predictions(paths)
    assert (whole.attrs["every"], some.attrs["every"]) == (1, 2)
    kept = whole[whole["unit"].isin(["engines-0", "engines-2", "engines-4"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(some, kept)


def test_names_in_predictions_are_no_formulas_and_read_back_as_they_are(tmp_path: Path) -> None:
    names, fleet = ["=cmd|' /C calc'!A0", "@SUM(A1)", "-12", "'quoted'"], series_fleet([40, 30, 35, 30])
    units = tuple(replace(unit, id=name) for unit, name in zip(fleet, names, strict=True))
    windows = build_windows(recipe_of(fleet), replace(fleet, units=units))
    found = ClientPredictions("all", "local", "mean", ("=a",), "=a", 0, windows, np.zeros(len(windows)))
    write_predictions(tmp_path / "p.csv", [found])
    with (tmp_path / "p.csv").open(newline="") as file:
        cells = {cell for row in csv.reader(file) for cell in row}
    assert {"'=cmd|' /C calc'!A0", "'@SUM(A1)", "-12", "'quoted'", "'=a"} <= cells
    assert not any(cell.startswith(("=", "@")) for cell in cells)
    frame = read_predictions([tmp_path / "p.csv"])
    assert set(frame["unit"]) == set(names)
    assert set(frame["test_client"]) == {"=a"}
