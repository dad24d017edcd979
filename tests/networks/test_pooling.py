"""Partial pooling from sums against the plain way: all slopes and deviations stacked in one least-squares problem."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_head import NETWORK, RECIPE, features_of, windows_of

from fedprognos.networks.head import HeadStatistics
from fedprognos.networks.pooling import (
    CentredSums,
    Fits,
    Grid,
    centred,
    forward_fits,
    own_slopes,
    recent,
    shared_slopes,
    with_levels,
)

WIDTH = 3
Points = tuple[np.ndarray, np.ndarray]


def drawn(seed: int, rows: int, level: float = 0.0, slopes: tuple[float, ...] = (1.0, 2.0, 3.0)) -> Points:
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(rows, WIDTH)) + rng.normal(size=WIDTH)
    return h, h @ np.array(slopes) + level + 0.1 * rng.normal(size=rows)


def sums_of(points: Points) -> HeadStatistics:
    h, y = points
    x = np.column_stack([h, np.ones(len(h))])
    return HeadStatistics(len(y), float(y @ y), x.T @ x, x.T @ y)


def grid_of(strength: float, freedom: float) -> Grid:
    return Grid((), np.array([strength]), np.array([freedom]))


def plain(clients: list[Points], strength: float, freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Shared slopes (d,) and each client's own ones (clients, d)."""
    unknowns = WIDTH * (len(clients) + 1)
    rows, right = [], []
    for j, (h, y) in enumerate(clients):
        block = np.zeros((len(y), unknowns))
        block[:, :WIDTH] = block[:, WIDTH * (j + 1) : WIDTH * (j + 2)] = (h - h.mean(axis=0)) / np.sqrt(WIDTH)
        rows.append(block)
        right.append((y - y.mean()) / np.sqrt(WIDTH))
    hold = np.sqrt(np.append(np.full(WIDTH, strength), np.full(unknowns - WIDTH, 1 / freedom)))
    rows.append(np.diag(hold))
    right.append(np.zeros(unknowns))
    found = np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)[0].reshape(-1, WIDTH)
    return found[0], found[0] + found[1:]


@given(
    seed=st.integers(0, 1000), clients=st.integers(1, 4), strength=st.floats(1e-4, 10.0), freedom=st.floats(0.05, 1e4)
)
@settings(deadline=None)
def test_pooling_from_sums_is_the_stacked_least_squares(
    seed: int, clients: int, strength: float, freedom: float
) -> None:
    rng = np.random.default_rng(seed)
    points = [drawn(seed + k, 8 + 5 * k, 10.0 * k, tuple(rng.normal(size=WIDTH))) for k in range(clients)]
    grid = grid_of(strength, freedom)
    shared = shared_slopes([CentredSums.from_statistics(sums_of(p)) for p in points], grid)
    expected, own = plain(points, strength, freedom)
    np.testing.assert_allclose(shared[0, 0], expected, rtol=1e-6, atol=1e-6)
    for k, p in enumerate(points):
        found = own_slopes(sums_of(p), grid.freedoms, shared)[0, 0]
        np.testing.assert_allclose(found, own[k], rtol=1e-6, atol=1e-6)
        head = with_levels(sums_of(p), found)
        assert abs((p[0] @ head[:-1] + head[-1] - p[1]).mean()) < 1e-9


@settings(deadline=None)
@given(seed=st.integers(0, 1000), strength=st.floats(1e-4, 10.0))
def test_without_freedom_clients_share_slopes_and_have_intercepts_of_their_own(seed: int, strength: float) -> None:
    points = [drawn(seed + k, 12, level=10.0 * k) for k in range(3)]
    sums = [sums_of(p) for p in points]
    grid = grid_of(strength, 0.0)
    shared = shared_slopes([CentredSums.from_statistics(s) for s in sums], grid)
    left, right = (sum(part) for part in zip(*(centred(s) for s in sums), strict=True))
    np.testing.assert_allclose(shared[0, 0], np.linalg.solve(left + strength * np.eye(WIDTH), right), atol=1e-8)
    np.testing.assert_allclose(
        shared_slopes([CentredSums.from_statistics(s) for s in sums], grid_of(strength, 1e-9)), shared, atol=1e-8
    )
    for one in sums:
        np.testing.assert_allclose(own_slopes(one, grid.freedoms, shared), shared, atol=1e-10)


def nested(parts: list[Points]) -> Fits:
    """Parts after another: those up to each cut, and those that follow it."""
    stacked = [tuple(np.concatenate(side) for side in zip(*parts[: k + 1], strict=True)) for k in range(len(parts))]
    later = [tuple(np.concatenate(side) for side in zip(*parts[k + 1 :], strict=True)) for k in range(len(parts) - 1)]
    return Fits([sums_of(p) for p in stacked], [sums_of(p) for p in later])  # type: ignore[arg-type]


def test_strengths_that_predict_later_points_decide() -> None:
    grid = Grid.for_columns(WIDTH)
    odd, alike = (-3.0, 1.0, 9.0), (1.0, 2.0, 3.0)
    clients = [[drawn(10 * k + j, 30, 5.0 * k, odd if k == 0 else alike) for j in range(5)] for k in range(3)]
    fits = [nested(points) for points in clients]
    shared = {k: shared_slopes([CentredSums.from_statistics(f.fitted[k]) for f in fits], grid) for k in range(5)}
    for k, slopes in ((0, odd), (1, alike), (2, alike)):
        head = fits[k].head(grid.freedoms, shared)
        np.testing.assert_allclose(head[:-1], slopes, atol=0.1)
        np.testing.assert_allclose(head[-1], 5.0 * k, atol=0.2)
    judged_by_nobody = fits[0].head(grid.freedoms, {4: shared[4]})
    np.testing.assert_array_equal(judged_by_nobody[:-1], shared[4][0, len(grid.strengths) // 2])


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=2, max_size=5), floor=st.integers(1, 30))
def test_no_sum_of_few_points_leaves_nor_a_difference_of_few(sizes: list[int], floor: int) -> None:
    sent = nested([drawn(k, n) for k, n in enumerate(sizes)]).sendable(floor)
    assert len(sent) == len(sizes)
    counts = [one.n for one in sent if one is not None]
    assert all(n >= floor for n in counts)
    assert (sent[-1] is None) == (sum(sizes) < floor)
    assert all(b - a >= floor for a, b in pairwise(counts))


def test_recent_points_of_a_single_unit_count_more_and_the_fits_are_not_nested() -> None:
    windows = windows_of(3, [50])
    fits = forward_fits(NETWORK, windows, RECIPE, 0)
    assert [one.n for one in fits.fitted] == [35, 40, 45, 50]
    assert [one.n for one in fits.later] == [15, 10, 5]
    assert not fits.nested
    h, y = features_of(windows), RECIPE.encode(windows.labels)
    x = np.column_stack([h, np.ones(len(h))])
    for one in fits.fitted:
        weights = recent(one.n)
        assert np.isclose(weights.sum(), one.n)
        assert np.isclose(weights[-1] / weights[-2], np.exp(1 / (0.3 * one.n)))
        np.testing.assert_allclose(one.hy, x[: one.n].T @ (weights * y[: one.n]), atol=1e-8)
    np.testing.assert_allclose(fits.later[0].hy, x[35:].T @ y[35:], atol=1e-8)


def test_of_several_units_whole_ones_come_earlier_and_later() -> None:
    windows = windows_of(4, [12, 9, 30, 7])
    fits = forward_fits(NETWORK, windows, RECIPE, 0)
    assert fits.nested
    assert {one.n for one in fits.later} <= {12, 9, 30, 7}
    assert fits.fitted[-1].n == 58
    assert all(a.n + b.n == 58 for a, b in zip(fits.fitted[:-1], fits.later, strict=True))


def test_many_columns_try_less() -> None:
    def megabytes(columns: int) -> float:
        grid = Grid.for_columns(columns)
        fits, pairs = len(grid.cuts) + 1, len(grid.strengths) * len(grid.freedoms)
        return 8e-6 * fits * max(columns * (columns + 3) / 2, pairs * columns)

    assert [megabytes(columns) < 4 for columns in (38, 400, 401, 664)] == [True] * 4
