"""Intervals from units left out of the head in turn, and by how much that flatters the layers below it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cohorts import HereCohort, plan_of

from fedprognos.errors import TrainingError
from fedprognos.features import WindowSet, build_windows
from fedprognos.federation.client import Client
from fedprognos.federation.client_folder import ClientFolder
from fedprognos.federation.exchanges.fit import FitRequest
from fedprognos.federation.exchanges.residuals import ResidualRequest
from fedprognos.federation.heads import with_heads
from fedprognos.federation.intervals import Intervals, Uncalibrated
from fedprognos.federation.plan import Plan
from fedprognos.federation.strategies import strategies
from fedprognos.fleet import Fleet
from fedprognos.networks import Calibration, Network, predict
from fedprognos.networks.calibration import HeadSums, even_points, residuals
from fedprognos.networks.head import HeadStatistics, add_all, head_statistics, solve_head
from refusals import refuses
from small_fleets import series_fleet

UNITS = {"a": 8, "b": 7, "c": 10}


def fleets(units: dict[str, int]) -> dict[str, Fleet]:
    return {
        n: series_fleet([50 + k for k in range(count)], seed=s, name=n) for s, (n, count) in enumerate(units.items())
    }


def cohort_of(folder: Path, units: dict[str, int] = UNITS) -> HereCohort:
    return HereCohort({n: Client(n, fleet, ClientFolder(folder / n)) for n, fleet in fleets(units).items()})


def parts_of(plan: Plan, units: dict[str, int] = UNITS) -> dict[str, WindowSet]:
    return {name: build_windows(plan.recipe, fleet) for name, fleet in fleets(units).items()}


def last_round(cohort: HereCohort, plan: Plan, method: str) -> tuple[tuple[str, ...], Network, int]:
    *_, last = strategies[method].run(cohort, plan)
    clients, network = next(iter(last.models.items()))
    return clients, network, last.number


def calibrated(cohort: HereCohort, plan: Plan, method: str) -> Calibration | Uncalibrated:
    clients, network, number = last_round(cohort, plan, method)
    judged = with_heads(cohort, plan, clients, network)
    first = judged[plan.federation.heads[0]]
    return Intervals(cohort, plan, strategies[method], clients, number).calibrate(first)


@pytest.mark.parametrize("alike", [False, True], ids=["rows", "units alike"])
@pytest.mark.parametrize("cap", [None, 1.0], ids=["as they are", "the largest client counts less"])
def test_a_unit_taken_out_of_the_sums_leaves_the_head_of_all_others(
    tmp_path: Path, alike: bool, cap: float | None
) -> None:
    plan = plan_of(validation=0.0, ridge=0.1, alike=alike, weight_cap=cap)
    cohort, windows = cohort_of(tmp_path), parts_of(plan)
    network = plan.common_start()
    judged = with_heads(cohort, plan, cohort.clients, network)["exact"]
    assert judged.sums is not None
    assert judged.shares["a"] == 1.0
    assert (judged.shares["c"] == 1.0) == (cap is None)
    found = replace(judged.sums, share=judged.shares["c"])
    for unit in (0, 7):
        mine = windows["c"].unit == unit
        own = found.without(network, [windows["c"].select(mine)], plan.recipe)
        others = {**windows, "c": windows["c"].select(~mine)}
        shares = {name: judged.shares[name] for name in others}

        def scaled(one: HeadStatistics, share: float) -> HeadStatistics:
            return HeadStatistics(round(share * one.n), share * one.yy, share * one.hh, share * one.hy)

        made = add_all(
            scaled(head_statistics(network, part, plan.recipe, alike=alike), shares[name])
            for name, part in others.items()
        )
        expected = network.with_head(solve_head(made, 0.1))
        for name in expected.weights:
            assert own.weights[name] == pytest.approx(expected.weights[name], rel=1e-3, abs=1e-5)


def test_errors_are_of_capped_labels_near_the_cap_or_below_and_grow_by_the_stretch() -> None:
    plan = plan_of()
    windows = build_windows(plan.recipe, series_fleet([45, 70, 90]))
    assert (windows.labels > 1.25 * 40).any()
    network = plan.common_start()
    plain, wide = (residuals(network, windows, plan.recipe, stretch=stretch) for stretch in (1.0, 2.0))
    near = [np.flatnonzero((windows.unit == k) & (windows.labels <= 1.25 * 40)) for k in range(3)]
    points = windows.select(np.concatenate([rows[even_points(len(rows))] for rows in near]))
    scale = predict(network, points, plan.recipe) + 0.1 * 40
    error = predict(network, points, plan.recipe) - np.minimum(points.labels, 40)
    assert plain.scaled == pytest.approx(error / scale, abs=1e-6)
    grown = 1 + 2 * np.clip(predict(network, points, plan.recipe) / 40, 0, 1)  # nothing at the end, most at the cap
    assert wide.scaled == pytest.approx(grown * error / scale, abs=1e-6)
    assert plain.squared == wide.squared == pytest.approx(np.square(error / scale).sum())


@pytest.mark.long
def test_a_network_that_learns_units_by_heart_gets_wider_intervals(tmp_path: Path) -> None:
    lengths = {name: np.random.default_rng(k).integers(30, 120, 16).tolist() for k, name in enumerate(UNITS)}
    different = {name: series_fleet(lives, name=name) for name, lives in lengths.items()}
    cohort = HereCohort({n: Client(n, fleet, ClientFolder(tmp_path / n)) for n, fleet in different.items()})
    plan = plan_of(validation=0.0, epochs=60, widths=(24,), ridge=1e-4)
    made = calibrated(cohort, plan, "concat")
    assert isinstance(made, Calibration)
    assert made.units and all(units >= 20 for units in made.units)
    asked = [r for _, r in cohort.asked if isinstance(r, ResidualRequest)]
    assert asked[-1].stretch > 1.05
    assert {len(r.edges) for r in asked[:-3]} == {0}  # sums only, until the histograms are asked for
    trained = [r for _, r in cohort.asked if isinstance(r, FitRequest)]
    assert [r.without_reserve for r in trained] == 3 * [False] + 3 * [True]  # one training more


def test_a_client_with_too_few_units_for_a_reserve_lends_its_residuals_all_the_same(tmp_path: Path) -> None:
    cohort, plan = cohort_of(tmp_path, {"a": 1, "b": 20, "c": 20}), plan_of(validation=0.0)
    made = calibrated(cohort, plan, "concat")
    assert isinstance(made, Calibration)
    assert sum(made.units) >= 41


def test_what_is_not_trained_needs_no_second_training(tmp_path: Path) -> None:
    cohort, plan = cohort_of(tmp_path), plan_of(validation=0.0, reservoir={"units": 20})
    assert isinstance(calibrated(cohort, plan, "reservoir"), Calibration)
    assert {r.stretch for _, r in cohort.asked if isinstance(r, ResidualRequest)} == {1.0}
    assert not [r for _, r in cohort.asked if isinstance(r, FitRequest)]


@pytest.mark.parametrize(
    ("units", "changes", "why"),
    [
        ({"a": 5, "b": 5, "c": 5}, {}, "at least 20 units; there are 15"),
        (UNITS, {"heads": ["mean", "exact"]}, "its head is averaged"),
        (dict.fromkeys(map(str, range(21)), 1), {"validation": 0.0}, "no client has enough units"),
    ],
    ids=["few units", "a head without sums", "one unit each"],
)
def test_a_model_without_intervals_says_why(
    tmp_path: Path, units: dict[str, int], changes: dict[str, object], why: str
) -> None:
    made = calibrated(cohort_of(tmp_path, units), plan_of(epochs=1, **changes), "fedavg")
    assert isinstance(made, Uncalibrated)
    assert why in made.reason


def test_clients_that_have_no_part_in_the_head_are_not_asked(tmp_path: Path) -> None:
    cohort, plan = cohort_of(tmp_path), plan_of(validation=0.0, reservoir={"units": 20}, min_clients=1)
    clients, network, number = last_round(cohort, plan, "reservoir")
    cohort.absent = {"b"}
    judged = with_heads(cohort, plan, clients, network)["exact"]
    cohort.absent = set()
    Intervals(cohort, plan, strategies["reservoir"], clients, number).calibrate(judged)
    assert {name for name, r in cohort.asked if isinstance(r, ResidualRequest)} == {"a", "c"}


def test_sums_of_another_head_are_refused() -> None:
    plan = plan_of()
    sums = HeadSums(HeadStatistics(10, 1.0, np.eye(3), np.ones(3)), 0.1)
    with refuses(TrainingError):
        residuals(plan.common_start(), parts_of(plan)["a"], plan.recipe, sums, [parts_of(plan)["a"]])
