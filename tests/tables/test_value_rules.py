"""What stands in for blank cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.tables.columns import Policy
from fedprognos.tables.value_rules import fill

POLICIES: tuple[Policy, ...] = ("hold", "interpolate", "mean", "refuse")


@st.composite
def histories(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = draw(st.integers(1, 30))
    cell = st.one_of(st.just(np.nan), st.floats(-100, 100))
    values = np.array(draw(st.lists(st.lists(cell, min_size=4, max_size=4), min_size=rows, max_size=rows)))
    steps = draw(st.lists(st.floats(0.1, 10), min_size=rows, max_size=rows))
    means = draw(st.lists(st.floats(-100, 100), min_size=4 * rows, max_size=4 * rows))
    return values, np.cumsum(steps), np.reshape(means, (rows, 4))


@settings(deadline=None)
@given(histories())
def test_known_values_stay_and_only_refused_blanks_are_left(history: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    values, time, means = history
    filled = fill(values, time, POLICIES, means)
    known = ~np.isnan(values)
    np.testing.assert_array_equal(filled[known], values[known])
    assert np.isfinite(filled[:, :3]).all()
    np.testing.assert_array_equal(filled[:, 3], values[:, 3])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("hold", [9, 1, 1, 4, 4]), ("interpolate", [1, 1, 3, 4, 4]), ("mean", [9, 1, 9, 4, 9])],
)
def test_values_by_policy(policy: Policy, expected: list[float]) -> None:
    values, time = np.array([[np.nan], [1], [np.nan], [4], [np.nan]]), np.array([0.0, 1, 3, 4, 5])
    assert fill(values, time, [policy], np.array([9.0]))[:, 0].tolist() == expected
