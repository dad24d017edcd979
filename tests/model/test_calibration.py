from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedprognos.errors import BundleError
from fedprognos.model.calibration import EDGES, Calibration, add_calibrations, residual_scale


def calibration_of(residuals: np.ndarray, unit: float = 1.0, growing: bool = False) -> Calibration:
    counts = np.bincount(np.searchsorted(np.array(EDGES), residuals), minlength=len(EDGES) + 1)
    return Calibration(edges=EDGES, counts=tuple(counts.tolist()), unit=unit, growing=growing)


@settings(max_examples=25, deadline=None)
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
        low, high = calibration_of(scaled[:200], 100.0, growing).interval(predictions[200:], coverage)
        held.append(np.mean((truth[200:] >= low) & (truth[200:] <= high)))
    assert coverage - 0.02 <= np.mean(held) <= coverage + 0.05


def test_too_few_residuals_give_an_honest_infinite_bound() -> None:
    low, high = calibration_of(np.zeros(5)).interval(np.array([3.0]), 0.9)
    assert low[0] == 0.0
    assert high[0] == np.inf


def test_rul_intervals_narrow_towards_the_end_of_life() -> None:
    residuals = np.random.default_rng(0).normal(0, 0.3, 300)
    low, high = calibration_of(residuals, 125.0, growing=True).interval(np.array([5.0, 60.0, 120.0]), 0.9)
    assert (np.diff(high - low) > 0).all()


def test_sites_calibrate_together_by_adding_histograms() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=50), rng.normal(size=70)
    together = add_calibrations([calibration_of(a), calibration_of(b)])
    assert together == calibration_of(np.concatenate([a, b]))
    with pytest.raises(BundleError, match="different edges"):
        add_calibrations([calibration_of(a), calibration_of(b, unit=2.0)])


def test_malformed_histograms_and_coverages_are_refused() -> None:
    with pytest.raises(ValidationError):
        Calibration(edges=(0.0, 0.0), counts=(1, 1, 1), unit=1.0, growing=False)
    with pytest.raises(ValidationError):
        Calibration(edges=(0.0, 1.0), counts=(1, 1), unit=1.0, growing=False)
    with pytest.raises(BundleError, match="not between 0 and 1"):
        calibration_of(np.zeros(30)).interval(np.zeros(1), 1.5)
