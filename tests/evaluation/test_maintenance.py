"""Decisions against plain, slow implementations that follow the definitions unit by unit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.evaluation.maintenance_decisions import (
    accurate,
    decided,
    followed_to,
    horizons,
    last_seen,
    maintained_at,
    median_horizon,
    product_limit,
    rising,
)

Unit = list[tuple[float, float]]


def stacked(units: list[Unit]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    points = [(t, p, k) for k, unit in enumerate(units) for t, p in unit]
    truth, prediction, unit = (np.array(column) for column in zip(*points, strict=True))
    return truth.astype(float), prediction.astype(float), unit.astype(np.int64)


@st.composite
def fleets(draw: st.DrawFn, censored: bool = True) -> list[Unit]:
    """Units of some length that end at failure or some cycles before, with any predictions."""
    made = []
    for _ in range(draw(st.integers(1, 12))):
        end = draw(st.integers(0, 6)) if censored else 0
        length = draw(st.integers(1, 12))
        made.append([(float(end + length - 1 - k), float(draw(st.integers(0, 14)))) for k in range(length)])
    return made


def slow_rule(unit: Unit, threshold: float) -> float | None:
    for truth, prediction in unit:
        if prediction <= threshold:
            return truth
    return None


def slow_product_limit(values: list[float], seen: list[bool]) -> tuple[dict[float, float], float]:
    """Walks down from the largest value in steps of one."""
    left, masses = 1.0, {}
    level = max(values)
    while level >= 0:
        followed = [v for v in values if v <= level]
        here = [v for v, s in zip(values, seen, strict=True) if s and v == level]
        if here:
            masses[level] = left * len(here) / len(followed)
            left -= masses[level]
        level -= 1
    return masses, left


@settings(max_examples=150)
@given(fleets(), st.integers(0, 14))
def test_a_threshold_costs_what_following_every_unit_shows(units: list[Unit], threshold: int) -> None:
    truth, prediction, unit = stacked(units)
    found = decided(maintained_at(truth, prediction, unit, threshold), last_seen(truth, unit))
    values, seen = [], []
    for one in units:
        left = slow_rule(one, threshold)
        seen.append(left is not None and left > 0)
        values.append(left if seen[-1] else one[-1][0])
    masses, rest = slow_product_limit(values, seen)
    assert found.breaks == pytest.approx(rest, abs=1e-12)
    assert found.unused == pytest.approx(sum(v * m for v, m in masses.items()), abs=1e-12)


@settings(max_examples=80)
@given(fleets(censored=False), st.integers(0, 14))
def test_lives_followed_to_failure_give_plain_shares_and_means(units: list[Unit], threshold: int) -> None:
    truth, prediction, unit = stacked(units)
    found = decided(maintained_at(truth, prediction, unit, threshold), last_seen(truth, unit))
    left = [slow_rule(one, threshold) or 0.0 for one in units]
    assert found.breaks == pytest.approx(np.mean([v == 0 for v in left]))
    assert found.unused == pytest.approx(np.mean(left))


@settings(max_examples=50)
@given(fleets(censored=False))
def test_a_higher_threshold_never_breaks_more_nor_wastes_less(units: list[Unit]) -> None:
    truth, prediction, unit = stacked(units)
    found = [decided(maintained_at(truth, prediction, unit, t), last_seen(truth, unit)) for t in range(15)]
    assert (np.diff([f.breaks for f in found]) <= 1e-12).all()
    assert (np.diff([f.unused for f in found]) >= -1e-12).all()


def test_censored_units_do_not_count_where_they_were_not_followed() -> None:
    """Two maintained at 40, one followed to 50 only, one to 20 only, one to failure: by hand."""
    maintained = np.array([40.0, 40.0, np.nan, np.nan, np.nan])
    found = decided(maintained, np.array([40.0, 30.0, 50.0, 20.0, 0.0]))
    assert found.breaks == pytest.approx(0.5)  # at 40 four were followed, two of them maintained
    assert found.unused == pytest.approx(20.0)


def test_one_unit_followed_furthest_does_not_decide_for_all() -> None:
    """Twelve units end with 20 cycles left, one goes on and is maintained with 2: nothing is known of the twelve."""
    maintained, last = np.array([np.nan] * 12 + [2.0]), np.array([20.0] * 12 + [1.0])
    assert decided(maintained, last).breaks == 0.0
    assert followed_to(last) == 20.0
    assert decided(maintained, last, followed_to(last)).breaks == 1.0
    earlier = decided(np.array([25.0] * 6 + [np.nan] * 6 + [2.0]), last, 20.0)
    assert earlier.breaks == pytest.approx(7 / 13)
    assert followed_to(np.zeros(3)) == 0.0


def test_the_estimate_finds_the_truth_behind_independent_censoring() -> None:
    rng = np.random.default_rng(0)
    lives = np.maximum(rng.normal(30, 20, 4000), 0.0)  # a few percent break
    end = np.where(rng.random(4000) < 0.2, 0.0, rng.uniform(0, 120, 4000))
    maintained = np.where((lives > end) & (lives > 0), lives, np.nan)
    found = decided(maintained, end)
    assert found.breaks == pytest.approx((lives == 0).mean(), abs=0.02)
    assert found.unused == pytest.approx(lives.mean(), abs=1.5)
    naive = np.isnan(maintained).mean()
    assert abs(naive - (lives == 0).mean()) > 0.2  # what counting all of them as breaks would say


@settings(max_examples=100)
@given(fleets(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([0.1, 0.2, 0.5]))
def test_alpha_lambda_follows_its_definition(units: list[Unit], share: float, alpha: float) -> None:
    found = accurate(*stacked(units), share, alpha)
    for one, value in zip(units, found, strict=True):
        start, end = one[0][0], one[-1][0]
        moment = start - share * start  # remaining life at the moment
        if end > moment:
            assert np.isnan(value)
            continue
        truth, prediction = [point for point in one if point[0] >= moment][-1]
        assert value == (truth - alpha * truth <= prediction <= truth + alpha * truth)


@settings(max_examples=100)
@given(fleets(), st.sampled_from([0.1, 0.3]))
def test_horizons_follow_their_definition(units: list[Unit], band: float) -> None:
    values, seen = horizons(*stacked(units), band)
    for one, value, was_seen in zip(units, values, seen, strict=True):
        width = band * one[0][0]
        horizon = None
        for truth, prediction in reversed(one):
            if abs(prediction - truth) > width:
                break
            horizon = truth
        assert was_seen == (horizon is not None)
        assert value == (one[-1][0] if horizon is None else horizon)


def test_the_median_horizon_is_that_of_half_the_units() -> None:
    assert median_horizon(np.array([50.0, 40.0, 30.0, 20.0]), np.ones(4, bool)) == 40.0
    assert median_horizon(np.array([50.0, 0.0, 0.0]), np.array([True, False, False])) == 0.0
    assert median_horizon(np.array([50.0, 60.0, 70.0, 5.0]), np.array([True, False, False, False])) == 50.0
    assert median_horizon(np.array([50.0, 40.0, 40.0, 5.0]), np.array([True, False, False, False])) is None


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=15))
def test_rising_never_falls_and_is_the_minimax_of_means(values: list[float]) -> None:
    """The known closed form: at k the largest over starts of the smallest over ends of means around k."""
    found = rising(np.array(values))
    for k, value in enumerate(found):
        means = [[np.mean(values[a : b + 1]) for b in range(k, len(values))] for a in range(k + 1)]
        assert value == pytest.approx(max(min(row) for row in means), abs=1e-9)


def test_product_limit_of_nothing_seen_leaves_everything_below() -> None:
    points, masses, left = product_limit(np.array([3.0, 4.0]), np.zeros(2, bool))
    assert (len(points), len(masses), left) == (0, 0, 1.0)
