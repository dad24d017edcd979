from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedprognos.errors import BundleError
from fedprognos.networks.calibration import (
    EDGES,
    POINTS,
    Calibration,
    calibration_of,
    calibration_of_head,
    even_points,
    neighbours_joined,
    prediction_ranges,
    residual_scale,
)
from refusals import refuses
from small_fleets import recipe_of, series_fleet


def counted(residuals: np.ndarray) -> tuple[int, ...]:
    return tuple(np.bincount(np.searchsorted(np.array(EDGES), residuals), minlength=len(EDGES) + 1).tolist())


def one_range(residuals: np.ndarray, unit: float = 1.0, growing: bool = False) -> Calibration:
    counts = counted(residuals)
    return Calibration(ranges=(), edges=EDGES, counts=(counts,), units=(len(residuals),), unit=unit, growing=growing)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from([0.8, 0.9, 0.95]), st.booleans())
def test_intervals_hold_what_they_promise_on_exchangeable_residuals(seed: int, coverage: float, growing: bool) -> None:
    rng = np.random.default_rng(seed)
    held = []
    for _ in range(40):
        predictions = rng.uniform(0, 100, 400)
        scale = residual_scale(predictions, 100.0, growing)
        # No label is negative: the lower bound may be cut at 0 only then.
        truth = np.maximum(predictions - 0.2 * scale * rng.standard_t(4, 400), 0.0)
        scaled = (predictions - truth) / scale
        low, high = one_range(scaled[:200], 100.0, growing).interval(predictions[200:], coverage)
        held.append(np.mean((truth[200:] >= low) & (truth[200:] <= high)))
    assert abs(np.mean(held) - coverage) <= 0.02


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_intervals_hold_what_they_promise_within_every_range_though_residuals_of_a_unit_are_alike(
    coverage: float,
) -> None:
    """Units whose errors are half their own, half the point's, and eight times as large above 50 as below."""
    rng = np.random.default_rng(5)
    bounds, held = (50.0,), {False: [], True: []}
    for _ in range(60):
        own = rng.normal(size=(160, 1))
        predictions = rng.uniform(0, 100, (160, POINTS))
        spread = np.where(predictions >= 50, 8.0, 1.0)
        residual = 0.1 * spread * (own + rng.normal(size=predictions.shape))
        place = (predictions >= 50).astype(int)
        counts = tuple(counted(residual[:80][place[:80] == k]) for k in range(2))
        made = Calibration(ranges=bounds, edges=EDGES, counts=counts, units=(80, 80), unit=1.0, growing=False)
        low, high = made.interval(predictions[80:].ravel(), coverage)
        truth = (predictions - residual)[80:].ravel()
        inside = (truth >= low) & (truth <= high)
        for above, found in held.items():
            found.append(inside[(predictions[80:].ravel() >= 50) == above].mean())
    for found in held.values():
        assert abs(np.mean(found) - coverage) <= 0.02


def test_ranks_are_those_of_sorted_residuals() -> None:
    """Against the definition: the r-th smallest and the r-th largest of n, r = floor((n + 1) (1 - coverage) / 2)."""
    rng = np.random.default_rng(2)
    for n in (20, 39, 60, 199):
        residuals = np.sort(rng.normal(0, 0.5, n))
        r = int((n + 1) * 5 // 100)
        low, high = one_range(residuals).interval(np.array([10.0]), 0.9)
        assert abs(10 - low[0] - residuals[n - r]) <= 0.02  # as exact as the edges allow
        assert abs(10 - high[0] - residuals[r - 1]) <= 0.02


def test_too_few_units_give_an_honest_infinite_bound() -> None:
    low, high = one_range(np.zeros(5)).interval(np.array([3.0]), 0.9)
    assert low[0] == 0.0
    assert high[0] == np.inf
    many_of_few = Calibration(
        ranges=(), edges=EDGES, counts=(counted(np.zeros(500)),), units=(10,), unit=1, growing=False
    )
    assert many_of_few.interval(np.array([3.0]), 0.9)[1][0] == np.inf


def test_rul_intervals_narrow_towards_the_end_of_life() -> None:
    residuals = np.random.default_rng(0).normal(0, 0.3, 300)
    low, high = one_range(residuals, 125.0, growing=True).interval(np.array([5.0, 60.0, 120.0]), 0.9)
    assert (np.diff(high - low) > 0).all()


def test_sparse_ranges_of_the_sum_join_their_neighbours() -> None:
    recipe = recipe_of(series_fleet([90, 80, 70], seed=9), window=8, cap=40)
    bounds = prediction_ranges(recipe)
    counts = np.ones((6, len(EDGES) + 1), dtype=np.int64)
    made = calibration_of(counts, np.array([5, 30, 40, 25, 19, 3]), recipe)
    assert made.ranges == (bounds[1], bounds[2])
    assert made.units == (30, 40, 25)
    assert [sum(c) for c in made.counts] == [2 * counts.shape[1], counts.shape[1], 3 * counts.shape[1]]
    few = calibration_of(counts, np.array([1, 2, 3, 4, 5, 6]), recipe)
    assert few.ranges == ()
    assert few.units == (6,)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 60))
def test_joined_ranges_are_all_there_in_order_and_large_enough(sizes: list[int], least: int) -> None:
    groups = neighbours_joined(len(sizes), lambda group: sum(sizes[k] for k in group), least)
    assert [k for group in groups for k in group] == list(range(len(sizes)))
    assert len(groups) == 1 or all(sum(sizes[k] for k in group) >= least for group in groups)


def test_points_are_spread_over_a_life_of_any_length() -> None:
    for windows in (1, 7, 50, 400):
        points = even_points(windows)
        assert len(points) == POINTS
        assert points.min() >= 0
        assert points.max() < windows
    assert set(even_points(7)) == set(range(7))


ONE_RANGE = {
    "edges": [-1.0, 0.0, 1.0],
    "ranges": [],
    "counts": [[0, 30, 30, 0]],
    "units": [60],
    "unit": 1.0,
    "growing": False,
}


def test_one_residual_a_unit_gives_split_conformal_intervals() -> None:
    calibration = Calibration.model_validate(ONE_RANGE)
    low, high = calibration.interval(np.array([5.0, 7.0]), 0.9)
    assert low == pytest.approx([5 - 1 + 2.5 / 30, 7 - 1 + 2.5 / 30])  # the third largest of thirty spread evenly
    assert high == pytest.approx([5 + 1 - 2.5 / 30, 7 + 1 - 2.5 / 30])
    assert Calibration.model_validate_json(calibration.model_dump_json()) == calibration


@pytest.mark.parametrize(
    "change",
    [
        {"edges": [0.0, 0.0, 1.0]},
        {"edges": [0.0, float("nan"), 1.0]},
        {"edges": [0.0, 1.0, float("inf")]},
        {"counts": [[0, 30, 30]]},
        {"counts": [[0, 30, 30, 0]] * 2},
        {"counts": [[0, 30, -30, 0]]},
        {"counts": [[0, 30, 10**30, 0]]},
        {"counts": [0, 30, 30, 0]},
        {"ranges": [1.0]},
        {"ranges": [2.0, 1.0], "counts": [[0, 30, 30, 0]] * 3, "units": [1, 1, 1]},
        {"units": [61]},
        {"units": []},
        {"unit": 0.0},
        {"unit": float("inf")},
        {"version": 3},
        {"more": 1},
    ],
)
def test_malformed_histograms_are_refused(change: dict[str, object]) -> None:
    Calibration.model_validate({**ONE_RANGE, "version": 2})
    with pytest.raises(ValidationError):
        Calibration.model_validate({**ONE_RANGE, **change})


def test_a_coverage_must_be_a_share() -> None:
    with refuses(BundleError):
        one_range(np.zeros(30)).interval(np.zeros(1), 1.5)


def capped_errors(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and lives of 100 units whose errors grow with the life left, both capped at 125."""
    rng = np.random.default_rng(seed)
    lives = rng.uniform(0, 1.25 * 125, (100, POINTS))
    errors = (2 + 0.12 * np.minimum(lives, 125)) * (
        0.7 * rng.normal(size=(100, 1)) + 0.7 * rng.normal(size=lives.shape)
    )
    return np.clip(np.minimum(lives, 125) + errors, 0, 125), lives


def test_intervals_have_no_cliffs_hold_their_promise_and_are_open_at_the_cap() -> None:
    recipe = recipe_of(series_fleet([90, 80, 70], seed=9), window=8, cap=125)
    predictions, lives = capped_errors(0)
    scaled = (predictions - np.minimum(lives, 125)) / residual_scale(predictions, 125, True)
    place = np.searchsorted(prediction_ranges(recipe), predictions, side="right")
    counts = np.stack([counted(scaled[place == k]) for k in range(12)])
    units = np.array([(place == k).any(axis=1).sum() for k in range(12)])
    calibration = calibration_of(counts, units, recipe)
    every = np.linspace(0, 125, 1251)
    low, high = calibration.interval(every, 0.9)
    assert np.abs(np.diff(low)).max() < 1.0
    bounded = np.isfinite(high)
    assert np.abs(np.diff(high[bounded])).max() < 1.0
    assert not bounded[-1] and bounded[:800].all() and not np.isfinite(high[high > 124.5]).any()
    new, truth = (numbers.ravel() for numbers in capped_errors(1))
    low, high = calibration.interval(new, 0.9)
    holds = (truth >= low) & (truth <= high)
    assert holds.mean() == pytest.approx(0.9, abs=0.03)
    assert holds[new > 120].mean() == pytest.approx(0.9, abs=0.04)  # nothing is missed above, so more may be below


@pytest.mark.parametrize("spread", [0.5, 1.0, 3.0])
def test_an_owner_s_own_head_is_widened_until_it_holds_on_machines_like_the_owner_s(spread: float) -> None:
    """Errors of one machine are alike; the shared head's errors have a deviation of 0.1 of the scale."""
    rng, recipe = np.random.default_rng(3), recipe_of(series_fleet([80, 70]), cap=125)
    held = []
    for _ in range(60):
        shared = one_range(0.1 * rng.normal(size=400), 125.0, growing=True)
        predictions = rng.uniform(20, 60, (40, 50))
        scale = residual_scale(predictions, 125.0, growing=True)
        alike = rng.normal(size=(40, 1)) + rng.normal(size=predictions.shape)
        labels = predictions - spread * 0.1 * scale * alike / np.sqrt(2)
        kept_out = np.stack(
            [part[:20].ravel() for part in (predictions, labels, np.arange(40.0)[:, None] + 0 * labels)]
        )
        calibration = calibration_of_head(shared, kept_out, recipe)
        assert calibration is not None
        low, high = calibration.interval(predictions[20:].ravel(), 0.9)
        truth = labels[20:].ravel()
        held.append(np.mean((truth >= low) & (truth <= high)))
    assert 0.88 <= np.mean(held) <= (0.96 if spread > 1 else 1.0)


def test_an_own_head_has_no_intervals_where_nothing_can_tell_them() -> None:
    recipe, shared = recipe_of(series_fleet([80, 70]), cap=125), one_range(np.linspace(-1, 1, 60), 125.0, growing=True)
    kept_out = np.stack([np.full(90, 50.0), np.full(90, 45.0), np.repeat(np.arange(9.0), 10)])
    assert calibration_of_head(shared, kept_out, recipe) is not None
    assert calibration_of_head(shared, kept_out[:, :80], recipe) is None  # of eight machines
    assert calibration_of_head(shared, None, recipe) is None
    assert calibration_of_head(None, kept_out, recipe) is None
