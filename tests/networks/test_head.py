"""Heads from sums against the plain way: rows stacked, dummies for the clients' levels, least squares."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedprognos.networks.head import (
    HeadStatistics,
    add_all,
    mean_squared_error,
    own_level,
    personal_head,
    solve_head,
    solve_within,
    within_head,
)


def drawn(seed: int, rows: int, width: int = 4, level: float = 0.0, slopes: np.ndarray | None = None):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(rows, width)) + rng.normal(size=width)
    w = np.arange(1.0, width + 1) if slopes is None else slopes
    return h, h @ w + level + 0.1 * rng.normal(size=rows)


def told(h: np.ndarray, y: np.ndarray) -> HeadStatistics:
    x = np.column_stack([h, np.ones(len(h))])
    return HeadStatistics(len(y), float(y @ y), x.T @ x, x.T @ y)


@given(st.integers(0, 1000), st.integers(1, 4), st.floats(1e-6, 10.0))
def test_slopes_within_clients_are_those_of_dummy_variables(seed: int, clients: int, strength: float) -> None:
    parts = [drawn(seed + k, 12 + 5 * k, level=10.0 * k) for k in range(clients)]
    ours = solve_within([told(*p) for p in parts], strength)
    h, y = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    dummies = np.zeros((len(y), clients))
    dummies[np.arange(len(y)), np.repeat(np.arange(clients), [len(p[1]) for p in parts])] = 1.0
    root = np.sqrt(strength * np.square(h).sum() / h.shape[1])
    x = np.block([[h, dummies], [root * np.eye(h.shape[1]), np.zeros((h.shape[1], clients))]])
    plain = np.linalg.lstsq(x, np.append(y, np.zeros(h.shape[1])), rcond=None)[0]
    assert np.allclose(ours[:-1], plain[: h.shape[1]], rtol=1e-6, atol=1e-8)
    for k, p in enumerate(parts):
        assert np.isclose(own_level(told(*p), ours)[-1], plain[h.shape[1] + k], rtol=1e-6, atol=1e-6)


def test_of_one_client_they_are_the_ordinary_ones() -> None:
    one = told(*drawn(3, 40))
    assert np.allclose(solve_within([one], 1e-3), solve_head(one, 1e-3), atol=1e-8)


def test_clients_that_differ_in_level_only_share_slopes_that_a_common_intercept_spoils() -> None:
    parts = [drawn(k, 30, level=20.0 * k) for k in range(3)]
    held = [told(*drawn(k, 30, level=20.0 * k)) for k in range(3)]
    stats = [told(*p) for p in parts]
    shared = within_head(stats, list(held), 1e-4)
    own = np.mean([mean_squared_error(h, own_level(s, shared.head)) for s, h in zip(stats, held, strict=True)])
    common = np.mean([mean_squared_error(h, solve_head(add_all(stats), 1e-9)) for h in held])
    assert own < 0.05
    assert common > 1
    assert shared.validation_mse is not None
    assert shared.validation_mse < 0.05


def test_a_strength_is_used_where_nothing_tells_it() -> None:
    stats = [told(*drawn(k, 30)) for k in range(2)]
    found = within_head(stats, [None, None], 0.5)
    assert found.strength == 0.5
    assert np.array_equal(found.head, solve_within(stats, 0.5))


def test_an_own_head_goes_as_far_from_the_shared_one_as_the_held_out_part_shows() -> None:
    shared = np.append(np.arange(1.0, 5), 0.0)
    alike, other = drawn(1, 40, level=7.0), drawn(1, 400, level=7.0, slopes=np.array([-3.0, 1.0, 0.0, 9.0]))
    level_only = personal_head(told(*alike), None, shared)
    assert np.array_equal(level_only[:-1], shared[:-1])
    assert abs(level_only[-1] - 7) < 0.1
    near = personal_head(told(*alike), told(*drawn(2, 25, level=7.0)), shared)
    assert np.abs(near[:-1] - shared[:-1]).max() < 0.05
    far = personal_head(told(*other), told(*drawn(2, 100, level=7.0, slopes=np.array([-3.0, 1.0, 0.0, 9.0]))), shared)
    assert np.abs(far[:-1] - [-3, 1, 0, 9]).max() < 0.1
