"""Is A better than B: chance by sign flips, intervals by seeds and by units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprognos.evaluation.comparison import CLEAR, Comparison, chance_of, change_by_unit, difference_by_seed


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=10))
def test_chance_does_not_depend_on_direction_order_or_scale(differences: list[float]) -> None:
    values = np.array(differences)
    chance = chance_of(values)
    assert 0 < chance <= 1
    assert chance_of(-values) == chance
    assert chance_of(values[::-1].copy()) == pytest.approx(chance, abs=2 / 2 ** len(values) + 1e-12)


def test_chance_is_what_it_says() -> None:
    assert chance_of(np.ones(5)) == 2 / 2**5
    assert chance_of(np.ones(40)) < 0.001
    assert chance_of(np.zeros(20)) == 1.0
    random = np.random.default_rng(3)
    found = [chance_of(random.standard_normal(20)) for _ in range(300)]
    assert np.mean(np.array(found) < CLEAR) == pytest.approx(CLEAR, abs=0.03)  # as often as it should by chance


@pytest.mark.parametrize(
    ("units", "chance", "agreeing", "change", "clear"),
    [
        (20, 0.01, 3, -0.2, True),
        (20, 0.01, 2, -0.2, False),
        (20, 0.2, 3, -0.2, False),
        (20, None, 3, -0.2, False),
        (5, 0.01, 3, -0.2, False),
        (20, 0.01, 3, -0.001, False),
    ],
)
def test_a_difference_is_clear_if_chance_seeds_and_units_say_so(
    units: int, chance: float | None, agreeing: int, change: float, clear: bool
) -> None:
    assert Comparison(change, units, chance, agreeing, 3).clear == clear


def test_a_change_is_paired_over_units_and_seeds() -> None:
    hard = np.array([1.0, 100.0, 10000.0]) * np.ones((3, 1))  # units differ wildly, the two models by 10 % everywhere
    change = change_by_unit(1.21 * hard, hard)
    assert [change.mean, change.low, change.high] == pytest.approx([0.1] * 3)
    assert change.clear


def test_one_seed_has_no_interval() -> None:
    single = difference_by_seed(np.array([3.0]), np.array([1.0]))
    assert (single.mean, single.low, single.high, single.clear) == (2.0, None, None, False)
