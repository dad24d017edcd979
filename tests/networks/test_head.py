"""Heads from sums against the plain way: rows stacked and weighted, least squares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprognos.features import WindowSet, build_windows
from fedprognos.networks import Network, NetworkSpec, head
from fedprognos.networks.head import UNIT_WEIGHT, head_statistics, solve_head, weighted_statistics
from fedprognos.networks.network_outputs import pieces
from small_fleets import recipe_of, series_fleet

RECIPE = recipe_of(series_fleet([40, 60], conditions=1), window=None, history="life", cap=40)
NETWORK = Network.seeded(NetworkSpec(inputs=RECIPE.channels, widths=(3,), cell="gru", direct=1), 0)


def windows_of(seed: int, lives: list[int]) -> WindowSet:
    return build_windows(RECIPE, series_fleet(lives, seed, conditions=1))


def features_of(windows: WindowSet) -> np.ndarray:
    found = np.empty((len(windows), NETWORK.spec.features))
    for piece in pieces(NETWORK.module().eval(), windows):
        found[piece.index] = piece.features()
    return found


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), lives=st.lists(st.integers(2, 30), min_size=1, max_size=4))
def test_weighted_sums_are_those_of_weighted_rows(seed: int, lives: list[int]) -> None:
    windows = windows_of(seed, lives)
    h, y = features_of(windows), RECIPE.encode(windows.labels)
    weights = np.random.default_rng(seed).uniform(0, 2, len(y)) * (np.arange(len(y)) % 3 > 0)
    plain, ours = weighted_statistics(NETWORK, windows, RECIPE, [None, weights])
    x = np.column_stack([h, np.ones(len(h))])
    np.testing.assert_allclose(plain.hh, x.T @ x, atol=1e-9)
    np.testing.assert_allclose(ours.hh, x.T @ (weights[:, None] * x), atol=1e-9)
    np.testing.assert_allclose(ours.hy, x.T @ (weights * y), atol=1e-8)
    assert np.isclose(ours.yy, (weights * y) @ y)
    assert (plain.n, ours.n) == (len(y), np.count_nonzero(weights))


def test_sums_do_not_depend_on_how_many_points_are_added_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = windows_of(0, [20, 30, 9])
    whole = weighted_statistics(NETWORK, windows, RECIPE, [None])[0]
    for block in (1, 7, len(windows)):
        monkeypatch.setattr(head, "BLOCK", block)
        sums = weighted_statistics(NETWORK, windows, RECIPE, [None])[0]
        np.testing.assert_allclose(sums.hh, whole.hh, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(sums.hy, whole.hy, rtol=1e-12, atol=1e-12)


def test_units_that_count_alike_weigh_the_same_however_long_they_live() -> None:
    windows = windows_of(1, [5, 80])
    h, y = features_of(windows), RECIPE.encode(windows.labels)
    x = np.column_stack([h, np.ones(len(h))])
    weight = np.where(windows.unit == 0, 1 / 5, 1 / 80)
    ours = head_statistics(NETWORK, windows, RECIPE, alike=True)
    assert ours.n == 2 * UNIT_WEIGHT
    np.testing.assert_allclose(ours.hh, UNIT_WEIGHT * x.T @ (weight[:, None] * x), atol=1e-9)
    assert np.isclose(ours.hh[-1, -1], ours.n)
    spread = np.sqrt((weight[:, None] * np.square(h - (weight @ h) / 2)).sum(axis=0))
    root = np.append(np.sqrt(0.01) * spread, 0.0)
    stacked = np.concatenate([np.sqrt(weight)[:, None] * x, np.diag(root)])
    plain = np.linalg.lstsq(stacked, np.append(np.sqrt(weight) * y, np.zeros(len(root))), rcond=None)[0]
    np.testing.assert_allclose(solve_head(ours, 0.01), plain, atol=1e-7)
