from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedprognos.errors import DataError
from fedprognos.evaluation import QUANTILE_LEVELS, Points, rmse, score


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 130)), min_size=2, max_size=60))
def test_scores_equal_the_plain_sums(pairs: list[tuple[float, float]]) -> None:
    truth, prediction = (np.array(side) for side in zip(*pairs, strict=True))
    got = score(Points(truth, prediction, np.arange(len(pairs)), task="rul", cap=130.0))
    n = len(pairs)
    assert got["rmse"] == pytest.approx(math.sqrt(sum((p - t) ** 2 for t, p in pairs) / n))
    assert got["rmse_capped"] == pytest.approx(math.sqrt(sum((p - min(t, 130)) ** 2 for t, p in pairs) / n))
    assert got["mae"] == pytest.approx(sum(abs(p - t) for t, p in pairs) / n)
    assert got["bias"] == pytest.approx(sum(p - t for t, p in pairs) / n, abs=1e-9)
    assert got["late_rate"] == pytest.approx(sum(p > t for t, p in pairs) / n)
    by_hand = sum(math.exp((t - p) / 13) - 1 if p < t else math.exp((p - t) / 10) - 1 for t, p in pairs)
    assert got["nasa_score"] == pytest.approx(by_hand, rel=1e-9, abs=1e-9)
    assert got["nasa_score_mean"] == pytest.approx(by_hand / n, rel=1e-9, abs=1e-9)
    early = [(min(t, 130), p) for t, p in pairs]
    capped = sum(math.exp((t - p) / 13) - 1 if p < t else math.exp((p - t) / 10) - 1 for t, p in early)
    assert got["nasa_score_capped"] == pytest.approx(capped, rel=1e-9, abs=1e-9)
    near = [(p - t) ** 2 for t, p in pairs if t <= 30]
    assert got["rmse_near_end"] == (pytest.approx(math.sqrt(sum(near) / len(near)), abs=1e-9) if near else None)
    relative = [abs(p - t) / t for t, p in early if t > 0]
    assert got["mape"] == (pytest.approx(np.mean(relative)) if relative and np.isfinite(np.mean(relative)) else None)
    accuracy = [max(1 - share, 0) for share in relative]
    assert got["relative_accuracy"] == (pytest.approx(np.mean(accuracy)) if relative else None)
    assert got["n_test"] == got["n_units"] == n


def test_crps_of_sharp_quantiles_is_the_absolute_error_and_honest_ones_win() -> None:
    truth = np.random.default_rng(0).normal(60, 10, 4000)
    said, unit = np.full(4000, 60.0), np.arange(4000)

    def crps(quantiles: np.ndarray) -> float:
        value = score(Points(truth, said, unit, task="rul", quantiles=quantiles))["crps"]
        assert value is not None
        return value

    sharp = crps(np.full((20, 1), 60.0) * np.ones(4000))
    assert sharp == pytest.approx(np.abs(truth - 60).mean())
    honest = crps(np.repeat(stats.norm(60, 10).ppf(QUANTILE_LEVELS)[:, None], 4000, axis=1))
    assert honest == pytest.approx(10 / math.sqrt(math.pi), rel=0.03)
    assert honest < sharp


def test_pooled_rmse_is_not_the_mean_of_parts() -> None:
    truth, prediction = np.zeros(10), np.array([0.0] * 9 + [10.0])
    parts = [rmse(truth[:5], prediction[:5]), rmse(truth[5:], prediction[5:])]
    assert rmse(truth, prediction) == pytest.approx(math.sqrt(10))
    assert np.mean(parts) != pytest.approx(rmse(truth, prediction))


def test_being_late_costs_more_than_being_early() -> None:
    late, early = (
        score(Points(np.array([50.0]), np.array([said]), np.zeros(1, int), task="rul")) for said in (70.0, 30.0)
    )
    assert late["nasa_score"] == pytest.approx(np.expm1(2.0))
    assert early["nasa_score"] == pytest.approx(np.expm1(20 / 13))


def test_state_of_health_has_no_cap_and_no_nasa_score() -> None:
    got = score(Points(np.array([1.0, 2.0]), np.array([1.1, 1.9]), np.zeros(2, int), task="soh"))
    assert got["rmse_capped"] is None
    assert got["nasa_score"] is None
    assert got["r2"] == pytest.approx(1 - 0.02 / 0.5)


def test_the_interval_resamples_units_not_points() -> None:
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(10), 50)
    error = rng.normal(size=10)[unit]  # all points of a unit err alike: 10 observations, not 500
    together = score(Points(np.zeros(500), error, unit, task="soh"), bootstrap=500)
    apart = score(Points(np.zeros(500), error, np.arange(500), task="soh"), bootstrap=500)
    assert together["rmse_low"] is not None
    assert together["rmse_high"] is not None
    assert apart["rmse_high"] is not None
    assert apart["rmse_low"] is not None
    assert together["rmse_low"] < together["rmse"] < together["rmse_high"]
    assert together["rmse_high"] - together["rmse_low"] > 3 * (apart["rmse_high"] - apart["rmse_low"])


@pytest.mark.parametrize("bad", [[], [np.nan], [np.inf]])
def test_nothing_and_nan_are_not_scored(bad: list[float]) -> None:
    values = np.array(bad)
    with pytest.raises(DataError):
        score(Points(values, values, np.zeros(len(bad), int), task="soh"))
