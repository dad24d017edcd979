"""No count of few residuals leaves a client, and what it costs: intervals that are never narrower."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.networks.calibration import EDGES, Calibration, Residuals
from fedprognos.privacy.floors import Floors, coarse_places

EDGE = np.array(EDGES)
RANGES = np.array([10.0, 20.0])


def residuals(predictions: np.ndarray, scaled: np.ndarray, unit: np.ndarray, times: int = 1) -> Residuals:
    """As many residuals, every point so many times."""
    return Residuals(predictions, scaled, unit, np.arange(len(unit)) // times, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.floats(0.01, 3.0), st.sampled_from([1, 5, 20]))
def test_every_count_has_enough_behind_it_and_none_is_lost(seed: int, units: int, spread: float, least: int) -> None:
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), 50)
    scaled = rng.normal(0, spread, len(unit)) + rng.normal(0, spread, units)[unit]
    predictions = rng.uniform(0, 30, len(unit))
    counts, present = Floors(20, least, parts=True).histogram(residuals(predictions, scaled, unit), RANGES, EDGE)
    assert counts.shape == (3, len(EDGE) + 1)
    assert (counts[counts > 0] >= 20).all()
    assert counts.sum() in (0, len(unit))
    assert (present[counts.sum(axis=1) > 0] >= least).all()
    assert (present[counts.sum(axis=1) == 0] == 0).all()
    if units < least:
        assert not counts.any()


def test_a_single_residual_far_out_is_not_told_apart() -> None:
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(20), 50)
    scaled = rng.normal(0, 0.3, len(unit))
    fine = np.bincount(np.searchsorted(EDGE, scaled), minlength=len(EDGE) + 1)
    assert (fine == 1).sum() >= 2  # each of these would be one unit's error
    told, around = [], np.linspace(1.3, 1.8, 51)
    alike = around[coarse_places(around, EDGE) == coarse_places(np.array([1.55]), EDGE)]
    assert np.ptp(alike) > 0.1  # several bins
    for largest in alike:
        scaled[7] = largest
        told.append(
            Floors(20, 5, parts=True).histogram(residuals(np.zeros(len(unit)), scaled, unit), np.empty(0), EDGE)[0]
        )
    assert all((one[one > 0] >= 20).all() for one in told)
    assert all((one == told[0]).all() for one in told)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 60), st.floats(0.05, 0.8))
def test_intervals_from_such_counts_are_never_narrower(seed: int, units: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), 50)
    scaled = rng.normal(0.1, spread, len(unit))
    fine = np.bincount(np.searchsorted(EDGE, scaled), minlength=len(EDGE) + 1)
    counts, _ = Floors(20, 5, parts=True).histogram(residuals(np.zeros(len(unit)), scaled, unit), np.empty(0), EDGE)

    def bounds(found: np.ndarray) -> np.ndarray:
        made = Calibration(
            ranges=(), edges=EDGES, counts=(tuple(map(int, found)),), units=(units,), unit=1.0, growing=False
        )
        return np.ravel(made.interval(np.array([10.0]), 0.9))

    (low, high), (true_low, true_high) = bounds(counts[0]), bounds(fine)
    step = 0.0201  # places within a count are taken as spread evenly
    assert low <= true_low + step
    assert high >= true_high - step


def test_without_edges_there_is_one_count() -> None:
    few, none = np.zeros(19), np.empty(0)
    assert Floors(20, 1, parts=True).histogram(residuals(few, few, np.arange(19)), none, none)[0].tolist() == [[0]]
    many = np.zeros(40)
    counts, units = Floors(20, 5, parts=True).histogram(residuals(many, many, np.arange(40) % 8), none, none)
    assert (counts.tolist(), units.tolist()) == ([[40]], [8])


def test_places_lie_outwards_and_are_the_same_whatever_comes() -> None:
    scaled = np.linspace(-4, 4, 2001)
    places, bins = coarse_places(scaled, EDGE), np.searchsorted(EDGE, scaled)
    middle = int(np.searchsorted(EDGE, 0.0))
    assert (np.abs(places - middle) >= np.abs(bins - middle)).all()
    assert (np.sign(places - middle) == np.sign(bins - middle)).all()
    assert len(np.unique(places)) < 0.75 * len(EDGE)


def test_a_point_that_comes_several_times_is_one_point() -> None:
    """Residuals of short lives are taken at some points again and again: 40 residuals are of 8 points then."""
    many, none = np.zeros(40), np.empty(0)
    counts, _ = Floors(20, 5, parts=True).histogram(residuals(many, many, np.arange(40) // 5, 5), none, none)
    assert counts.tolist() == [[0]]
